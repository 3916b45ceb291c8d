"""`baton simulate --compare` and `--sweep`: variants side by side, in one table and one report."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from cli.progress import progress
from cli.run_arguments import changes_of, show
from cluster.errors import ConfigError
from metrics.comparison import Outcome, as_json
from metrics.comparison_files import ComparisonFolder
from metrics.facts import compared
from metrics.files import to_json
from metrics.summary_text import outcomes_table
from scenario.sweep import parse_axes
from sim.comparison import run_variant, variants_of
from sim.parallel import map_parallel


def compare(arguments: argparse.Namespace) -> int:
    """Run every variant and print the table; raises ConfigError when none can run.

    Some that cannot are an answer like any other: they are in the table with the reason.
    """
    references: list[str] = [arguments.scenario, *arguments.compare]
    axes = parse_axes(arguments.sweep)
    variants = variants_of(references, changes_of(arguments), axes)
    folder = ComparisonFolder(arguments.out, [one.name for one in variants]) if arguments.out else None
    with progress("variants", len(variants), quiet=arguments.quiet) as advance:
        num_done = 0

        def take(_: int, outcome: Outcome) -> None:
            nonlocal num_done
            num_done += 1
            if folder is not None:
                folder.add(outcome)
            advance(num_done, f"{outcome.name}: {_in_short(outcome)}")

        run = partial(run_variant, keep_files=folder is not None)
        outcomes = map_parallel(run, variants, address=arguments.address, jobs=arguments.jobs, on_done=take)
    errors = [one.error for one in outcomes if one.summary is None]
    if len(errors) == len(outcomes):
        raise ConfigError(f"none of the {len(outcomes)} variants can run; the first: {errors[0]}")
    if folder is not None:
        swept = f" by {' and '.join(axis.path for axis in axes)}" if axes else ""
        title = " against ".join(references) + swept
        folder.finish(title, outcomes)
    _print(arguments, outcomes)
    return 0


def _print(arguments: argparse.Namespace, outcomes: Sequence[Outcome]) -> None:
    if arguments.json:
        told: list[dict[str, Any]] = [as_json(one) for one in outcomes]
        print(to_json(told).decode(), end="")
        return
    show(outcomes_table(outcomes), plain_width=140)
    if arguments.out:
        print(f"Files: {arguments.out}/ (open report.html; a folder per variant)")
    for notice in dict.fromkeys(
        f"{one.name}: {notice}" for one in outcomes if one.summary is not None for notice in one.summary["notices"]
    ):
        print(f"note: {notice}", file=sys.stderr)


def _in_short(outcome: Outcome) -> str:
    if outcome.summary is None:
        return outcome.error
    return f"{compared(outcome.summary, 'good')} good, {compared(outcome.summary, 'good req/s')} req/s"
