"""What a run leaves behind, whichever driver made it: everything that result files are made from."""

from dataclasses import dataclass, field
from typing import Any

from metrics.records import FloatArray


@dataclass(frozen=True, slots=True)
class RoleSpan:
    """An instance in one role and phase (serving, draining, switching, down) for a while."""

    instance: int
    role: str
    phase: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A role change that was ordered; `served_s` is nan when it did not complete in the run."""

    instance: int
    old_role: str
    new_role: str
    reason: str
    decided_s: float
    drained_s: float
    served_s: float


@dataclass(frozen=True, slots=True)
class RunningCost:
    """What one instance, all its GPUs together, costs to run. Prices of 0 are unknown prices."""

    usd_per_hour: float
    prefill_w: float
    """Watts in a step with prompt tokens: bound by compute."""
    decode_w: float
    idle_w: float


@dataclass(slots=True)
class RunResult:
    """Times are scenario seconds (a live run at time_scale 2 reports the same clock as a simulated one)."""

    driver: str
    """simulate or replay."""
    scenario: dict[str, Any]
    """The scenario as run, as plain data."""
    num_requests: int
    """Requests of the workload; those without a record at the end are lost."""
    duration_s: float
    """Start of the run to the last step or transfer."""
    instance_names: list[str]
    num_gpus: int
    records: FloatArray
    """(requests, metrics.records.Column), one row per request that ended."""
    step_logs: list[list[FloatArray]]
    """Per instance and micro-batch, (steps, cluster.step_log.StepRow)."""
    extra_gaps_s: list[float]
    """Token gaps around preemptions, which no step row describes."""
    role_spans: list[RoleSpan]
    role_changes: list[RoleChange]
    samples: list[FloatArray]
    """Per instance, (samples, metrics.samples.SAMPLE_FIELDS)."""
    kv_capacity_tokens: list[int]
    kv_bytes_moved: int
    """Modelled bytes of all handoffs."""
    num_transfers: int
    starved_steps: int
    cpu_s: float
    wall_s: float
    num_migrations: int = 0
    """Requests that went on decoding at another instance, when theirs changed its role."""
    kv_bytes_migrated: int = 0
    running_costs: list[RunningCost] = field(default_factory=list)
    """Per instance."""
    planner_words: list[tuple[float, str]] = field(default_factory=list)
    """When the planner ticked, and why it did what it did, or did nothing."""
    notices: list[str] = field(default_factory=list)
    """Sentences a reader of the results must not miss."""
    live: dict[str, Any] = field(default_factory=dict)
    """What only a live run knows: lateness, send lag, real bytes, verification, Ray calls."""


def starved_notice(starved_steps: int) -> str:
    """What to tell about a budget that running decodes used up."""
    return (
        f"the token budget left no room for prompts beside the running decodes in {starved_steps} steps: "
        "raise engine.token_budget or lower engine.max_batch"
    )


def stopped_notice(at_s: float, num_ended: int, num_requests: int) -> str:
    """What to tell about a run that was stopped before its end."""
    return f"the run was stopped at {at_s:.1f} s: the results are those of {num_ended:,} of {num_requests:,} requests"
