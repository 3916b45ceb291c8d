"""What instances did when: roles as thin bars and, where they are few enough, steps by kind as thick ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.step_log import StepRow
from metrics.figure import GREY, ROLE_COLORS, Figure, figure
from metrics.records import FloatArray
from metrics.run import RoleSpan, RunResult

KINDS = ("prefill", "decode", "mixed")
MAX_STEPS = 3_000
"""Bars of steps that a run may have; of more steps, those that touch and are of a kind become one bar."""
MAX_ROWS = 40

_PREFILL, _DECODES = (StepRow._fields.index(name) for name in ("prefill_tokens", "decodes"))
_ROW_PX = 30


@dataclass(frozen=True, slots=True)
class Bars:
    """steps: (instance, micro-batch, number in KINDS, start, end) per bar; None when they are too many."""

    instance_names: list[str]
    spans: list[RoleSpan]
    steps: FloatArray | None

    @classmethod
    def of(cls, result: RunResult) -> "Bars":
        logs = [
            (instance, number, log) for instance, logs in enumerate(result.step_logs) for number, log in enumerate(logs)
        ]
        steps = _steps(logs, merge=sum(len(log) for _, _, log in logs) > MAX_STEPS)
        return cls(result.instance_names, result.role_spans, steps if len(steps) <= MAX_STEPS else None)


def _steps(logs: Sequence[tuple[int, int, FloatArray]], *, merge: bool) -> FloatArray:
    parts = [np.empty((0, 5))]
    for instance, number, log in logs:
        if not len(log):
            continue
        start, end = log[:, 0], log[:, 1]
        kind = np.where(log[:, _PREFILL] > 0, np.where(log[:, _DECODES] > 0, 2, 0), 1)
        first = np.ones(len(log), dtype=np.bool_)
        if merge:
            first[1:] = (kind[1:] != kind[:-1]) | (start[1:] - end[:-1] > 1e-6)
        begins = np.flatnonzero(first)
        ends = np.append(begins[1:], len(log)) - 1
        where = np.full(len(begins), float(instance)), np.full(len(begins), float(number))
        parts.append(np.column_stack([*where, kind[begins], start[begins], end[ends]]))
    return np.concatenate(parts)


def gantt(bars: Sequence[tuple[str, Bars]]) -> Figure | None:
    """A row per instance of every named run, on one axis of time; None when that makes too many rows.

    Where any run has too many steps to draw, only roles are drawn, of all of them.
    """
    labels = [f"{name} · {instance}" if name else instance for name, one in bars for instance in one.instance_names]
    if not 0 < len(labels) <= MAX_ROWS:
        return None
    traces: dict[tuple[str, int], dict[str, Any]] = {}

    def draw(kind: str, width: int, y: float, start_s: float, end_s: float) -> None:
        if (kind, width) not in traces:
            traces[kind, width] = _trace(kind, width)
        traces[kind, width]["x"] += [round(start_s, 6), round(end_s, 6), None]
        traces[kind, width]["y"] += [y, y, None]

    row = 0
    has_steps = all(one.steps is not None for _, one in bars)
    for _, one in bars:
        for span in one.spans:
            kind = span.role if span.phase == "serving" else "not serving"
            draw(
                kind,
                4 if has_steps else 16,
                row + span.instance + (0.36 if has_steps else 0.0),
                span.start_s,
                span.end_s,
            )
        for instance, lane, num_lanes, kind, start_s, end_s in _lanes(one) if has_steps else ():
            draw(kind, 14 // num_lanes, row + instance + 0.5 * ((lane + 0.5) / num_lanes - 0.5), start_s, end_s)
        row += len(one.instance_names)
    data = _one_legend_entry_a_kind(list(traces.values()))
    yaxis = {"range": [row - 0.4, -0.6], "tickvals": list(range(row)), "ticktext": labels, "zeroline": False}
    return figure(data, "time, s", "", yaxis=yaxis, height=80 + _ROW_PX * row, showlegend=True)


def _lanes(bars: Bars) -> Iterator[tuple[int, int, int, str, float, float]]:
    """Steps as (instance, micro-batch, micro-batches of that instance, kind, start, end)."""
    if bars.steps is None:
        return
    steps = bars.steps.tolist()
    depth = {
        instance: 1 + max(int(one[1]) for one in steps if one[0] == instance) for instance in {s[0] for s in steps}
    }
    for instance, number, kind, start_s, end_s in steps:
        yield int(instance), int(number), depth[instance], KINDS[int(kind)], start_s, end_s


def _trace(kind: str, width: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": kind,
        "legendgroup": kind,
        "x": [],
        "y": [],
        "line": {"color": ROLE_COLORS.get(kind, GREY), "width": width, "simplify": False},
        "hovertemplate": f"{kind} %{{x:.4f}} s<extra></extra>",
    }


def _one_legend_entry_a_kind(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    seen: set[str] = set()
    for trace in sorted(traces, key=lambda one: -one["line"]["width"]):
        trace["showlegend"] = trace["name"] not in seen
        seen.add(trace["name"])
    return traces
