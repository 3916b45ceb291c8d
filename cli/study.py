"""`baton study`: ready-made comparisons, each against what was published."""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.progress import progress
from cli.run_arguments import add_parallel_arguments, show
from metrics.files import to_json
from sim.parallel import map_parallel
from sim.studies.files import StudyFolder, as_json
from sim.studies.study import CLAIM_COLUMNS, Study, claim_rows

T = TypeVar("T")
R = TypeVar("R")

STUDIES = {
    "applications": "DistServe's chat, code completion and summarisation: colocated, in chunks, or xPyD",
    "budget": "token budgets of chunked prefill, from prompts that starve to decodes that stall",
    "clusters": "Splitwise's cluster designs within a power or a cost budget: AA, HH, HA, HHcap",
    "distserve": "DistServe's applications, models and placements against vLLM and DeepSpeed-MII",
    "exercises": "the lecture's exercises, by the functions that everything else here uses",
    "lossless": "whole and chunked prefill of a real, tiny model: the same logits and tokens, more KV reads",
    "phases": "one GPU for both phases, or GPUs for each, as the TPOT target tightens (DistServe's figure 1)",
    "placement": "GPUs for a prefill, a decode and a colocated instance, and whole instances for a rate",
    "queueing": "a prefill instance as a queue: tensor parallelism or a pipeline",
    "rebalance": "every planner policy on five kinds of changing workload, against two bounds",
    "sarathi": "capacity under a strict and a relaxed target for the P99 of token gaps",
    "shift": "static splits against the load planner on the demo's shifting workload",
    "splits": "four GPUs, three workloads, every xPyD and colocated chunks (why a planner)",
    "splitwise": "what each phase needs of a GPU, and whether decoding on older ones pays",
    "stall": "a long prompt among running decodes, under three colocated policies",
    "steptime": "what a prompt costs the decodes in its step, and what chunks cost a prompt",
    "transfer": "how big the KV of a prompt is, and how long it takes to move",
}
A_CLAIM_DIFFERS = 2

DESCRIPTION = "Run ready-made studies and print their claims and tables. The exit code is 2 when a claim does not hold."
EXAMPLES = "\n".join(
    (
        "examples:",
        "  baton study stall",
        "  baton study all --out runs/studies",
        "",
        "studies:",
        *(f"  {name:<12} {what}" for name, what in STUDIES.items()),
    )
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", choices=(*STUDIES, "all"), metavar="NAME", help="which studies, or all")
    parser.add_argument("--out", metavar="DIR", help="write report.html with plots, studies.md and studies.json here")
    parser.add_argument("--png", action="store_true", help="with --out: every plot as PNG, too (needs matplotlib)")
    parser.add_argument("--json", action="store_true", help="print claims and tables as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    add_parallel_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    names = list(STUDIES) if "all" in arguments.names else list(dict.fromkeys(arguments.names))
    folder = StudyFolder(arguments.out, png=arguments.png) if arguments.out else None
    studies = [_run(name, arguments) for name in names]
    if folder is not None:
        folder.write(studies)
    if arguments.json:
        print(to_json([as_json(study) for study in studies]).decode(), end="")
    else:
        for study in studies:
            show(_text(study), plain_width=140)
        if folder is not None:
            print(f"Files: {folder.path}/ (open report.html)")
    return 0 if all(study.holds for study in studies) else A_CLAIM_DIFFERS


def _run(name: str, arguments: argparse.Namespace) -> Study:
    def parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        num_done = 0

        def count(_: int, __: R) -> None:
            nonlocal num_done
            num_done += 1
            advance(num_done, "")

        with progress(f"study {name}", len(items), quiet=arguments.quiet or not sys.stderr.isatty()) as advance:
            return map_parallel(function, items, address=arguments.address, jobs=arguments.jobs, on_done=count)

    study: Study = importlib.import_module(f"sim.studies.{name}").run(parallel)
    return study


def _text(study: Study) -> RenderableType:
    claims = _table("", CLAIM_COLUMNS, claim_rows(study.claims))
    tables = [_table(table.title, table.columns, table.rows, table.note) for table in study.tables]
    return Group(Text(f"{study.name}: {study.title}", style="bold"), Text(study.method, style="dim"), claims, *tables)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> Table:
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", caption=note, caption_justify="left")
    for column in columns:
        table.add_column(Text(column))
    for row in rows:
        table.add_row(*map(Text, row))
    return table
