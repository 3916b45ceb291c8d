"""What a run made of its instances while requests arrived: how busy, how full, and what requests waited for."""

from dataclasses import dataclass

import numpy as np

from cluster.step_log import StepRow
from metrics.latency import ttft_parts_s, ttst_parts_s
from metrics.records import Column, FloatArray
from metrics.run import RunResult
from metrics.samples import SAMPLE_FIELDS
from metrics.utilisation import busy_s

_START, _END = StepRow._fields.index("start_s"), StepRow._fields.index("end_s")
_ITERATIONS, _DECODES = StepRow._fields.index("iterations"), StepRow._fields.index("decodes")
_PREFILL_TOKENS = StepRow._fields.index("prefill_tokens")
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


@dataclass(frozen=True, slots=True)
class Usage:
    """`roles` by name; the waits are means per request, in seconds, 0 where nobody had them."""

    roles: dict[str, RoleUsage]
    queue_s: float
    prefill_s: float
    room_s: float
    """For KV room at decode."""
    transfer_s: float
    decode_s: float
    """First to last token."""

    @classmethod
    def of(cls, result: RunResult) -> "Usage":
        """Of the time up to the last arrival; what comes after is only the rest being finished."""
        records = result.records
        end_s = float(records[-1, Column.ARRIVAL_S]) if len(records) else 0.0
        start_roles = [role for role, count in result.scenario["instances"].items() for _ in range(count)]
        roles = {
            role: _role_usage(result, [at for at, other in enumerate(start_roles) if other == role], end_s)
            for role in dict.fromkeys(start_roles)
        }
        ttft, ttst = ttft_parts_s(records), ttst_parts_s(records)
        return cls(
            roles=roles,
            queue_s=_mean(ttft["queue"]),
            prefill_s=_mean(ttft["prefill"]),
            room_s=_mean(ttst["room"]),
            transfer_s=_mean(ttst["transfer"]),
            decode_s=_mean(records[:, Column.FINISHED_S] - records[:, Column.FIRST_TOKEN_S]),
        )


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
        busy=_ratio(sum(map(busy_s, logs)), len(instances) * end_s),
        kv_use=float(np.mean(kv_use)),
        batch=_ratio((steps[:, _DECODES] * steps[:, _ITERATIONS])[decodes].sum(), steps[decodes, _ITERATIONS].sum()),
        decode_step_s=_ratio(length_s[pure].sum(), steps[pure, _ITERATIONS].sum()),
        prompt_share=_ratio(length_s[has_prompt].sum(), length_s.sum()),
    )


def _mean(values: FloatArray) -> float:
    present = values[~np.isnan(values)]
    return float(present.mean()) if len(present) else 0.0


def _ratio(part: float, whole: float) -> float:
    return float(min(part / whole, 1e9)) if whole else 0.0
