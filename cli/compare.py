"""`baton compare`: finished runs side by side, with the numbers of their own reports."""

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from cli.run_arguments import show
from cluster.errors import ConfigError
from metrics.comparison import Outcome, as_json
from metrics.comparison_files import write_comparison
from metrics.comparison_report import Differences
from metrics.facts import number
from metrics.files import to_json
from metrics.run_folder import read_curves, read_summary
from metrics.summary import Summary
from metrics.summary_text import outcomes_table
from scenario.strict_yaml import read_mapping
from scenario.sweep import value_text
from scenario.tree import differences, find

DESCRIPTION = "Put runs that simulate or replay have written with --out side by side; the first is the yardstick."
EXAMPLES = """examples:
  baton compare runs/simulated runs/live
  baton compare runs/static runs/load runs/lookahead --out runs/planners
  baton compare runs/*/ --json
"""
_LONGEST = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", metavar="RUN_DIR", help="two or more that were given as --out")
    parser.add_argument("--out", metavar="DIR", help="write report.html, with plots of all runs, and compare.json here")
    parser.add_argument("--json", action="store_true", help="print the summaries as JSON")


def run(arguments: argparse.Namespace) -> int:
    folders = [Path(folder) for folder in arguments.folders]
    if len(folders) < 2:
        raise ConfigError(f"{folders[0]} alone cannot be compared; name two runs or more")
    names = _names(folders)
    summaries = [read_summary(folder) for folder in folders]
    outcomes = [
        Outcome(name=name, settings={"run": name}, summary=summary, curves=read_curves(folder))
        for name, summary, folder in zip(names, summaries, folders, strict=True)
    ]
    found = _differences([read_mapping(folder / "scenario.yaml") for folder in folders])
    notes = [note for one in outcomes[1:] for note in _not_comparable(outcomes[0], one)]
    if arguments.out:
        write_comparison(arguments.out, " against ".join(names), outcomes, notes=notes, differences=found)
    if arguments.json:
        print(to_json([as_json(one) for one in outcomes]).decode(), end="")
    else:
        show(outcomes_table(outcomes), plain_width=140)
        if found:
            show(_differences_table(names, found), plain_width=140)
        if arguments.out:
            print(f"Files: {arguments.out}/ (open report.html)")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _names(folders: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as tell them apart."""
    paths = [folder.absolute() for folder in folders]
    twice = [one for one, other in pairwise(sorted(paths)) if one == other]
    if twice:
        raise ConfigError(f"{twice[0]} is given twice; name every run once")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return [str(Path(*path.parts[-depth:])) for path in paths]


def _differences(trees: Sequence[dict[str, Any]]) -> Differences:
    """Settings that only some have, such as those of a planner's policy, follow from others and are left out."""
    found = {}
    for path in differences(trees):
        values = [find(tree, path) for tree in trees]
        if path != "name" and not any(isinstance(value, dict) for value in values):
            found[path] = [_text(value) for value in values]
    return found


def _text(value: Any) -> str:
    text = "-" if value is None else value_text(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _differences_table(names: Sequence[str], found: Differences) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for heading in ("what differs", *names):
        table.add_column(Text(heading))
    for path, texts in found.items():
        table.add_row(*map(Text, (path, *texts)))
    return table


def _not_comparable(first: Outcome, other: Outcome) -> list[str]:
    """Why numbers of the other run should not be held against those of the first."""
    assert first.summary is not None
    assert other.summary is not None
    notes = []
    if first.summary["requests_sha256"] != other.summary["requests_sha256"]:
        notes.append(
            f"{other.name} was sent other requests than {first.name} ({_sent(other.summary)} against "
            f"{_sent(first.summary)}): what differs may come from those"
        )
    if first.summary["slo"] != other.summary["slo"]:
        notes.append(
            f"{other.name} is judged by other SLOs than {first.name} ({_slo(other.summary)} against "
            f"{_slo(first.summary)}): do not compare goodput and attainment"
        )
    return notes


def _sent(summary: Summary) -> str:
    tokens = number(summary["total_input_tokens"]), number(summary["total_output_tokens"])
    return f"{number(summary['requests']['total'])} requests, {tokens[0]} input and {tokens[1]} output tokens"


def _slo(summary: Summary) -> str:
    slo = summary["slo"]
    targets = [
        f"{name.upper()} {number(slo[f'{name}_ms'])} ms" for name in ("ttft", "tpot", "e2e") if slo[f"{name}_ms"]
    ]
    return ", ".join([*targets, f"{number(100 * slo['attainment'])} %"])
