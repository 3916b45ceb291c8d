"""The plots of a run's report."""

from typing import Any

import numpy as np

from metrics.curves import E2E, ITL, TPOT, TTFT, Curves
from metrics.facts import PARTS
from metrics.figure import (
    BLUE,
    GREY,
    MAX_POINTS,
    ORANGE,
    PINK,
    ROLE_COLORS,
    SKY,
    VERMILION,
    Figure,
    cdf_points,
    cdfs,
    figure,
    gap_figure,
    line,
    line_style,
    mark,
    rounded,
)
from metrics.gaps import longest_gaps
from metrics.latency import ttst_parts_s
from metrics.records import FloatArray
from metrics.run import RunResult
from metrics.samples import SAMPLE_FIELDS
from metrics.slo import SloSpec
from metrics.stats import Sample
from metrics.windows import Windows

NUM_WINDOWS = 60
NUM_GAPS = 1_000

_PART_COLORS = {
    "queue": SKY,
    "prefill": ORANGE,
    "room": VERMILION,
    "transfer": PINK,
    "decode_wait": SKY,
    "first_decode_step": BLUE,
}
_PHASE_PATTERNS = {"serving": "", "draining": "/", "switching": "x"}
_MAX_LINES = 8


def figures(result: RunResult, slo: SloSpec, curves: Curves) -> dict[str, Figure]:
    """Title and figure of every plot that has data; curves: those of `result`."""
    records = result.records
    plots: dict[str, Figure | None] = {}
    if len(records):
        windows = Windows.of(records, slo, num_windows=min(NUM_WINDOWS, len(records)))
        plots["Requests sent and good"] = _rates(windows)
        plots["Attainment"] = _attainment(windows, slo)
        plots["Where TTFT goes"] = _parts(windows, windows.ttft_parts_s)
    plots["Roles"] = _roles(result)
    plots["Queued prompt tokens"] = _samples(result, "queued_tokens", "tokens")
    plots["Decoding requests"] = _samples(result, "num_decoding", "requests")
    plots["KV in use"] = _samples(result, "kv_used_tokens", "% of capacity")
    end_s, gap_s = longest_gaps(result, NUM_GAPS)
    plots["Token gaps over time"] = gap_figure([("longest", end_s, 1e3 * gap_s)], height=None)
    if len(records):
        plots["Where the second token waits"] = _parts(windows, windows.ttst_parts_s)
    plots["KV transfer"] = _cdf(cdf_points(Sample.of(ttst_parts_s(records)["transfer"])), None)
    for title, target_ms in ((ITL, None), (TTFT, slo.ttft_ms), (TPOT, slo.tpot_ms), (E2E, slo.e2e_ms)):
        plots[title] = _cdf(curves.cdfs_ms.get(title), target_ms)
    return {title: plot for title, plot in plots.items() if plot is not None}


def _cdf(points: FloatArray | None, target_ms: float | None) -> Figure | None:
    return None if points is None else cdfs([("", points)], target_ms=target_ms)


def _rates(windows: Windows) -> Figure:
    sent = line(windows.middle_s, windows.sent_rate, "sent", {"color": GREY, "dash": "dot"})
    good = line(windows.middle_s, windows.good_rate, "good", {"color": BLUE}, fill="tozeroy")
    return figure([sent, good], "time of arrival, s", "req/s")


def _attainment(windows: Windows, slo: SloSpec) -> Figure:
    share = line(windows.middle_s, 100 * windows.attainment, "good", {"color": BLUE})
    target = mark(100 * slo.attainment, axis="y")
    return figure([share], "time of arrival, s", "% good", yaxis={"range": [0, 102]}, shapes=[target])


def _parts(windows: Windows, parts: dict[str, FloatArray]) -> Figure | None:
    layers = [
        line(windows.middle_s, 1e3 * mean, PARTS[name], {"color": _PART_COLORS[name], "width": 0.5}, stackgroup="parts")
        for name, mean in parts.items()
        if np.nansum(mean) > 0
    ]
    return figure(layers, "time of arrival, s", "mean, ms") if layers else None


def _samples(result: RunResult, field: str, unit: str) -> Figure | None:
    """One line per instance (the peak of each bin of samples); a heat map where lines would be too many."""
    column = SAMPLE_FIELDS.index(field)
    series = []
    for samples, capacity in zip(result.samples, result.kv_capacity_tokens, strict=True):
        bins = np.arange(0, len(samples), -(-len(samples) // MAX_POINTS) or 1)
        peaks = np.maximum.reduceat(samples[:, column], bins) if len(bins) else samples[:, column]
        series.append((samples[bins, 0], peaks * (100 / capacity if field == "kv_used_tokens" else 1)))
    if not any(values.any() for _, values in series):
        return None
    names = result.instance_names
    if len(series) > _MAX_LINES:
        rows = [rounded(values, 2) for _, values in series]
        heat: dict[str, Any] = {
            "type": "heatmap",
            "x": rounded(series[0][0]),
            "y": names,
            "z": rows,
            "colorscale": "Cividis",
        }
        heat["colorbar"] = {"title": {"text": unit, "side": "right"}, "thickness": 12}
        height = {"height": 90 + 14 * len(names), "yaxis": {"autorange": "reversed"}}
        return figure([heat], "time, s", "", **height)
    lines = [
        line(x, y, name, line_style(index)) for index, (name, (x, y)) in enumerate(zip(names, series, strict=True))
    ]
    return figure(lines, "time, s", unit)


def role_bar(role: str, phase: str) -> dict[str, Any]:
    """A trace of bars for spans of a role and phase, still without any."""
    marker = {
        "color": ROLE_COLORS.get(role, GREY) if phase in _PHASE_PATTERNS else GREY,
        "pattern": {"shape": _PHASE_PATTERNS.get(phase, "."), "size": 6},
    }
    return {
        "type": "bar",
        "orientation": "h",
        "name": role if phase == "serving" else f"{role}, {phase}",
        "marker": marker,
        "hovertemplate": "%{y}: %{base:.2f} s, for %{x:.2f} s",
    }


def _roles(result: RunResult) -> Figure | None:
    """A bar per instance and span: colour is the role, hatching a change under way."""
    bars: dict[tuple[str, str], dict[str, Any]] = {}
    for span in result.role_spans:
        if (span.role, span.phase) not in bars:
            bars[span.role, span.phase] = role_bar(span.role, span.phase) | {"x": [], "base": [], "y": []}
        bar = bars[span.role, span.phase]
        bar["base"].append(round(span.start_s, 4))
        bar["x"].append(round(span.end_s - span.start_s, 4))
        bar["y"].append(result.instance_names[span.instance])
    if not bars:
        return None
    names = result.instance_names
    yaxis = {"autorange": "reversed", "categoryorder": "array", "categoryarray": names, "type": "category"}
    layout = {"barmode": "overlay", "bargap": 0.25, "height": 80 + 26 * len(names), "showlegend": True}
    xaxis = {"range": [0, round(result.duration_s, 4)]}
    return figure(list(bars.values()), "time, s", "", xaxis=xaxis, yaxis=yaxis, **layout)
