"""A run as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing show."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from cluster.step_log import StepRow
from metrics.records import FloatArray
from metrics.run import RunResult

Event = dict[str, Any]

_MAX_SAMPLES = 2000
"""Samples of an instance that are drawn; of more, every so many."""
_COUNTS = [StepRow._fields.index(name) for name in ("prefill_tokens", "decodes", "iterations")]


def render_timeline(result: RunResult, *, max_steps: int = 20_000) -> bytes:
    """JSON with a process per instance: role spans, steps as slices, queue, batch and KV use as counters, and
    role changes as instants. Only the first `max_steps` steps of the run are drawn; `otherData` says so.
    """
    starts = np.concatenate([np.empty(0), *(log[:, 0] for logs in result.step_logs for log in logs)])
    cut_s = float(np.partition(starts, max_steps)[max_steps]) if len(starts) > max_steps else np.inf
    events: list[Event] = []
    for index, name in enumerate(result.instance_names):
        events.append(_name("process_name", index, 0, name))
        events.append(_name("thread_name", index, 0, "role"))
        for number, log in enumerate(result.step_logs[index], start=1):
            events.append(_name("thread_name", index, number, f"micro-batch {number}"))
            events.extend(_steps(log[log[:, 0] < cut_s], index, number))
        events.extend(_counters(result.samples[index], result.kv_capacity_tokens[index], index))
    events.extend(_role_spans(result))
    events.extend(_role_changes(result))
    num_drawn = int((starts < cut_s).sum())
    notes: dict[str, Any] = {"steps": len(starts), "steps_drawn": num_drawn}
    if num_drawn < len(starts):
        notes["note"] = f"only the {num_drawn} steps that started before {cut_s:.6f} s are drawn"
        events.append(_instant("no steps are drawn from here on", 0, cut_s, "g", notes))
    return orjson.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": notes})


def _track(instance: int, thread: int = 0) -> Event:
    """Where an event is drawn: roles on thread 0 of an instance, the steps of its micro-batches from 1 on.

    Perfetto mixes up threads whose id is 0, or that of a process, with others.
    """
    return {"pid": instance + 1, "tid": 1000 * (instance + 1) + thread}


def _us(seconds: float) -> float:
    """Microseconds, on a grid of nanoseconds so that slices that touch do not overlap."""
    return round(seconds * 1e9) / 1e3


def _name(kind: str, instance: int, thread: int, name: str) -> Event:
    return {"name": kind, "ph": "M", **_track(instance, thread), "args": {"name": name}}


def _instant(name: str, instance: int, at_s: float, scope: str, args: dict[str, Any]) -> Event:
    return {"name": name, "ph": "i", "s": scope, **_track(instance), "ts": _us(at_s), "args": args}


def _steps(log: FloatArray, instance: int, thread: int) -> Iterator[Event]:
    track = _track(instance, thread)
    start_ns, end_ns = np.rint(log[:, :2].T * 1e9)
    times = zip((start_ns / 1e3).tolist(), ((end_ns - start_ns) / 1e3).tolist(), strict=True)
    for (start, duration), counts in zip(times, log[:, _COUNTS].astype(np.int64).tolist(), strict=True):
        prefill_tokens, decodes, iterations = counts
        yield {
            "name": ("mixed" if decodes else "prefill") if prefill_tokens else "decode",
            "ph": "X",
            **track,
            "ts": start,
            "dur": duration,
            "args": {"prefill_tokens": prefill_tokens, "decodes": decodes, "iterations": iterations},
        }


def _counters(samples: FloatArray, kv_capacity_tokens: int, instance: int) -> Iterator[Event]:
    """Where a counter changes: until then it is drawn as it was."""
    now_s, queued, waiting, decoding, used, _ = samples[:: max(1, len(samples) // _MAX_SAMPLES)].T
    process = _track(instance)["pid"]
    ts = np.rint(now_s * 1e9) / 1e3
    for name, series in (
        ("queued tokens", {"tokens": queued.astype(np.int64)}),
        ("requests", {"waiting": waiting.astype(np.int64), "decoding": decoding.astype(np.int64)}),
        ("KV use %", {"used": np.round(100 * used / kv_capacity_tokens, 2)}),
    ):
        changes = np.any([np.diff(values, prepend=-1) for values in series.values()], axis=0)
        columns = [values[changes].tolist() for values in series.values()]
        for at, *now in zip(ts[changes].tolist(), *columns, strict=True):
            args = dict(zip(series, now, strict=True))
            yield {"name": name, "ph": "C", "pid": process, "ts": at, "args": args}


def _role_spans(result: RunResult) -> Iterator[Event]:
    for span in result.role_spans:
        start = _us(span.start_s)
        yield {
            "name": span.role if span.phase == "serving" else f"{span.role}: {span.phase}",
            "ph": "X",
            **_track(span.instance),
            "ts": start,
            "dur": round(_us(span.end_s) - start, 3),
            "args": {"role": span.role, "phase": span.phase},
        }


def _role_changes(result: RunResult) -> Iterator[Event]:
    for change in result.role_changes:
        args = {"reason": change.reason, "drained_s": change.drained_s, "served_s": change.served_s}
        yield _instant(f"{change.old_role} to {change.new_role}", change.instance, change.decided_s, "p", args)
