"""A figure of lines or bars as a PNG image, for where a page cannot go; needs matplotlib, which Baton does without."""

from importlib.util import find_spec
from io import BytesIO
from typing import Any

from cluster.errors import ConfigError
from metrics.figure import Figure

_DASHES = {"solid": "-", "dot": ":", "dash": "--", "dashdot": "-."}
_WIDTH_IN, _HEIGHT_IN, _LEGEND_IN, _DPI = 8.0, 4.0, 0.3, 150
_PX_PER_IN, _PT_PER_IN = 96, 72


def check_png() -> None:
    """Raises ConfigError when there is no matplotlib."""
    if find_spec("matplotlib") is None:
        raise ConfigError("plots as PNG need matplotlib, which is not installed; pip install matplotlib, or drop --png")


def render_png(title: str, figure: Figure) -> bytes:
    """Lines, markers, grouped bars, log axes and named ticks as they are in `figure`."""
    from matplotlib.figure import Figure as Canvas

    layout = figure["layout"]
    height_in = layout["height"] / _PX_PER_IN + _LEGEND_IN if "height" in layout else _HEIGHT_IN
    canvas = Canvas(figsize=(_WIDTH_IN, height_in), layout="constrained")
    axes = canvas.add_subplot()
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    for number, trace in enumerate(bars):
        _draw_bars(axes, trace, number, len(bars))
    for trace in figure["data"]:
        if trace["type"] != "bar":
            _draw(axes, trace)
    for name in ("x", "y"):
        _settle(axes, name, layout[f"{name}axis"])
    axes.set_title(title, loc="left", fontsize="medium")
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if layout["showlegend"]:
        canvas.legend(loc="outside lower left", ncols=4, frameon=False, fontsize="small")
    image = BytesIO()
    canvas.savefig(image, format="png", dpi=_DPI, metadata={"Software": None})
    return image.getvalue()


def _draw(axes: Any, trace: dict[str, Any]) -> None:
    style = trace["line"]
    axes.plot(
        [float("nan") if x is None else x for x in trace["x"]],
        [float("nan") if y is None else y for y in trace["y"]],
        color=style["color"],
        linestyle=_DASHES[style.get("dash", "solid")],
        linewidth=style.get("width", 1.5) * _PT_PER_IN / _PX_PER_IN,
        marker="o" if "markers" in trace["mode"] else None,
        markersize=4,
        drawstyle="steps-pre" if style.get("shape") == "vh" else "default",
        solid_capstyle="butt",
        label=trace["name"] if trace.get("showlegend", True) else None,
    )


def _draw_bars(axes: Any, trace: dict[str, Any], number: int, of: int) -> None:
    """The bars of one name, side by side with those of the other names over each category."""
    width = 0.8 / of
    places = range(len(trace["x"]))
    left = [place + (number - (of - 1) / 2) * width for place in places]
    axes.bar(left, trace["y"], width, color=trace["marker"]["color"], label=trace["name"])
    axes.set_xticks(list(places), labels=[label.replace(", ", ",\n") for label in trace["x"]])


def _settle(axes: Any, name: str, layout: dict[str, Any]) -> None:
    """Label, scale, ticks and range of the x or y axis."""
    getattr(axes, f"set_{name}label")(layout["title"]["text"])
    is_log = layout.get("type") == "log"
    if is_log:
        getattr(axes, f"set_{name}scale")("log")
        getattr(axes, f"{name}axis").set_major_formatter("{x:g}")
    if "tickvals" in layout:
        getattr(axes, f"set_{name}ticks")(layout["tickvals"], labels=layout["ticktext"])
        getattr(axes, f"set_{name}ticks")([], minor=True)
    if "range" in layout:
        getattr(axes, f"set_{name}lim")(*layout["range"])
    elif layout.get("rangemode") == "tozero" and not is_log:
        axes.set_ylim(bottom=0)
