"""Summaries as tables for the terminal: one run, or several side by side."""

from collections.abc import Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from metrics.comparison import Outcome, setting_names
from metrics.facts import (
    FAULT_COLUMNS,
    LATENCY_COLUMNS,
    ROLE_CHANGE_COLUMNS,
    compared,
    facts,
    fault_rows,
    latency_rows,
    number,
    percent,
    role_change_rows,
    size,
)
from metrics.summary import Summary

BRIEF = ("good req/s", "good", "TTFT p50", "TTFT p99", "TPOT p99", "ITL p50", "ITL p99", "max ITL", "tokens/s")
"""Columns of metrics.facts.COMPARED that fit a terminal."""

MAX_SIDE_BY_SIDE = 3
"""Runs that have a column each; more have a row each."""


def summary_table(summary: Summary) -> RenderableType:
    """A run for `rich.console.Console.print`, which leaves colours out where there is no terminal."""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(overflow="fold")
    for label, text in facts(summary):
        lines.add_row(label, Text(text))
    latencies = _table("ms", *LATENCY_COLUMNS)
    for label, texts in latency_rows(summary):
        latencies.add_row(Text(label, style="dim" if label.startswith(" ") else ""), *texts)
    title = Text(f"Serving summary: {summary['name']} ({summary['driver']}, seed {summary['seed']})\n", style="bold")
    parts: list[RenderableType] = [title, lines, latencies]
    for heading, columns, rows in (
        ("Role changes", ROLE_CHANGE_COLUMNS, role_change_rows(summary)),
        ("Faults", FAULT_COLUMNS, fault_rows(summary)),
    ):
        if rows:
            events = Table(*columns, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=heading, title_justify="left")
            for row in rows:
                events.add_row(*map(Text, row))
            parts.append(events)
    return Group(*parts)


def compare_table(runs: Sequence[tuple[str, Summary]]) -> Table:
    """Several named runs side by side, a column each."""
    table = _table("", *(f"{name}\n{summary['driver']}" for name, summary in runs))
    for label, texts in _comparison([summary for _, summary in runs]):
        table.add_row(label, *texts)
    return table


def outcomes_table(outcomes: Sequence[Outcome]) -> RenderableType:
    """The variants of a comparison, and why some could not run."""
    runs = [(one.name, one.summary) for one in outcomes if one.summary is not None]
    if len(outcomes) <= MAX_SIDE_BY_SIDE:
        table = compare_table(runs)
    else:
        names = setting_names(outcomes)
        table = Table(box=SIMPLE_HEAD)
        for name in names:
            table.add_column(Text(name), overflow="fold")
        for column in BRIEF:
            table.add_column(Text(column.replace(" ", "\n")), justify="right", no_wrap=True)
        for one in outcomes:
            texts = [compared(one.summary, column) if one.summary else "-" for column in BRIEF]
            table.add_row(*(Text(one.settings.get(name, "")) for name in names), *texts)
    return Group(*([table] if runs else []), *map(Text, _reasons(outcomes)))


def _reasons(outcomes: Sequence[Outcome]) -> list[str]:
    """A sentence per reason, with the first variant it kept from running."""
    names: dict[str, list[str]] = {}
    for one in outcomes:
        if one.summary is None:
            names.setdefault(one.error, []).append(one.name)
    return [
        f"{first}{f' and {len(others)} more' if others else ''} could not run: {error}"
        for error, (first, *others) in names.items()
    ]


def plain_text(renderable: RenderableType, *, width: int = 100) -> str:
    """What a terminal of `width` columns without colours shows."""
    console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(renderable)
    file = console.file
    assert isinstance(file, StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).rstrip() + "\n"


def _table(corner: str, *columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column(corner, no_wrap=True)
    for column in columns:
        table.add_column(Text(column), justify="right")
    return table


def _comparison(summaries: Sequence[Summary]) -> list[tuple[str, list[str]]]:
    rows = [
        ("goodput, req/s", [number(one["request_goodput"]) for one in summaries]),
        ("goodput per GPU, req/s", [number(one["goodput_per_gpu"]) for one in summaries]),
        ("attainment", [percent(one["attainment"]) for one in summaries]),
        ("requests finished", [number(one["completed"]) for one in summaries]),
        ("requests not finished", [number(one["failed"]) for one in summaries]),
        ("GPUs", [number(one["num_gpus"]) for one in summaries]),
        ("duration, s", [number(one["duration_s"]) for one in summaries]),
        ("output tokens/s", [number(one["output_throughput"]) for one in summaries]),
    ]
    for label, field, columns in (
        ("TTFT", "ttft_ms", ("p50", "p90", "p99")),
        ("TPOT", "tpot_ms", ("p50", "p90", "p99")),
        ("ITL", "itl_ms", ("p50", "p99", "max")),
        ("max ITL", "max_itl_ms", ("p99",)),
        ("E2E", "e2e_ms", ("p50", "p99")),
    ):
        rows += [(f"{label} {column}, ms", [number(one[field][column]) for one in summaries]) for column in columns]
    return [
        *rows,
        ("role changes", [number(one["num_role_changes"]) for one in summaries]),
        ("KV moved", [size(one["kv_bytes_moved"]) for one in summaries]),
        ("preemptions", [number(one["num_preemptions"]) for one in summaries]),
    ]
