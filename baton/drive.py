"""Runs a scenario from Python: under the virtual clock, or live on Ray."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from baton.run import Run
from metrics.curves import Curves
from metrics.files import check_folder, write_run
from metrics.request_lines import request_lines
from metrics.run import RunResult
from metrics.summary import summarize
from scenario.loading import dump_scenario
from scenario.requests import requests_of
from scenario.spec import Scenario
from sim.run import tools_of
from sim.variants import run_scenario


def simulate(scenario: Scenario, *, out: str | Path | None = None) -> Run:
    """Run a scenario under the virtual clock: tens of thousands of requests per second.

    out: a folder for the files that `baton simulate --out` writes. Raises ConfigError, CapacityError or TraceError for
    what cannot run, and StalledError for what stops half-way.
    """
    if out is not None:
        check_folder(out)
    return _finish(scenario, run_scenario(scenario), out)


def replay(scenario: Scenario, *, address: str | None = None, out: str | Path | None = None) -> Run:
    """Run a scenario live on Ray, which takes as long as its workload lasts times `live.time_scale`.

    address: a running cluster, "auto" or HOST:PORT; without one a Ray of its own is started and ended. out and errors
    as for `simulate`. May be called where an event loop runs, as in a notebook.
    """
    from actors.replay import replay as replay_on_ray

    if out is not None:
        check_folder(out)
    trace, too_long, notices = requests_of(scenario)
    with ThreadPoolExecutor(1) as thread:  # which has no event loop yet
        result = thread.submit(
            replay_on_ray,
            scenario,
            trace,
            too_long,
            address=address,
            tools=tools_of(scenario),
        ).result()
    result.notices[:0] = notices
    return _finish(scenario, result, out)


def _finish(scenario: Scenario, result: RunResult, out: str | Path | None) -> Run:
    curves = Curves.of(result)
    if out is None:
        summary = summarize(result, scenario.slo)
    else:
        summary = write_run(out, result, scenario.slo, dump_scenario(scenario), curves=curves)
    rows = [orjson.loads(line) for chunk in request_lines(result.records, scenario.slo) for line in chunk.splitlines()]
    return Run(scenario.name, summary, rows, curves)
