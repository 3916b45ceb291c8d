"""`baton replay`: the same scenario live on Ray."""

import argparse
import sys

from cli.run_arguments import add_run_arguments, finish, scenario_of
from scenario.requests import requests_of

DESCRIPTION = "Run a scenario live on Ray, with real KV transfers and Prometheus metrics, and print its summary."
EXAMPLES = """examples:
  baton replay demo
  baton replay demo --trace azure_llm_2023_conv.csv --num-requests 1500 --request-rate 10 --out runs/live
  ray start --head && RAY_AUTH_MODE=disabled baton replay demo --address auto
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    live = parser.add_argument_group("live")
    live.add_argument("--address", metavar="ADDR", help="a running Ray cluster: auto or HOST:PORT (default: embedded)")
    live.add_argument("--time-scale", type=float, metavar="X", help="2 runs twice as slow as real time")


def run(arguments: argparse.Namespace) -> int:
    from actors.replay import replay
    from cli.live_view import live_view

    scenario = scenario_of(arguments)
    trace, too_long, notices = requests_of(scenario)
    with live_view(scenario, len(trace), quiet=arguments.quiet) as view:
        view.say("starting Ray" if arguments.address is None else f"connecting to Ray at {arguments.address}")
        result = replay(
            scenario,
            trace,
            too_long,
            address=arguments.address,
            on_start=lambda url: view.say(f"metrics: {url}"),
            watch=view.show,
        )
    code = finish(arguments, scenario, result, notices)
    for notice in result.notices:
        print(f"note: {notice}", file=sys.stderr)
    return code
