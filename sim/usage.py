"""What a run made of its instances while requests arrived: how busy, how full, and what requests waited for."""

from dataclasses import dataclass

import numpy as np

from cluster.step_log import StepRow
from metrics.latency import ttft_parts_s, ttst_parts_s
from metrics.records import Column, FloatArray
from metrics.run import RunResult
from metrics.samples import SAMPLE_FIELDS
from metrics.slo import SloSpec, meets
from metrics.utilisation import busy_s
from sim.sustain import each_target

_START, _END = StepRow._fields.index("start_s"), StepRow._fields.index("end_s")
_ITERATIONS, _DECODES = StepRow._fields.index("iterations"), StepRow._fields.index("decodes")
_PREFILL_TOKENS = StepRow._fields.index("prefill_tokens")
_HANDOFF_PARTS = {"room": "room", "transfer": "transfer", "seat": "decode_wait"}
_NOW, _KV_USED = SAMPLE_FIELDS.index("now_s"), SAMPLE_FIELDS.index("kv_used_tokens")


@dataclass(frozen=True, slots=True)
class RoleUsage:
    """Means over the instances that started in one role."""

    busy: float
    """Share of the time in which a step ran."""
    kv_use: float
    """Share of the KV pool set aside."""
    batch: float
    """Sequences per decode iteration."""
    decode_step_s: float
    """A decode iteration without prompt tokens."""
    prompt_share: float
    """Of busy time, the share of steps with prompt tokens."""


Parts = dict[str, float]
"""Mean seconds by part of a request's stay, 0 where nobody has it: queue, prefill, room (waiting for KV memory at
decode), transfer, seat (waiting to join the batch) and steps (all later ones)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """`roles` by name."""

    roles: dict[str, RoleUsage]
    parts_s: Parts
    per_token_s: Parts
    """Each part divided by the tokens after the first, as in TPOT."""
    missed_s: dict[str, Parts]
    """Per SLO that was given, the parts of those who missed it; per token for TPOT."""
    growth_s: Parts
    """How much longer the parts of the last third of the requests are than those of the third before."""

    @classmethod
    def of(cls, result: RunResult, slo: SloSpec) -> "Usage":
        """Of the time up to the last arrival; what comes after is only the rest being finished."""
        records = result.records
        end_s = float(records[-1, Column.ARRIVAL_S]) if len(records) else 0.0
        start_roles = [role for role, count in result.scenario["instances"].items() for _ in range(count)]
        roles = {
            role: _role_usage(result, [at for at, other in enumerate(start_roles) if other == role], end_s)
            for role in dict.fromkeys(start_roles)
        }
        third = len(records) // 3
        middle, last = _parts(records[third : 2 * third]), _parts(records[2 * third :])
        return cls(
            roles=roles,
            parts_s=_parts(records),
            per_token_s=_parts(records, is_per_token=True),
            missed_s={
                name: _parts(records[~meets(records, only)], is_per_token=name == "TPOT")
                for name, only in each_target(slo).items()
            },
            growth_s={part: last[part] - middle[part] for part in last},
        )


def _parts(records: FloatArray, *, is_per_token: bool = False) -> Parts:
    to_first, to_second = ttft_parts_s(records), ttst_parts_s(records)
    parts = to_first | {name: np.nan_to_num(to_second[part]) for name, part in _HANDOFF_PARTS.items()}
    after_first_s = records[:, Column.FINISHED_S] - records[:, Column.FIRST_TOKEN_S]
    parts["steps"] = after_first_s - sum(parts[name] for name in _HANDOFF_PARTS)
    tokens = np.maximum(records[:, Column.OUTPUT_TOKENS] - 1, 1) if is_per_token else 1.0
    return {name: _mean(values / tokens) for name, values in parts.items()}


def _role_usage(result: RunResult, instances: list[int], end_s: float) -> RoleUsage:
    logs = [[log[log[:, _START] < end_s] for log in result.step_logs[index]] for index in instances]
    steps = np.concatenate([log for own in logs for log in own] or [np.empty((0, len(StepRow._fields)))])
    length_s = steps[:, _END] - steps[:, _START]
    decodes, has_prompt = steps[:, _DECODES] > 0, steps[:, _PREFILL_TOKENS] > 0
    pure = decodes & ~has_prompt
    samples = [result.samples[index] for index in instances]
    kv_use = [
        _mean(rows[rows[:, _NOW] <= end_s, _KV_USED]) / result.kv_capacity_tokens[index]
        for index, rows in zip(instances, samples, strict=True)
    ]
    return RoleUsage(
        busy=min(_ratio(sum(map(busy_s, logs)), len(instances) * end_s), 1.0),
        kv_use=float(np.mean(kv_use)),
        batch=_ratio((steps[:, _DECODES] * steps[:, _ITERATIONS])[decodes].sum(), steps[decodes, _ITERATIONS].sum()),
        decode_step_s=_ratio(length_s[pure].sum(), steps[pure, _ITERATIONS].sum()),
        prompt_share=_ratio(length_s[has_prompt].sum(), length_s.sum()),
    )


def _mean(values: FloatArray) -> float:
    present = values[~np.isnan(values)]
    return float(present.mean()) if len(present) else 0.0


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
