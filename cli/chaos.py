"""`baton chaos`: a live run with faults on purpose, and what each of them cost."""

import argparse
import sys
from typing import TYPE_CHECKING

from actors.faults import KINDS, Fault, each_fault, outcomes, parse_fault, possible_kinds, random_faults
from actors.messages import Toll
from cli.run_arguments import add_run_arguments, finish, scenario_of
from cluster.errors import ConfigError
from cluster.request import Status
from metrics.records import Column
from metrics.run import RunResult
from scenario.requests import requests_of

if TYPE_CHECKING:
    from scenario.spec import Scenario

SOMETHING_LOST = 2

DESCRIPTION = """Run a scenario live on Ray and break it on purpose: by default once in every way that there is. Prints what each kind
of fault did: wall seconds until it was noticed and until it was over (the longest of several), requests disturbed, those
of them that resumed by transfer, cancelled and failed ones, and tokens computed again.
The exit code is 2 when a request failed or was lost."""
EXAMPLES = "\n".join(
    (
        "examples:",
        "  baton chaos demo",
        "  baton chaos demo --fault kill-decode-running@20 --fault hang@40",
        "  baton chaos demo --random 30 --out runs/chaos",
        "",
        "faults:",
        *(f"  {name:<22} {kind.words}" for name, kind in KINDS.items()),
    )
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    live = parser.add_argument_group("live")
    live.add_argument("--address", metavar="ADDR", help="a running Ray cluster: auto or HOST:PORT (default: embedded)")
    live.add_argument("--time-scale", type=float, metavar="X", help="2 runs twice as slow as real time")
    faults = parser.add_argument_group("faults").add_mutually_exclusive_group()
    faults.add_argument(
        "--fault", action="append", metavar="KIND@S", dest="faults", help="this fault at that scenario second"
    )
    faults.add_argument(
        "--every", type=float, metavar="S", help="each kind once, S scenario seconds apart (default: 10)"
    )
    faults.add_argument(
        "--random", type=float, metavar="S", help="kinds and times at random, S seconds apart on average"
    )


def run(arguments: argparse.Namespace) -> int:
    from actors.chaos import Chaos
    from actors.deployment import connected, num_nodes
    from actors.replay import replay
    from cli.interrupt import INTERRUPTED, Stop
    from cli.live_view import live_view
    from sim.run import tools_of

    scenario = scenario_of(arguments)
    trace, too_long, notices = requests_of(scenario)
    end_s = float(trace.arrival_s[-1])
    if arguments.faults:
        plan(arguments, scenario, end_s, num_nodes=2)  # say what is wrong with them before Ray starts
    with Stop("nothing more is sent; ending what is under way") as stop, connected(arguments.address):
        chaos = Chaos(plan(arguments, scenario, end_s, num_nodes()))
        with live_view(scenario, trace, quiet=arguments.quiet) as view:

            def start(url: str) -> None:
                stop.listen()
                view.say(f"metrics: {url}")

            result = replay(
                scenario,
                trace,
                too_long,
                address=arguments.address,
                on_start=start,
                watch=view.show,
                stopped=lambda: stop.requested,
                tools=tools_of(scenario),
                disturb=chaos.run,
            )
    result.live["faults"] = outcomes(chaos.faults, _end(result), scenario.live.time_scale)
    finish(arguments, scenario, result, notices)
    if not arguments.json:
        print(_ends(result))
    for notice in result.notices:
        print(f"note: {notice}", file=sys.stderr)
    if stop.requested:
        return INTERRUPTED
    return SOMETHING_LOST if result.live["requests_failed"] or len(result.records) < result.num_requests else 0


def plan(arguments: argparse.Namespace, scenario: "Scenario", end_s: float, num_nodes: int) -> list[Fault]:
    """The faults that the command line asks for; raises ConfigError for one after the last arrival."""
    kinds = possible_kinds(scenario.roles, num_nodes)
    if arguments.random is not None:
        if not arguments.random > 0:
            raise ConfigError(f"--random is {arguments.random:g}; it must be above 0 seconds")
        return random_faults(kinds, arguments.random, end_s, scenario.seed)
    if arguments.every is not None and not arguments.every > 0:
        raise ConfigError(f"--every is {arguments.every:g}; it must be above 0 seconds")
    if arguments.faults:
        faults = [parse_fault(text) for text in arguments.faults]
    else:
        faults = each_fault(kinds, 10.0 if arguments.every is None else arguments.every)
    for fault in faults:
        if fault.kind not in kinds:
            raise ConfigError(f"fault {fault.kind} finds nobody here: {KINDS[fault.kind].words}")
        if fault.at_s > end_s:
            raise ConfigError(
                f"fault {fault.kind}@{fault.at_s:g} comes after the last request, which arrives at {end_s:.0f} s; "
                "make the workload longer, or the faults closer with --every"
            )
    return faults


def _end(result: RunResult) -> Toll:
    live = result.live
    return Toll(
        live["requests_disturbed"], live["requests_resumed"], live["recomputed_tokens"], live["requests_failed"]
    )


def _ends(result: RunResult) -> str:
    """How all requests ended, and whether all faults found somebody."""
    records = result.records
    finished = records[records[:, Column.STATUS] == Status.FINISHED]
    whole = int((finished[:, Column.GENERATED_TOKENS] == finished[:, Column.OUTPUT_TOKENS]).sum())
    other = {status: int((records[:, Column.STATUS] == status).sum()) for status in (Status.ABORTED, Status.FAILED)}
    left_out = sum(fault["injected_s"] is None for fault in result.live["faults"])
    return (
        f"{result.num_requests:,} requests: {whole:,} finished with all their tokens, {other[Status.ABORTED]:,} cancelled, "
        f"{other[Status.FAILED]:,} failed, {result.num_requests - len(records):,} lost; no KV left behind."
        + (f"\n{left_out} faults found nobody to befall, or came when all was over." if left_out else "")
    )
