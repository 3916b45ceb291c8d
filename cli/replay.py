"""`baton replay`: the same scenario live on Ray."""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from cli.run_arguments import add_run_arguments, finish, scenario_of
from scenario.requests import requests_of

if TYPE_CHECKING:
    from actors.messages import Snapshot
    from cli.live_story import LiveStory
    from cli.page_server import PageServer
    from cli.prometheus_server import PrometheusServer

DESCRIPTION = "Run a scenario live on Ray, with real KV transfers and Prometheus metrics, and print its summary."
EXAMPLES = """examples:
  baton replay demo
  baton replay demo --trace azure_llm_2023_conv.csv --num-requests 1500 --request-rate 10 --out runs/live
  baton replay demo --ui --prometheus --out runs/live
  ray start --head && RAY_AUTH_MODE=disabled baton replay demo --address auto
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    live = parser.add_argument_group("live")
    live.add_argument("--address", metavar="ADDR", help="a running Ray cluster: auto or HOST:PORT (default: embedded)")
    live.add_argument("--time-scale", type=float, metavar="X", help="2 runs twice as slow as real time")
    live.add_argument("--ui", action="store_true", help="serve a page to watch the run in a browser")
    live.add_argument("--ui-port", type=int, metavar="N", help="of 127.0.0.1, for --ui (default: any that is free)")
    live.add_argument(
        "--prometheus", action="store_true", help="run a local Prometheus along; with --out its data is kept there"
    )


def run(arguments: argparse.Namespace) -> int:
    from actors.replay import replay
    from cli.interrupt import INTERRUPTED, Stop
    from cli.live_story import LiveStory
    from cli.live_view import live_view
    from cli.prometheus_server import PrometheusServer
    from sim.run import tools_of

    scenario = scenario_of(arguments)
    trace, too_long, notices = requests_of(scenario)
    server = PrometheusServer() if arguments.prometheus else None
    story = LiveStory(scenario, len(trace))
    page = _page(story, arguments.ui_port or 0) if arguments.ui or arguments.ui_port is not None else None
    with server or nullcontext(), page or nullcontext(), Stop("nothing more is sent; ending what is under way") as stop:
        with live_view(scenario, trace, quiet=arguments.quiet) as view:

            def start(url: str) -> None:
                stop.listen()
                view.say(f"metrics: {url}")
                if server is not None:
                    server.start(url, with_ray=arguments.address is not None)
                    view.say(f"Prometheus: {server.url}")

            def watch(snapshot: "Snapshot") -> None:
                view.show(snapshot)
                if page is not None:
                    story.see(snapshot)
                due = snapshot.num_sent if stop.requested else len(trace)
                if server is not None and snapshot.num_ended == due:
                    server.catch_up()

            if page is not None:
                view.say(f"watch it: {page.url}")
            view.say("starting Ray" if arguments.address is None else f"connecting to Ray at {arguments.address}")
            result = replay(
                scenario,
                trace,
                too_long,
                address=arguments.address,
                on_start=start,
                watch=watch,
                stopped=lambda: stop.requested,
                tools=tools_of(scenario),
            )
        finish(arguments, scenario, result, notices)
        if server is not None and arguments.out:
            _keep(server, Path(arguments.out, "prometheus"))
    for notice in result.notices:
        print(f"note: {notice}", file=sys.stderr)
    return INTERRUPTED if stop.requested else 0


def _page(story: "LiveStory", port: int) -> "PageServer":
    from cli.page_server import PageServer
    from metrics.story_page import render_story

    return PageServer(lambda: render_story(story.story.plain(), live=True), story.story.frames, port=port)


def _keep(server: "PrometheusServer", folder: Path) -> None:
    server.stop()
    server.keep(folder)
    print(
        f"to look again: cd {folder} && prometheus --config.file=prometheus.yml --storage.tsdb.path=data",
        file=sys.stderr,
    )
