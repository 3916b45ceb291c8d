"""A run as a story to watch, moment by moment: what the live page and `baton view` show, and story.json holds."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from cluster.role import Phase, Role
from metrics.latency import tpot_s, ttft_s
from metrics.records import FloatArray
from metrics.run import RoleChange
from metrics.slo import SloSpec, meets

SCHEMA = "baton.story/1"

PlainStory = dict[str, Any]
"""A story as JSON has it; its schema is SCHEMA."""

WINDOW_S = 5.0
"""How far back rates, shares and percentiles of a frame look."""


@dataclass(frozen=True, slots=True)
class InstanceFrame:
    """An instance at a moment. `phase` is one of cluster.role.Phase, or metrics.history.DOWN."""

    role: str
    phase: str = Phase.SERVING
    target: str = ""
    """The role a draining instance will take."""
    queued_tokens: int = 0
    num_waiting: int = 0
    num_decoding: int = 0
    kv_use: float = 0.0


@dataclass(frozen=True, slots=True)
class Flow:
    """KV that came in since the frame before."""

    source: int
    destination: int
    num_handoffs: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Frame:
    """The cluster at `time_s`. `values` are those of `recent` and `by_role`; `events` have come since the frame before."""

    time_s: float
    num_sent: int
    num_ended: int
    num_good: int
    values: dict[str, float | None]
    instances: list[InstanceFrame]
    flows: list[Flow]
    events: list[str]
    planner: str
    """Why the planner last acted, or did not."""

    def plain(self) -> dict[str, Any]:
        """For JSON: instances and flows as lists in the order of their fields."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        values = {name: None if value is None else round(value, 3) for name, value in self.values.items()}
        return told | {
            "time_s": round(self.time_s, 3),
            "values": values,
            "instances": [_values(one) for one in self.instances],
            "flows": [_values(one) for one in self.flows],
        }


def _values(one: InstanceFrame | Flow) -> list[Any]:
    """What dataclasses.astuple gives, without the deep copies."""
    return [getattr(one, name) for name in one.__slots__]


@dataclass(slots=True)
class Story:
    """What stays the same, and the frames in order of time: more come while a run goes on."""

    name: str
    driver: str
    seed: int
    policy: str
    """Of the planner."""
    instance_names: list[str]
    num_requests: int
    kv_bytes_per_token: float
    slo: SloSpec
    end_s: float | None
    """None while the run goes on."""
    frames: list[Frame] = field(default_factory=list)

    def plain(self) -> PlainStory:
        """For JSON."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return {"schema": SCHEMA} | told | {"slo": asdict(self.slo), "frames": [one.plain() for one in self.frames]}


def recent(
    records: FloatArray, slo: SloSpec, *, num_sent: int, kv_bytes: float, window_s: float
) -> dict[str, float | None]:
    """Rates per second, latencies in ms and GB/s of a window of time.

    records: requests that ended in it; num_sent: how many were sent in it; kv_bytes: what was handed over in it.
    """
    good = int(meets(records, slo).sum())
    ttft_p50, ttft_p90 = _percentiles_ms(ttft_s(records))
    tpot_p50, tpot_p90 = _percentiles_ms(tpot_s(records))
    return {
        "sent_rate": num_sent / window_s,
        "good_rate": good / window_s,
        "good_share": 100 * good / len(records) if len(records) else None,
        "ttft_p50": ttft_p50,
        "ttft_p90": ttft_p90,
        "tpot_p50": tpot_p50,
        "tpot_p90": tpot_p90,
        "kv_gb_s": kv_bytes / window_s / 1e9,
    }


def _percentiles_ms(seconds: FloatArray) -> tuple[float | None, float | None]:
    """The 50th and the 90th."""
    known = seconds[~np.isnan(seconds)]
    if not len(known):
        return None, None
    p50, p90 = 1e3 * np.percentile(known, (50, 90))
    return float(p50), float(p90)


def by_role(instances: Sequence[InstanceFrame]) -> dict[str, float | None]:
    """Mean queued prompt tokens and mean KV use in percent of the instances that serve each role."""
    values: dict[str, float | None] = {}
    for role in Role:
        serving = [one for one in instances if one.role == role and one.phase == Phase.SERVING]
        count = len(serving)
        values[f"queued_{role}"] = sum(one.queued_tokens for one in serving) / count if count else None
        values[f"kv_{role}"] = 100 * sum(one.kv_use for one in serving) / count if count else None
    return values


def flows_of(handoffs: Iterable[Sequence[int]]) -> list[Flow]:
    """Handoffs, as (source, destination, tokens), pair by pair."""
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for source, destination, tokens in handoffs:
        count, total = sums.get((source, destination), (0, 0))
        sums[source, destination] = count + 1, total + tokens
    return [Flow(*pair, *sums[pair]) for pair in sorted(sums)]


def change_in_words(change: RoleChange, names: Sequence[str]) -> str:
    return f"{change.decided_s:.1f} s: {names[change.instance]} becomes {change.new_role}: {change.reason}"
