"""`baton simulate`: a scenario under the virtual clock."""

import argparse
import sys

from cli.run_arguments import add_run_arguments, finish, scenario_of
from scenario.requests import requests_of

DESCRIPTION = "Run a scenario under a virtual clock and print its summary."
EXAMPLES = """examples:
  baton simulate demo
  baton simulate demo --trace azure_llm_2023_conv.csv --request-rate 10 --goodput ttft:1000 tpot:20 --out runs/conv
  baton simulate steady-8b --set instances.prefill=3 --set instances.decode=1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from sim.simulator import Simulator

    scenario = scenario_of(arguments)
    trace, too_long, notices = requests_of(scenario)
    result = Simulator(scenario, trace, too_long).run()
    code = finish(arguments, scenario, result, notices)
    if not arguments.quiet:
        rate = len(trace) / result.cpu_s if result.cpu_s else float("inf")
        print(
            f"simulated {len(trace)} requests, {result.duration_s:.0f} s of traffic, in {result.wall_s:.2f} s "
            f"({rate:,.0f} requests per CPU second)",
            file=sys.stderr,
        )
    return code
