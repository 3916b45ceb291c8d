"""report.html of a comparison: the variants in one table, and their curves over one another."""

from collections.abc import Callable, Mapping, Sequence
from html import escape

import numpy as np

from metrics.comparison import Outcome, setting_names
from metrics.curves import Curves
from metrics.facts import COMPARED, compared
from metrics.figure import Figure, cdfs, figure, gap_figure, line, line_style
from metrics.gantt import gantt
from metrics.page import cells, plots, render_page, table
from metrics.records import FloatArray
from metrics.report import DEFINITIONS
from metrics.summary import baton_version

Named = Sequence[tuple[str, Curves]]
Differences = Mapping[str, Sequence[str]]
"""What runs differ in, by path in the scenario: a text per run."""


def render_comparison(
    title: str, outcomes: Sequence[Outcome], *, notes: Sequence[str] = (), differences: Differences | None = None
) -> bytes:
    """The page as UTF-8; it loads nothing. notes: what must not be missed."""
    figures = comparison_figures([(one.label, one.curves) for one in outcomes if one.curves is not None])
    could = sum(one.summary is not None for one in outcomes)
    count = f"{could} of {len(outcomes)} variants" if could < len(outcomes) else f"{could} runs"
    subtitle = f"{count} side by side, Baton {baton_version()}; latencies in milliseconds"
    body = (
        "".join(f'<p class="bad">{escape(note)}</p>' for note in notes) + f"<h2>Results</h2>{_variants(outcomes)}\n"
        f'<p class="quiet">good: share of requests that met every target. {DEFINITIONS}</p>\n'
        f"{_differences(outcomes, differences or {})}"
        f"<h2>Plots</h2>{plots(figures)}"
    )
    return render_page(title, subtitle, body, figures.values())


def comparison_figures(runs: Named) -> dict[str, Figure]:
    """Title and figure of every plot that has data, a curve per run."""
    figures: dict[str, Figure | None] = {
        "Token gaps over time": gap_figure([(name, one.gap_end_s, one.gap_ms) for name, one in runs]),
        "What the instances did": gantt([(name, one.bars) for name, one in runs]),
    }
    for title in dict.fromkeys(title for _, one in runs for title in one.cdfs_ms):
        figures[title] = cdfs([(name, one.cdfs_ms[title]) for name, one in runs if title in one.cdfs_ms])
    figures |= {
        "Queued prompt tokens": _over_time(runs, lambda one: (one.sample_s, one.queued_tokens), "tokens"),
        "Decoding requests": _over_time(runs, lambda one: (one.sample_s, one.num_decoding), "requests"),
        "KV in use": _over_time(runs, lambda one: (one.sample_s, one.kv_use_percent), "% of capacity"),
    }
    return {title: plot for title, plot in figures.items() if plot is not None}


def _over_time(
    runs: Named, series: Callable[[Curves], tuple[FloatArray, FloatArray]], y_title: str, **layout: int
) -> Figure | None:
    lines = [line(*series(one), name, line_style(index)) for index, (name, one) in enumerate(runs)]
    drawn = [one for one in lines if np.any(one["y"])]
    return figure(drawn, "time, s", y_title, **layout) if drawn else None


def _variants(outcomes: Sequence[Outcome]) -> str:
    names = setting_names(outcomes)
    columns = "".join(f'<th class="name">{escape(name)}</th>' for name in names)
    columns += "".join(f"<th>{escape(column)}</th>" for column in COMPARED)
    rows = "".join(f"<tr>{_leading(one, names)}{_results(one)}</tr>" for one in outcomes)
    dense = f'<table class="numbers dense"><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="card scroll">{dense}</div>'


def _differences(outcomes: Sequence[Outcome], differences: Differences) -> str:
    if not differences:
        return ""
    rows = [(path, *texts) for path, texts in differences.items()]
    return f"<h2>What differs</h2>{table(['', *(one.name for one in outcomes)], rows)}\n"


def _leading(outcome: Outcome, names: Sequence[str]) -> str:
    return "".join(f"<th>{escape(outcome.settings.get(name, ''))}</th>" for name in names)


def _results(outcome: Outcome) -> str:
    if outcome.summary is None:
        return f'<td class="reason bad" colspan="{len(COMPARED)}">{escape(outcome.error)}</td>'
    return cells(compared(outcome.summary, column) for column in COMPARED)
