"""The plots of a report as Plotly figures, built by hand: no plotly import, no colour that depends on the theme."""

from typing import Any

import numpy as np

from metrics.facts import PARTS
from metrics.latency import e2e_s, itl, tpot_s, ttft_s, ttst_parts_s
from metrics.records import FloatArray
from metrics.run import RunResult
from metrics.samples import SAMPLE_FIELDS
from metrics.slo import SloSpec
from metrics.stats import Sample
from metrics.windows import Windows

Figure = dict[str, Any]

MAX_POINTS = 500
NUM_WINDOWS = 60

# Okabe and Ito's palette without yellow and black, which vanish on one of the two themes.
BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
_LINES = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY)
_GREY = "#8c8c8c"
_ROLE_COLORS = {"prefill": ORANGE, "decode": BLUE, "mixed": GREEN}
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

_CDF_Q = np.concatenate([np.linspace(0, 99, 399), np.linspace(99, 100, MAX_POINTS - 398)[1:]])


def figures(result: RunResult, slo: SloSpec) -> dict[str, Figure]:
    """Title and figure of every plot that has data."""
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
    if len(records):
        plots["Where the second token waits"] = _parts(windows, windows.ttst_parts_s)
    plots["KV transfer"] = _cdf(Sample.of(ttst_parts_s(records)["transfer"]), None)
    plots["Inter-token latency"] = _cdf(itl(result), None)
    plots["Time to first token"] = _cdf(Sample.of(ttft_s(records)), slo.ttft_ms)
    plots["Time per output token"] = _cdf(Sample.of(tpot_s(records)), slo.tpot_ms)
    plots["End-to-end latency"] = _cdf(Sample.of(e2e_s(records)), slo.e2e_ms)
    return {title: figure for title, figure in plots.items() if figure is not None}


def _figure(data: list[dict[str, Any]], x_title: str, y_title: str, **layout: Any) -> Figure:
    xaxis = {"title": {"text": x_title}, **layout.pop("xaxis", {})}
    yaxis = {"title": {"text": y_title}, "rangemode": "tozero", **layout.pop("yaxis", {})}
    return {"data": data, "layout": {"xaxis": xaxis, "yaxis": yaxis, "showlegend": len(data) > 1, **layout}}


def _round(values: FloatArray, decimals: int = 4) -> list[float]:
    return list(np.round(values, decimals).tolist())


def _cdf(sample_s: Sample, target_ms: float | None) -> Figure | None:
    """Share of samples at or below a latency; the target as a dashed line."""
    if not sample_s.count:
        return None
    x = sample_s.rough_percentiles(_CDF_Q) * 1e3
    x[0], x[-1] = sample_s.min * 1e3, sample_s.max * 1e3
    curve = {"type": "scatter", "mode": "lines", "x": _round(x), "y": _round(_CDF_Q, 2), "line": {"color": BLUE}}
    curve["hovertemplate"] = "%{y:.1f} % within %{x:,.4g} ms<extra></extra>"
    is_wide = x[0] > 0 and x[-1] > 10 * x[0]
    ticks = 1 if x[-1] > 200 * x[0] else "D2"
    figure = _figure([curve], "ms", "% of samples", xaxis={"type": "log", "dtick": ticks} if is_wide else {})
    if target_ms is not None:
        line = {"type": "line", "xref": "x", "yref": "paper", "x0": target_ms, "x1": target_ms, "y0": 0, "y1": 1}
        figure["layout"]["shapes"] = [{**line, "line": {"color": VERMILION, "dash": "dash", "width": 1.5}}]
    return figure


def _line(x: FloatArray, y: FloatArray, name: str, color: str, **more: Any) -> dict[str, Any]:
    line = {"color": color, **more.pop("line", {})}
    return {"type": "scatter", "mode": "lines", "name": name, "x": _round(x), "y": _round(y), "line": line, **more}


def _rates(windows: Windows) -> Figure:
    sent = _line(windows.middle_s, windows.sent_rate, "sent", _GREY, line={"dash": "dot"})
    good = _line(windows.middle_s, windows.good_rate, "good", BLUE, fill="tozeroy")
    return _figure([sent, good], "time of arrival, s", "req/s")


def _attainment(windows: Windows, slo: SloSpec) -> Figure:
    share = _line(windows.middle_s, 100 * windows.attainment, "good", BLUE)
    figure = _figure([share], "time of arrival, s", "% good", yaxis={"range": [0, 102]})
    target = 100 * slo.attainment
    line = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": target, "y1": target}
    figure["layout"]["shapes"] = [{**line, "line": {"color": VERMILION, "dash": "dash", "width": 1.5}}]
    return figure


def _parts(windows: Windows, parts: dict[str, FloatArray]) -> Figure | None:
    layers = [
        _line(windows.middle_s, 1e3 * mean, PARTS[name], _PART_COLORS[name], stackgroup="parts", line={"width": 0.5})
        for name, mean in parts.items()
        if np.nansum(mean) > 0
    ]
    return _figure(layers, "time of arrival, s", "mean, ms") if layers else None


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
        rows = [_round(values, 2) for _, values in series]
        heat: dict[str, Any] = {
            "type": "heatmap",
            "x": _round(series[0][0]),
            "y": names,
            "z": rows,
            "colorscale": "Cividis",
        }
        heat["colorbar"] = {"title": {"text": unit, "side": "right"}, "thickness": 12}
        height = {"height": 90 + 14 * len(names), "yaxis": {"autorange": "reversed"}}
        return _figure([heat], "time, s", "", **height)
    lines = [
        _line(
            x,
            y,
            name,
            _LINES[index % len(_LINES)],
            line={"dash": "dot" if index >= len(_LINES) else "solid", "width": 1.5},
        )
        for index, (name, (x, y)) in enumerate(zip(names, series, strict=True))
    ]
    return _figure(lines, "time, s", unit)


def _roles(result: RunResult) -> Figure | None:
    """A bar per instance and span: colour is the role, hatching a change under way."""
    bars: dict[tuple[str, str], dict[str, Any]] = {}
    for span in result.role_spans:
        if (span.role, span.phase) not in bars:
            marker = {
                "color": _ROLE_COLORS.get(span.role, _GREY) if span.phase in _PHASE_PATTERNS else _GREY,
                "pattern": {"shape": _PHASE_PATTERNS.get(span.phase, "."), "size": 6},
            }
            bars[span.role, span.phase] = {
                "type": "bar",
                "orientation": "h",
                "name": span.role if span.phase == "serving" else f"{span.role}, {span.phase}",
                "x": [],
                "base": [],
                "y": [],
                "marker": marker,
                "hovertemplate": "%{y}: %{base:.2f} s, for %{x:.2f} s",
            }
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
    return _figure(list(bars.values()), "time, s", "", xaxis=xaxis, yaxis=yaxis, **layout)
