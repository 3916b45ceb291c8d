"""What actors tell each other: typed and immutable, one per purpose."""

from dataclasses import dataclass

from cluster.load import LoadView
from cluster.request import Request
from cluster.role import Role
from metrics.records import FloatArray
from metrics.run import RoleChange, RoleSpan


@dataclass(frozen=True, slots=True)
class Offer:
    """KV of `request` waits at instance `source`, which computed it under `source_epoch`."""

    request: Request
    source: int
    source_epoch: int


@dataclass(frozen=True, slots=True)
class Report:
    """What an instance says a few times a second: its load, and the requests that ended since."""

    load: LoadView
    ended: list[Request]


@dataclass(frozen=True, slots=True)
class Serving:
    """An instance serves `role` under `epoch` from now on."""

    instance: int
    role: Role
    epoch: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How the run stands, for whoever watches it."""

    now_s: float
    num_sent: int
    num_ended: int
    num_good: int
    loads: tuple[LoadView, ...]
    changes: tuple[str, ...]
    """The latest role changes, in words."""


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """One handoff, in scenario seconds and in bytes: what the link model said, and what was measured here."""

    modelled_s: float
    measured_s: float
    modelled_bytes: int
    real_bytes: int


@dataclass(frozen=True, slots=True)
class InstanceHistory:
    """Everything about an instance that result files need, sent once at the end."""

    step_logs: list[FloatArray]
    extra_gaps_s: list[float]
    spans: list[RoleSpan]
    changes: list[RoleChange]
    samples: FloatArray
    kv_capacity_tokens: int
    kv_used_tokens: int
    """Left in use; 0 after a clean run."""
    starved_steps: int
    lateness_s: FloatArray
    """Wall seconds by which each step was completed late."""
    transfers: list[TransferTimes]
    num_refused: int
    """KV payloads that did not arrive or did not verify."""
    num_calls: int
    """Ray calls this instance made."""
    kv_left_bytes: int
    """Real KV bytes still held; 0 after a clean run."""


@dataclass(frozen=True, slots=True)
class RouterHistory:
    """What the router knows at the end. records: (requests, metrics.records.Column)."""

    records: FloatArray
    num_refused: int
    """Messages refused because a role had changed in between, and sent elsewhere."""
    num_calls: int
