"""What actors tell each other: typed and immutable, one per purpose."""

from dataclasses import dataclass, field

import numpy as np

from cluster.load import LoadView
from cluster.request import Request
from cluster.role import Role
from metrics.history import RoleHistory
from metrics.records import WIDTH, FloatArray
from metrics.run import RoleChange, RoleSpan


@dataclass(frozen=True, slots=True)
class Offer:
    """KV of `request` waits at instance `source`, which computed it under `source_epoch`."""

    request: Request
    source: int
    source_epoch: int
    migrates: bool = False
    """Whether it decoded there, and is to go on elsewhere."""
    prefill_ends_s: float | None = None
    """With push: when the KV will be complete, and offered again. None: it is."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """What an instance that leaves its role gives back, for others to take."""

    offers: list[Offer]
    """Handoffs that waited for room."""
    prompts: list[Request]
    """Prompts that had not started."""


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """One handoff, in scenario seconds and in bytes: what the link model said, and what was measured here."""

    modelled_s: float
    measured_s: float
    modelled_bytes: int
    real_bytes: int
    refused_s: float
    """When KV was refused first because it had arrived damaged or not at all; nan if it never was."""
    whole_s: float
    migrates: bool = False


@dataclass(frozen=True, slots=True)
class Deeds:
    """What one incarnation of an instance has done since it last said, or since it began when they are `whole`."""

    instance: int
    incarnation: int
    whole: bool
    step_rows: list[FloatArray]
    """Per micro-batch, cluster.step_log.StepRow."""
    samples: FloatArray
    """Rows of metrics.samples.SAMPLE_FIELDS."""
    transfers: list[TransferTimes]
    lateness_s: FloatArray
    """Wall seconds by which each step was completed late."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Tokens a request has had so far, as of a report: what was delivered cannot be taken back."""

    request_id: int
    generated: int
    second_token_s: float
    last_token_s: float
    text: bytes
    """What was generated, where a model really computes."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an instance says a few times a second: everything since its last report that arrived."""

    load: LoadView
    ended: list[Request]
    received: list[int]
    """Requests whose KV has come in."""
    progress: list[Progress]
    deeds: Deeds


@dataclass(frozen=True, slots=True)
class Serving:
    """An instance serves `role` under `epoch` since `now_s`; `drained_s` is when it was free to change."""

    instance: int
    role: Role
    epoch: int
    now_s: float
    drained_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """All that a living instance knows, for a router that has to start from nothing."""

    load: LoadView
    prompts: list[Request]
    """Waiting or prefilling here."""
    outgoing: list[Offer]
    """KV that waits here to be pulled."""
    pin: Role | None
    """The role set for it by hand."""
    reason: str
    """Why it was last told to change its role."""
    incoming: list[Offer]
    """Handoffs accepted here, in line or on their way."""
    decoding: list[Request]
    """Their KV is here."""
    progress: list[Progress]
    texts: dict[int, bytes]
    """What those who ended here had generated, where a model really computes."""
    ended: FloatArray
    """(requests, metrics.records.Column): everybody who ended here."""
    deeds: Deeds
    """The whole of them."""


@dataclass(frozen=True, slots=True)
class Toll:
    """What faults have cost since the start of the run."""

    disturbed: int = 0
    """Times that a request lost its place: started over, or resumed elsewhere."""
    resumed: int = 0
    """Times that it resumed by transfer, because its KV survived."""
    recomputed_tokens: int = 0
    failed: int = 0
    """Requests given up."""
    refusals: tuple[tuple[float, float], ...] = ()
    """KV that arrived damaged: when that was noticed, and when it was whole after all."""


@dataclass(frozen=True, slots=True)
class Legacy:
    """What a router knows that its successor could ask nobody for."""

    history: RoleHistory
    control_s: list[float]
    num_refused: int
    num_ignored: int
    toll: Toll


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
    silent_s: dict[int, float]
    """Wall seconds since the last report of each instance that should be reporting."""
    ended: FloatArray = field(default_factory=lambda: np.empty((0, WIDTH)))
    """Records since the last snapshot."""
    texts: dict[int, bytes] = field(default_factory=dict)
    """What those who have ended since the last snapshot had generated, where a model really computes."""
    handed_over: tuple[tuple[int, int, int], ...] = ()
    """KV that has come in since the last snapshot: source, destination, tokens."""
    planner_words: str = ""
    """Why the planner did what it did at its last tick but one, or did nothing."""
    deeds: tuple[Deeds, ...] = ()
    """What instances have told since the last snapshot."""
    legacy: Legacy | None = None


@dataclass(frozen=True, slots=True)
class Farewell:
    """What only a living instance can say at the end."""

    kv_capacity_tokens: int
    kv_used_tokens: int
    """Left in use; 0 after a clean run."""
    kv_left_bytes: int
    """Real KV bytes still held; 0 after a clean run."""
    starved_steps: int
    extra_gaps_s: list[float]
    num_refused: int
    """KV payloads that did not arrive or did not verify."""
    num_calls: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class RouterHistory:
    """What the router knows at the end. records: (requests, metrics.records.Column)."""

    records: FloatArray
    step_rows: list[list[FloatArray]]
    """Per instance and micro-batch, those of dead incarnations included."""
    samples: list[FloatArray]
    transfers: list[TransferTimes]
    lateness_s: FloatArray
    spans: list[RoleSpan]
    changes: list[RoleChange]
    control_s: list[float]
    """Per role change, scenario seconds that orders and news took beside draining and switching."""
    num_refused: int
    """Messages refused because a role had changed in between, and sent elsewhere."""
    num_ignored: int
    """Messages of dead incarnations and about requests that had ended."""
    toll: Toll
    num_calls: int
    cpu_s: float
