"""Roles over time of several runs, one lane per run with a thin bar per instance."""

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.role import Phase
from metrics.figure import GREY, ROLE_COLORS, Figure, figure
from metrics.run import RoleSpan

CHANGING = "draining or switching"
BAR_PX, LANE_GAP_PX = 5, 12


def roles_figure(runs: Mapping[str, Sequence[RoleSpan]], num_instances: int, *, xaxis: dict[str, Any]) -> Figure:
    """A lane per run, by name; instances keep their place in it."""
    bars: dict[str, dict[str, Any]] = {
        kind: {
            "type": "scatter",
            "mode": "lines",
            "name": kind,
            "x": [],
            "y": [],
            "line": {"color": color, "width": BAR_PX - 1, "simplify": False},
            "hovertemplate": f"{kind} %{{x:.1f}} s<extra></extra>",
        }
        for kind, color in (*ROLE_COLORS.items(), (CHANGING, GREY))
    }
    lane_px = num_instances * BAR_PX + LANE_GAP_PX
    for lane, spans in enumerate(runs.values()):
        for span in spans:
            bar = bars[span.role if span.phase == Phase.SERVING else CHANGING]
            y = lane + ((span.instance + 0.5) / num_instances - 0.5) * (1 - LANE_GAP_PX / lane_px)
            bar["x"] += [round(span.start_s, 2), round(span.end_s, 2), None]
            bar["y"] += [round(y, 4), round(y, 4), None]
    yaxis = {
        "range": [len(runs) - 0.5, -0.5],
        "tickvals": list(range(len(runs))),
        "ticktext": list(runs),
        "zeroline": False,
    }
    drawn = [bar for bar in bars.values() if bar["x"]]
    return figure(drawn, "time, s", "", xaxis=xaxis, yaxis=yaxis, height=90 + lane_px * len(runs), showlegend=True)
