"""`baton simulate`: a scenario under the virtual clock, or several variants of it side by side."""

import argparse
import sys

from cli.run_arguments import add_parallel_arguments, add_run_arguments, finish, scenario_of
from scenario.requests import requests_of

DESCRIPTION = "Run a scenario under a virtual clock and print its summary, or compare scenarios and sweep fields."
EXAMPLES = """examples:
  baton simulate demo
  baton simulate demo --trace azure_llm_2023_conv.csv --request-rate 10 --goodput ttft:1000 tpot:20 --out runs/conv
  baton simulate steady-8b --set instances.prefill=3 --set instances.decode=1
  baton simulate steady-8b --compare colocated-8b
  baton simulate colocated-8b --sweep engine.token_budget=256,512,1024 --sweep gpu=h100-sxm,a100-80gb --out runs/sweep
  baton simulate steady-8b --sweep "instances={prefill: 1, decode: 3},{prefill: 2, decode: 2},{prefill: 3, decode: 1}"
"""
BAR_DELAY_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    group = parser.add_argument_group("comparison")
    group.add_argument(
        "--compare", nargs="+", default=[], metavar="SCENARIO", help="run these scenarios, too, with the same flags"
    )
    group.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="KEY=V1,V2,...",
        help="run once per value of a field of the scenario; of several sweeps, every combination",
    )
    add_parallel_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.compare or arguments.sweep:
        from cli.variants import compare

        return compare(arguments)
    from cli.interrupt import INTERRUPTED, Stop
    from cli.progress import progress
    from sim.run import simulate

    scenario = scenario_of(arguments)
    trace, too_long, notices = requests_of(scenario)
    quiet = arguments.quiet or not sys.stderr.isatty()
    with Stop("stopping here") as stop:
        with progress("requests", len(trace), quiet=quiet, delay_s=BAR_DELAY_S) as advance:

            def watch(num_ended: int) -> bool:
                advance(num_ended, "")
                return stop.requested

            result = simulate(scenario, trace, too_long, watch=watch)
        finish(arguments, scenario, result, notices)
    if not arguments.quiet:
        rate = result.num_requests / result.cpu_s if result.cpu_s else float("inf")
        print(
            f"simulated {result.num_requests} requests, {result.duration_s:.0f} s of traffic, in {result.wall_s:.2f} s "
            f"({rate:,.0f} requests per CPU second)",
            file=sys.stderr,
        )
    return INTERRUPTED if stop.requested else 0
