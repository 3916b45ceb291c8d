"""What `simulate` and `replay` share: flags, the scenario they make, and the end of a run."""

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from metrics.files import check_folder, to_json, write_run
from metrics.run import RunResult
from metrics.slo import parse_goodput
from metrics.summary import summarize
from metrics.summary_text import plain_text, summary_table
from scenario.loading import dump_scenario, load_scenario
from scenario.overrides import parse_overrides
from scenario.spec import Scenario

_WORKLOAD_FLAGS = (
    "trace_format",
    "trace_unit",
    "skip_invalid",
    "request_rate",
    "num_requests",
    "resample",
    "start_s",
    "end_s",
    "on_too_long",
)


def add_run_arguments(
    parser: argparse.ArgumentParser,
    *,
    request_rate: str = "rescale arrivals to this mean rate",
    num_requests: str = "only the first N requests",
    out: str = "write summary.json, requests.jsonl, timeline.json and report.html here",
) -> None:
    """What tells a scenario and its workload; the words are for commands that use a flag in another way."""
    parser.add_argument("scenario", metavar="SCENARIO", help="a bundled scenario's name, or a YAML file")
    workload = parser.add_argument_group("workload")
    workload.add_argument("--trace", metavar="FILE", help="replay this trace instead of the scenario's workload")
    workload.add_argument("--trace-format", metavar="NAME", help="do not detect the format")
    workload.add_argument("--trace-unit", choices=("s", "ms"), help="unit of numeric timestamps; detected by default")
    workload.add_argument(
        "--skip-invalid", action="store_true", default=None, help="count and skip bad rows instead of stopping"
    )
    workload.add_argument("--request-rate", type=float, metavar="RPS", help=request_rate)
    workload.add_argument("--num-requests", type=int, metavar="N", help=num_requests)
    workload.add_argument("--resample", type=int, metavar="N", help="draw N requests from the trace, Poisson arrivals")
    workload.add_argument("--start-s", type=float, metavar="S", help="drop arrivals before this second")
    workload.add_argument("--end-s", type=float, metavar="S", help="drop arrivals from this second on")
    workload.add_argument(
        "--on-too-long",
        choices=("reject", "truncate", "error"),
        help="requests longer than the context or the KV pool (default: the scenario's, else reject)",
    )
    run = parser.add_argument_group("run")
    run.add_argument("--seed", type=int, metavar="N", help="seed of arrivals, lengths and tie-breaks")
    run.add_argument(
        "--goodput", nargs="+", metavar="KEY:MS", help="SLOs in milliseconds, e.g. --goodput ttft:1000 tpot:20"
    )
    run.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="any field of the scenario"
    )
    run.add_argument("--out", metavar="DIR", help=out)
    run.add_argument("--json", action="store_true", help="print the summary as JSON")
    run.add_argument("--quiet", action="store_true", help="no progress on stderr")


def add_parallel_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("in parallel").add_mutually_exclusive_group()
    where.add_argument(
        "--address", metavar="ADDR", help="run as tasks of this Ray cluster: auto or HOST:PORT (default: $RAY_ADDRESS)"
    )
    where.add_argument(
        "--jobs", type=int, metavar="N", help="run in N processes of this machine (default without Ray: one per core)"
    )


def scenario_of(arguments: argparse.Namespace) -> Scenario:
    """The scenario that the command line describes; raises ConfigError."""
    if arguments.out:
        check_folder(arguments.out)
    return load_scenario(arguments.scenario, changes_of(arguments))


def changes_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the flags change in a scenario, by path; raises ConfigError."""
    changes: dict[str, Any] = {}
    if arguments.trace is not None:
        changes |= {"workload.phases": [], "workload.trace": str(Path(arguments.trace).absolute())}
    for name in _WORKLOAD_FLAGS:
        if getattr(arguments, name) is not None:
            changes[f"workload.{name}"] = getattr(arguments, name)
    if getattr(arguments, "time_scale", None) is not None:
        changes["live.time_scale"] = arguments.time_scale
    if arguments.seed is not None:
        changes["seed"] = arguments.seed
    if arguments.goodput is not None:
        slo = parse_goodput(arguments.goodput)
        changes |= {f"slo.{name}": getattr(slo, name) for name in ("ttft_ms", "tpot_ms", "e2e_ms")}
    for override in parse_overrides(arguments.settings):
        changes[override.path] = override.value
    return changes


def finish(arguments: argparse.Namespace, scenario: Scenario, result: RunResult, notices: list[str]) -> None:
    """Write the result files and print the summary."""
    result.notices[:0] = notices
    if arguments.out:
        summary = write_run(arguments.out, result, scenario.slo, dump_scenario(scenario))
    else:
        summary = summarize(result, scenario.slo)
    if arguments.json:
        print(to_json(summary).decode(), end="")
    else:
        show(summary_table(summary))
    if arguments.out and not arguments.json:
        print(f"Files: {arguments.out}/ (open report.html; timeline.json loads in ui.perfetto.dev)")


def show(renderable: RenderableType, *, plain_width: int = 100) -> None:
    """Print to stdout: as wide as the terminal and in colours, or plain."""
    if sys.stdout.isatty():
        Console().print(renderable)
    else:
        print(plain_text(renderable, width=plain_width))
