"""report.html: one self-contained page with what ran, how it met its targets, and plots."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

import orjson

from metrics.facts import (
    LATENCY_COLUMNS,
    ROLE_CHANGE_COLUMNS,
    facts,
    latency_rows,
    number,
    percent,
    role_change_rows,
)
from metrics.plots import Figure, figures
from metrics.run import RunResult
from metrics.slo import SloSpec
from metrics.summary import Summary


def render_report(result: RunResult, slo: SloSpec, summary: Summary, scenario_yaml: str) -> bytes:
    """The page as UTF-8; it holds plotly.js and loads nothing."""
    plots = figures(result, slo)
    page = Template(files("metrics").joinpath("report_page.html").read_text("utf-8"))
    return page.substitute(
        title=escape(str(summary["name"])),
        subtitle=escape(_subtitle(summary)),
        tiles=_tiles(summary),
        facts="".join(f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in facts(summary)),
        latencies=_latencies(summary),
        role_changes=_role_changes(summary),
        plots="".join(_plot(index, title, figure) for index, (title, figure) in enumerate(plots.items())),
        scenario=escape(scenario_yaml),
        plotly=_plotly_js(),
        # A JSON string may hold "</script>"; an escaped "<" means the same to a JSON parser.
        figures=orjson.dumps(list(plots.values())).decode().replace("<", "\\u003c"),
    ).encode()


def _plotly_js() -> str:
    """The library as the plotly package ships it; importing that package would cost more than the report."""
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text("utf-8")


def _subtitle(summary: Summary) -> str:
    driver = {"simulate": "Simulated", "replay": "Replayed live"}.get(summary["driver"], summary["driver"])
    return (
        f"{driver} with Baton {summary['version']}, seed {summary['seed']}: "
        f"{number(summary['requests']['total'])} requests in {number(summary['duration_s'])} s "
        f"on {len(summary['instances'])} instances ({summary['num_gpus']} GPUs)"
    )


def _tiles(summary: Summary) -> str:
    attainment, target = summary["attainment"], summary["slo"]["attainment"]
    verdict = "" if attainment is None else "good" if attainment >= target else "bad"
    tiles = [
        (percent(attainment), f"of requests good, {percent(target)} asked for", verdict),
        (number(summary["request_goodput"]), "good requests per second", ""),
        (number(summary["goodput_per_gpu"]), "of them per GPU", ""),
        (f"{number(summary['ttft_ms']['p99'])} ms", "TTFT, p99", ""),
        (f"{number(summary['tpot_ms']['p99'])} ms", "TPOT, p99", ""),
        (f"{number(summary['max_itl_ms']['p99'])} ms", "longest gap of a request, p99", ""),
    ]
    return "".join(
        f'<div class="card tile"><b class="{kind}">{escape(text)}</b><span class="quiet">{escape(label)}</span></div>'
        for text, label, kind in tiles
    )


def _head(columns: Iterable[str]) -> str:
    return f"<thead><tr>{''.join(f'<th>{escape(column)}</th>' for column in columns)}</tr></thead>"


def _cells(texts: Sequence[str]) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)


def _latencies(summary: Summary) -> str:
    rows = "".join(
        f'<tr class="{"part" if label.startswith(" ") else "whole"}"><th>{escape(label.strip())}</th>{_cells(texts)}</tr>'
        for label, texts in latency_rows(summary)
    )
    return f"{_head(('', *LATENCY_COLUMNS))}<tbody>{rows}</tbody>"


def _role_changes(summary: Summary) -> str:
    if not summary["role_changes"]:
        return ""
    rows = "".join(f"<tr>{_cells(row)}</tr>" for row in role_change_rows(summary))
    table = f'<table class="changes">{_head(ROLE_CHANGE_COLUMNS)}<tbody>{rows}</tbody></table>'
    return f'<h2>Role changes</h2><div class="card scroll">{table}</div>'


def _plot(index: int, title: str, figure: Figure) -> str:
    wide = " wide" if "height" in figure["layout"] else ""
    return f'<figure class="card{wide}"><h3>{escape(title)}</h3><div class="plot" id="plot{index}"></div></figure>'
