"""report.html of a run: what ran, how it met its targets, and plots."""

from collections.abc import Sequence
from html import escape

from metrics.curves import Curves
from metrics.facts import (
    FAULT_COLUMNS,
    LATENCY_COLUMNS,
    ROLE_CHANGE_COLUMNS,
    facts,
    fault_rows,
    latency_rows,
    number,
    percent,
    role_change_rows,
)
from metrics.page import cells, head, plots, render_page
from metrics.plots import figures
from metrics.run import RunResult
from metrics.slo import SloSpec
from metrics.summary import Summary

DEFINITIONS = (
    "TTFT: arrival to first token. TPOT: (E2E - TTFT) / (output tokens - 1), one per request. ITL: every gap between "
    "tokens, all requests pooled; max ITL: the longest gap of each request. TTST: first to second token. "
    "E2E: arrival to last token."
)


def render_report(result: RunResult, slo: SloSpec, summary: Summary, curves: Curves, scenario_yaml: str) -> bytes:
    """The page as UTF-8; it loads nothing."""
    figure_of = figures(result, slo, curves)
    rows = "".join(f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in facts(summary))
    body = (
        f'<div class="tiles">{_tiles(summary)}</div>\n'
        f'<h2>Summary</h2><div class="card scroll"><table><tbody>{rows}</tbody></table></div>\n'
        f'<h2>Latency, ms</h2><div class="card scroll"><table class="numbers">{_latencies(summary)}</table></div>\n'
        f'<p class="quiet">{DEFINITIONS}</p>\n'
        f"{_events('Role changes', ROLE_CHANGE_COLUMNS, role_change_rows(summary))}\n"
        f"{_events('Faults', FAULT_COLUMNS, fault_rows(summary))}\n"
        f"<h2>Plots</h2>{plots(figure_of)}\n"
        f'<h2>Scenario</h2><details class="card"><summary>As run</summary><pre>{escape(scenario_yaml)}</pre></details>'
    )
    return render_page(str(summary["name"]), _subtitle(summary), body, figure_of.values())


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


def _latencies(summary: Summary) -> str:
    rows = "".join(
        f'<tr class="{"part" if label.startswith(" ") else "whole"}"><th>{escape(label.strip())}</th>{cells(texts)}</tr>'
        for label, texts in latency_rows(summary)
    )
    return f"{head(('', *LATENCY_COLUMNS))}<tbody>{rows}</tbody>"


def _events(title: str, columns: Sequence[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = "".join(f"<tr>{cells(row)}</tr>" for row in rows)
    table = f'<table class="changes">{head(columns)}<tbody>{lines}</tbody></table>'
    return f'<h2>{title}</h2><div class="card scroll">{table}</div>'
