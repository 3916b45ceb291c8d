"""The page that shows a story: a finished run to play, or one that goes on, followed live."""

from dataclasses import fields
from html import escape
from typing import Any

from cluster.role import Phase, Role
from metrics.figure import BLUE, GREY, PINK, ROLE_COLORS, VERMILION, Figure, figure, mark
from metrics.history import DOWN
from metrics.page import assemble, figure_cards, plots
from metrics.plots import role_bar
from metrics.story import WINDOW_S, Flow, InstanceFrame, PlainStory
from metrics.summary import baton_version

_SCRIPTS = (
    "theme.js",
    "story.js",
    "story_cluster.js",
    "story_words.js",
    "story_charts.js",
    "story_player.js",
)
_SPEEDS = (1, 2, 5, 10, 20, 50, 100)
_MAX_ROLE_HEIGHT = 700


def render_story(story: PlainStory, *, live: bool = False) -> bytes:
    """The page as UTF-8, which loads nothing; a live one asks for /events of the server it came from."""
    charts = _charts(story)
    data = {
        "story": story,
        "charts": list(charts.values()),
        "bars": {f"{role}/{phase}": role_bar(role, phase) for role in Role for phase in (*Phase, DOWN)},
        "fields": {"instance": _names(InstanceFrame), "flow": _names(Flow)},
        "live": live,
    }
    driver = {"simulate": "Simulated", "replay": "Live"}[story["driver"]]
    subtitle = f"{driver}, Baton {baton_version()}, seed {story['seed']}; figures are of the last {WINDOW_S:g} s"
    return assemble(
        str(story["name"]),
        subtitle,
        _body(story, charts),
        data=data,
        styles=["page.css", "story.css"],
        scripts=_SCRIPTS,
    )


def _names(kind: type) -> list[str]:
    return [one.name for one in fields(kind)]


def _body(story: PlainStory, charts: dict[str, Figure]) -> str:
    roles, others = {"Roles": charts["Roles"]}, {title: one for title, one in charts.items() if title != "Roles"}
    speeds = "".join(f'<option value="{speed}">{speed}×</option>' for speed in _SPEEDS)
    colors = ";".join(f"--{name}:{color}" for name, color in {**ROLE_COLORS, "flow": PINK}.items())
    return f"""<style>:root {{{colors}}}</style>
<p id="status" class="bad" role="status"></p>
<div class="card player">
<button id="play">play</button>
<input id="slider" type="range" min="0" step="any" value="0" aria-label="Time">
<output id="clock"></output>
<select id="speed" aria-label="Speed">{speeds}</select>
<button id="live">live</button>
</div>
<div class="tiles" id="tiles"></div>
<div class="stage">
<div class="stack"><section class="card"><h3>Cluster <span class="quiet" id="rate"></span></h3>
<div id="cluster"><svg aria-hidden="true"><g id="flows"></g></svg></div></section>
{figure_cards(roles)}</div>
<section class="card planner"><h3>Planner <span class="quiet">{escape(story["policy"])}</span></h3>
<p id="says" class="quiet"></p><ol id="events"></ol></section>
</div>
{plots(others, first=len(roles))}"""


def _charts(story: PlainStory) -> dict[str, Figure]:
    """Figures without values: a trace takes those of frames that its `meta` names. One without traces is of roles."""
    slo = story["slo"]
    names = story["instance_names"]
    height = min(_MAX_ROLE_HEIGHT, 80 + 26 * len(names))
    rows = {"autorange": "reversed", "categoryorder": "array", "categoryarray": names, "type": "category"}
    roles = figure([], "time, s", "", yaxis=rows, barmode="overlay", bargap=0.25, height=height)
    roles["layout"]["showlegend"] = True
    return {
        "Roles": roles,
        "Requests": _chart(
            "req/s", _trace("sent_rate", "sent", GREY, dash="dot"), _trace("good_rate", "good", BLUE, fill="tozeroy")
        ),
        "Time to first token": _latency("ttft", slo["ttft_ms"]),
        "Time per output token": _latency("tpot", slo["tpot_ms"]),
        "Queued prompt tokens per instance": _chart(
            "tokens", *(_trace(f"queued_{role}", role, ROLE_COLORS[role]) for role in Role if role != Role.DECODE)
        ),
        "KV handed over": _chart("GB/s", _trace("kv_gb_s", "KV", PINK, fill="tozeroy")),
        "KV in use": _chart("%", *(_trace(f"kv_{role}", role, ROLE_COLORS[role]) for role in Role)),
    }


def _latency(name: str, target_ms: float | None) -> Figure:
    traces = _trace(f"{name}_p90", "p90", VERMILION), _trace(f"{name}_p50", "p50", BLUE)
    return _chart("ms", *traces, shapes=[] if target_ms is None else [mark(target_ms, axis="y")])


def _chart(unit: str, *traces: dict[str, Any], **layout: Any) -> Figure:
    return figure(list(traces), "time, s", unit, **layout)


def _trace(values: str, name: str, color: str, *, dash: str = "solid", **more: Any) -> dict[str, Any]:
    line = {"color": color, "dash": dash, "width": 1.5}
    return {"type": "scatter", "mode": "lines", "name": name, "meta": values, "line": line, **more}
