"""A run in one dictionary of plain values: what summary.json holds and every table shows."""

from dataclasses import asdict, replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from math import isnan
from typing import Any

import numpy as np

from cluster.request import Status
from cluster.role import Role
from metrics.cost import cost_of
from metrics.latency import e2e_s, itl, max_gap_per_request, tpot_s, ttft_parts_s, ttft_s, ttst_parts_s, ttst_s
from metrics.records import Column, FloatArray
from metrics.run import RoleChange, RunResult
from metrics.samples import SAMPLE_FIELDS
from metrics.slo import SloSpec, meets
from metrics.stats import Sample, Stats, milliseconds
from metrics.utilisation import busy_s

SCHEMA = "baton.summary/1"

Summary = dict[str, Any]

_KV_USED = SAMPLE_FIELDS.index("kv_used_tokens")


def summarize(result: RunResult, slo: SloSpec, gaps: Sample | None = None) -> Summary:
    """Statistics of a run, JSON-able; what has no sample is None.

    gaps: metrics.latency.itl of `result`, where the caller has it already.

    Latencies are in milliseconds. Rates are per second of `duration_s` and count finished requests (good
    ones for goodput). Attainment is the share of good requests among all that were sent, the lost included.
    Fields that `vllm bench serve` also writes have its names and sense: `completed` are the finished
    requests, `failed` all others, tokens those of finished requests.
    """
    records = result.records
    status = records[:, Column.STATUS]
    finished = status == Status.FINISHED
    completed = int(finished.sum())
    total_input = int(records[finished, Column.PROMPT_TOKENS].sum())
    total_output = int(records[finished, Column.GENERATED_TOKENS].sum())
    good = int(meets(records, slo).sum())
    duration = result.duration_s
    goodput = _ratio(good, duration)
    latencies = {
        "ttft": Stats.of(ttft_s(records) * 1e3),
        "tpot": Stats.of(tpot_s(records) * 1e3),
        "itl": milliseconds((gaps or itl(result)).stats()),
        "e2e": Stats.of(e2e_s(records) * 1e3),
        "ttst": Stats.of(ttst_s(records) * 1e3),
        "max_itl": Stats.of(max_gap_per_request(result) * 1e3),
    }
    return {
        "schema": SCHEMA,
        "driver": result.driver,
        "name": result.scenario.get("name"),
        "seed": result.scenario.get("seed"),
        "version": baton_version(),
        "requests_sha256": _digest(records),
        "requests": {
            "total": result.num_requests,
            **{
                kind.name.lower(): int((status == kind).sum())
                for kind in (Status.FINISHED, Status.REJECTED, Status.ABORTED, Status.FAILED)
            },
            "lost": result.num_requests - len(records),
            "zero_output": int((finished & (records[:, Column.OUTPUT_TOKENS] == 0)).sum()),
            "good": good,
        },
        "duration_s": duration,
        "num_gpus": result.num_gpus,
        "slo": asdict(slo),
        "attainment": _ratio(good, result.num_requests),
        "attainment_by_slo": _attainment_by_slo(result, slo),
        "request_goodput": goodput,
        "goodput_per_gpu": _ratio(goodput, result.num_gpus),
        "request_throughput": _ratio(completed, duration),
        "output_throughput": _ratio(total_output, duration),
        "total_token_throughput": _ratio(total_input + total_output, duration),
        **{f"{name}_ms": _rounded(stats) for name, stats in latencies.items()},
        "ttft_parts_ms": _parts(ttft_parts_s(records)),
        "ttst_parts_ms": _parts(_of_everybody(ttst_parts_s(records), ttst_s(records))),
        "num_role_changes": sum(not isnan(change.served_s) for change in result.role_changes),
        "role_changes": [_role_change(change, result.instance_names) for change in result.role_changes],
        "kv_bytes_moved": result.kv_bytes_moved,
        "num_transfers": result.num_transfers,
        "num_migrations": result.num_migrations,
        "kv_bytes_migrated": result.kv_bytes_migrated,
        "num_preemptions": int(records[:, Column.NUM_PREEMPTIONS].sum()),
        "starved_steps": result.starved_steps,
        **cost_of(result, completed),
        "instances": _instances(result),
        "router_spread": {
            "prefill": _spread(result, Column.PREFILL_INSTANCE, Role.PREFILL),
            "decode": _spread(result, Column.DECODE_INSTANCE, Role.DECODE),
        },
        "cpu_s": result.cpu_s,
        "wall_s": result.wall_s,
        "requests_per_cpu_s": _ratio(result.num_requests, result.cpu_s),
        "notices": result.notices,
        "live": result.live or None,
        "duration": duration,
        "completed": completed,
        "failed": result.num_requests - completed,
        "total_input_tokens": total_input,
        "total_output_tokens": total_output,
        **_vllm_latencies(latencies),
    }


def baton_version() -> str:
    """Version of the installed package, or "unknown" when it runs from a checkout that is not installed."""
    try:
        return version("baton-pd")
    except PackageNotFoundError:
        return "unknown"


def _digest(records: FloatArray) -> str:
    """The same for runs that were sent the same requests: over arrivals, to the microsecond, and lengths asked for."""
    asked = records[:, [Column.ARRIVAL_S, Column.PROMPT_TOKENS, Column.OUTPUT_TOKENS]] * [1e6, 1, 1]
    return sha256(np.rint(asked).astype("<i8").tobytes()).hexdigest()


def _ratio(amount: float | None, base: float) -> float | None:
    return amount / base if amount is not None and base > 0 else None


def _rounded(stats: Stats) -> dict[str, Any]:
    """To a nanosecond, where clock times stop meaning anything."""
    return {name: None if value is None else round(value, 6) for name, value in asdict(stats).items()}


def _of_everybody(parts: dict[str, FloatArray], whole: FloatArray) -> dict[str, FloatArray]:
    """Parts that some requests do not have are 0 for those, so that the means of the parts add up to that of the whole."""
    return {
        name: values if np.isnan(values).all() else np.where(np.isnan(values) & ~np.isnan(whole), 0.0, values)
        for name, values in parts.items()
    }


def _parts(parts: dict[str, FloatArray]) -> dict[str, Any]:
    return {name: _rounded(Stats.of(values * 1e3)) for name, values in parts.items()}


def _vllm_latencies(latencies: dict[str, Stats]) -> dict[str, float | None]:
    fields = {}
    for name, key in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2el", "e2e")):
        stats = _rounded(latencies[key])
        for label, field in (("mean", "mean"), ("median", "p50"), ("std", "std"), ("p99", "p99")):
            fields[f"{label}_{name}_ms"] = stats[field]
    return fields


def _attainment_by_slo(result: RunResult, slo: SloSpec) -> dict[str, float | None]:
    none = SloSpec(attainment=slo.attainment)
    return {
        name: None
        if getattr(slo, f"{name}_ms") is None
        else _ratio(
            int(meets(result.records, replace(none, **{f"{name}_ms": getattr(slo, f"{name}_ms")})).sum()),
            result.num_requests,
        )
        for name in ("ttft", "tpot", "e2e")
    }


def _role_change(change: RoleChange, names: list[str]) -> dict[str, Any]:
    return {
        "instance": names[change.instance],
        "old_role": change.old_role,
        "new_role": change.new_role,
        "reason": change.reason,
        "decided_s": change.decided_s,
        "drain_s": _known(change.drained_s - change.decided_s),
        "switch_s": _known(change.served_s - change.drained_s),
        "served_s": _known(change.served_s),
    }


def _known(value: float) -> float | None:
    return None if isnan(value) else value


def _instances(result: RunResult) -> list[dict[str, Any]]:
    records = result.records
    return [
        {
            "name": name,
            "roles": list(dict.fromkeys(span.role for span in result.role_spans if span.instance == index)),
            "busy_share": _ratio(busy_s(result.step_logs[index]), result.duration_s),
            "prefill_requests": int((records[:, Column.PREFILL_INSTANCE] == index).sum()),
            "decode_requests": int((records[:, Column.DECODE_INSTANCE] == index).sum()),
            "max_kv_use": _ratio(
                float(result.samples[index][:, _KV_USED].max(initial=0)), result.kv_capacity_tokens[index]
            ),
        }
        for index, name in enumerate(result.instance_names)
    ]


def _spread(result: RunResult, column: Column, role: Role) -> dict[str, float | None]:
    """How unevenly requests went to the instances that had the role at some time."""
    held = sorted({span.instance for span in result.role_spans if span.role in (role, Role.MIXED)})
    chosen = result.records[:, column]
    counts = np.array([(chosen == index).sum() for index in held], dtype=np.float64)
    if not counts.sum():
        return {"max_minus_min": None, "cv": None}
    return {"max_minus_min": int(counts.max() - counts.min()), "cv": float(counts.std() / counts.mean())}
