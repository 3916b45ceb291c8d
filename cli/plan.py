"""`baton plan`: which instances, and how many, serve a workload within its SLOs."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli.progress import progress
from cli.run_arguments import add_parallel_arguments, add_run_arguments, changes_of, show
from cluster.errors import ConfigError

if TYPE_CHECKING:
    from scenario.spec import Scenario
    from sim.placement.answer import Answer
    from sim.placement.machine import GpuPool
    from sim.placement.question import Question

DESCRIPTION = """Find the instances that serve a workload within its SLOs for the fewest GPUs, dollars or watts.

Prefill and decode instances are searched apart over tp x pp and kinds of GPUs and replicated to the rate (DistServe's
Algorithm 1, Splitwise's AA, HH, HA and HHcap), as units that keep KV on their nodes (Algorithm 2), and colocated under
every policy and token budget. The best of each are simulated as wholes. The scenario gives model, link, engine, SLOs
and workload; lengths of a trace are drawn anew."""
EXAMPLES = """examples:
  baton plan steady-8b --gpus h100-sxm:8
  baton plan demo --trace azure_llm_2023_code.csv --goodput ttft:1000 tpot:40 --request-rate 20 --out runs/plan
  baton plan demo --trace chat.csv --request-rate 20 --gpus h100-sxm:16 a100-80gb:32 --objective usd
  baton plan demo --trace chat.csv --gpus h100-sxm:32 --objective rate --max-watts 15000 --only disaggregated
"""
DEFAULT_GPUS_PER_NODE = 8
_TEXT: Any = {"overflow": "fold"}
_NUMBER: Any = {"justify": "right", "no_wrap": True}
SCENARIO_FILE = "scenario.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(
        parser,
        request_rate="the rate to serve (default: the workload's own)",
        num_requests="judge a rate by so many requests (default: 500), by more where it is close",
        out="write report.html, plan.json, and the scenarios of the best plans here",
    )
    group = parser.add_argument_group("plan")
    group.add_argument(
        "--gpus", nargs="+", metavar="NAME:N", help="kinds and numbers of GPUs there are (default: the scenario's)"
    )
    group.add_argument(
        "--gpus-per-node", type=int, metavar="N", help="GPUs of a node (default: the scenario's, else 8)"
    )
    group.add_argument(
        "--objective",
        choices=("gpus", "usd", "watts", "rate"),
        default="gpus",
        help="fewest GPUs, dollars or watts at the rate, or the highest rate within the limits (default: gpus)",
    )
    group.add_argument("--max-usd-per-hour", type=float, metavar="USD", help="pay no more than this")
    group.add_argument("--max-watts", type=float, metavar="W", help="provision no more than this (GPU power limits)")
    group.add_argument(
        "--budgets",
        type=int,
        nargs="+",
        metavar="TOKENS",
        help="of chunked prefill, to try (default: 256 512 1024 2048)",
    )
    group.add_argument("--target", type=float, metavar="SHARE", help="requests that must be good (default: the SLO's)")
    group.add_argument(
        "--headroom", type=float, default=0.05, metavar="SHARE", help="a plan must hold so much more (default: 0.05)"
    )
    group.add_argument("--only", choices=("colocated", "disaggregated"), help="search no other kind of plan")
    add_parallel_arguments(parser)
    cache = parser.add_argument_group("cache").add_mutually_exclusive_group()
    cache.add_argument("--cache-dir", metavar="DIR", help="keep results here (default: ~/.cache/baton)")
    cache.add_argument("--no-cache", action="store_true", help="neither read nor keep results")


def run(arguments: argparse.Namespace) -> int:
    from sim.parallel import map_parallel
    from sim.placement.cache import ResultCache, default_folder
    from sim.placement.files import PlanFolder, as_json
    from sim.placement.search import PlanSearch

    question = question_of(arguments)
    folder = PlanFolder(arguments.out) if arguments.out else None
    kept = None if arguments.no_cache else Path(arguments.cache_dir or default_folder())
    cache = ResultCache(kept, question.scenario.workload.trace)
    quiet = arguments.quiet or not sys.stderr.isatty()
    mapper = partial(map_parallel, address=arguments.address, jobs=arguments.jobs)
    search = PlanSearch(question, mapper=mapper, cache=cache)
    with progress("searching", search.num_steps, quiet=quiet) as advance:
        answer = search.run(advance)
    if folder is not None:
        folder.write(answer)
    if arguments.json:
        from metrics.files import to_json

        print(to_json(as_json(answer)).decode(), end="")
    else:
        _print(answer)
        if folder is not None:
            print(f"Files: {folder.path}/ (open report.html; baton simulate {folder.path / SCENARIO_FILE})")
    return 0


def question_of(arguments: argparse.Namespace) -> "Question":
    """What the command line asks; raises ConfigError."""
    from scenario.loading import load_scenario
    from sim.placement.question import CHUNK_BUDGETS, KINDS, Question
    from sim.sustain import Sampling
    from sim.traffic import Traffic

    sampling = Sampling(500, 2000)
    if arguments.trace is not None and arguments.resample is None:
        arguments.resample = arguments.num_requests or sampling.num_requests
    if arguments.target is not None:
        arguments.settings = [*arguments.settings, f"slo.attainment={arguments.target}"]
    scenario = load_scenario(arguments.scenario, changes_of(arguments))
    rate = None if arguments.objective == "rate" else arguments.request_rate or Traffic(scenario).own_rate
    if rate is None and arguments.objective != "rate":
        raise ConfigError("the workload has no rate of its own; give --request-rate")
    if arguments.objective == "rate" and arguments.request_rate is not None:
        raise ConfigError("--request-rate is what the objective rate is to find; leave one of them out")
    counted = arguments.num_requests
    return Question(
        scenario=scenario,
        pools=_pools(scenario, arguments.gpus),
        gpus_per_node=scenario.gpus_per_node or DEFAULT_GPUS_PER_NODE
        if arguments.gpus_per_node is None
        else arguments.gpus_per_node,
        objective=arguments.objective,
        request_rate=rate,
        max_usd_per_hour=arguments.max_usd_per_hour,
        max_watts=arguments.max_watts,
        headroom=arguments.headroom,
        kinds=KINDS if arguments.only is None else (arguments.only,),
        budgets=tuple(arguments.budgets or CHUNK_BUDGETS),
        sampling=Sampling(counted, 4 * counted) if counted else sampling,
    )


def _pools(scenario: "Scenario", words: Sequence[str] | None) -> "tuple[GpuPool, ...]":
    from cluster.gpu import GpuSpec
    from cluster.link import LinkSpec
    from scenario.loading import load_spec
    from sim.placement.machine import GpuPool

    if words is None:
        return (GpuPool(scenario.gpu, scenario.gpu_link, scenario.num_gpus),)
    pools = []
    for word in words:
        name, _, count = word.rpartition(":")
        if not name or not count.isdecimal():
            raise ConfigError(f"--gpus {word} is not NAME:N; write for example h100-sxm:16")
        if name == scenario.gpu.name:
            gpu, link = scenario.gpu, scenario.gpu_link
        else:
            gpu = load_spec(GpuSpec, name)
            link = load_spec(LinkSpec, gpu.link)
        pools.append(GpuPool(gpu, link, int(count)))
    return tuple(pools)


def _print(answer: "Answer") -> None:
    from sim.placement.words import (
        PLAN_COLUMNS,
        cut_short,
        plan_in_words,
        plan_row,
        question_in_words,
        recommendation,
        who_wins,
    )

    columns = PLAN_COLUMNS[:-1]  # words do not fit beside the numbers
    table = Table(box=SIMPLE_HEAD, title=question_in_words(answer.question), title_justify="left")
    for column in columns:
        table.add_column(Text(column), **(_TEXT if column in ("plan", "instances") else _NUMBER))
    for plan in answer.plans:
        table.add_row(*map(Text, plan_row(answer.question, plan)[: len(columns)]))
    lines = [
        recommendation(answer),
        who_wins(answer),
        "What is short first above the rate that a plan carries:",
        *(f"  {plan_in_words(plan)}: {plan.limit}." for plan in answer.plans),
        cut_short(answer),
        *(f"Cannot be: {one.what}: {one.reason}." for one in answer.infeasible),
    ]
    show(Group(table, *(Text(line) for line in lines)), plain_width=140)
