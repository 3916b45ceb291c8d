"""Plotly figures as plain data: no plotly import, no colour that depends on the theme."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from metrics.records import FloatArray
from metrics.stats import Sample

Figure = dict[str, Any]

MAX_POINTS = 500

# Okabe and Ito's palette without yellow and black, which vanish on one of the two themes.
BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
GREY = "#8c8c8c"
ROLE_COLORS = {"prefill": ORANGE, "decode": BLUE, "mixed": GREEN}
"""Of roles, and of steps that do the same."""

_LINE_COLORS = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY)
_DASHES = ("solid", "dot", "dash", "dashdot")

CDF_Q = np.concatenate([np.linspace(0, 99, 399), np.linspace(99, 100, MAX_POINTS - 398)[1:]])
"""Percentages at which a distribution is drawn, closer in the tail."""


def figure(data: list[dict[str, Any]], x_title: str, y_title: str, **layout: Any) -> Figure:
    """Traces on two axes; a figure with a `height` takes a page's whole width. A legend where there is a choice."""
    xaxis = {"title": {"text": x_title}, **layout.pop("xaxis", {})}
    yaxis = {"title": {"text": y_title}, "rangemode": "tozero", **layout.pop("yaxis", {})}
    return {"data": data, "layout": {"xaxis": xaxis, "yaxis": yaxis, "showlegend": len(data) > 1, **layout}}


def rounded(values: FloatArray, decimals: int = 4) -> list[float]:
    return list(np.round(values, decimals).tolist())


def line(x: FloatArray, y: FloatArray, name: str, style: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "name": name, "x": rounded(x), "y": rounded(y), "line": style, **more}


def line_style(index: int) -> dict[str, Any]:
    """Colour and dash of line number `index` of several."""
    turn, place = divmod(index, len(_LINE_COLORS))
    return {"color": _LINE_COLORS[place], "dash": _DASHES[turn % len(_DASHES)], "width": 1.5}


def mark(at: float, *, axis: str) -> dict[str, Any]:
    """A dashed line across the plot at a value of the x or y axis, for a target."""
    if axis == "x":
        ends = {"xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1}
    else:
        ends = {"xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": at, "y1": at}
    return {"type": "line", **ends, "line": {"color": VERMILION, "dash": "dash", "width": 1.5}}


def cdf_points(sample_s: Sample) -> FloatArray | None:
    """Milliseconds at each of CDF_Q percent of a sample in seconds; None when it is empty."""
    if not sample_s.count:
        return None
    points = sample_s.rough_percentiles(CDF_Q)
    points[0], points[-1] = sample_s.min, sample_s.max
    return points * 1e3


def cdfs(points: Sequence[tuple[str, FloatArray]], *, target_ms: float | None = None) -> Figure:
    """Share of samples at or below a latency, a curve per name; the target as a dashed line."""
    curves = []
    for index, (name, x) in enumerate(points):
        label = f"{name}: " if len(points) > 1 else ""
        hover = f"{label}%{{y:.1f}} % within %{{x:,.4g}} ms<extra></extra>"
        curves.append(line(x, np.round(CDF_Q, 2), name, line_style(index), hovertemplate=hover))
    low, high = min(x[0] for _, x in points), max(x[-1] for _, x in points)
    log = {"type": "log", **_ticks(low, high)} if 0 < 10 * low < high else {}
    shapes = {} if target_ms is None else {"shapes": [mark(target_ms, axis="x")]}
    return figure(curves, "ms", "% of samples", xaxis=log, **shapes)


def _ticks(low: float, high: float) -> dict[str, Any]:
    """1, 2 and 5 of every decade of a log axis, or only 1 where that makes too many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if high > 200 * low else (1, 2, 5)
    values = [step * 10.0**decade for decade in decades for step in steps]
    return {"tickvals": values, "ticktext": [f"{value:,g}" for value in values]}


def gap_figure(gaps: Sequence[tuple[str, FloatArray, FloatArray]], *, height: int | None = 320) -> Figure | None:
    """Token gaps, as (name, when they ended in s, how long in ms), each drawn over the time it lasted."""
    lines = []
    for index, (name, end_s, gap_ms) in enumerate(gaps):
        style = {**line_style(index), "shape": "vh"}
        lines.append(line(end_s, gap_ms, name, style, hovertemplate="%{y:.1f} ms until %{x:.3f} s"))
    layout = {} if height is None else {"height": height}
    return figure(lines, "time, s", "longest token gap, ms", **layout) if any(len(one[1]) for one in gaps) else None
