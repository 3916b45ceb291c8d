"""`baton goodput`: the highest rate that a scenario sustains."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.run_arguments import add_run_arguments, scenario_of

if TYPE_CHECKING:
    from rich.table import Table

    from scenario.spec import Scenario
    from sim.capacity import Capacity
    from sim.goodput import GoodputResult, Trial
    from sim.probe import Finding

DESCRIPTION = """Find the highest rate at which enough requests meet every SLO and no backlog grows.

Arrivals are rescaled from rate to rate, with the same requests at each; of a trace, lengths are drawn and arrivals
are Poisson."""
EXAMPLES = """examples:
  baton goodput steady-8b
  baton goodput steady-8b --set instances.prefill=1 --set instances.decode=3 --target 0.99
  baton goodput colocated-8b --trace azure_llm_2023_code.csv --goodput ttft:1000 tpot:40 --out runs/goodput
"""
NONE_PASSES = 2
_MAX_FACTOR = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(
        parser,
        request_rate="begin the search here",
        num_requests="judge a rate by so many requests (default: 1000), by more where it is close",
        out="write goodput.json, and the files of the run at that rate, here",
    )
    search = parser.add_argument_group("search")
    search.add_argument("--target", type=float, metavar="SHARE", help="requests that must be good (default: the SLO's)")
    search.add_argument("--tolerance", type=float, default=0.02, metavar="SHARE", help="relative, default 0.02")
    search.add_argument("--min-rate", type=float, metavar="RPS", help="give up below this rate")
    search.add_argument("--max-rate", type=float, metavar="RPS", help="look no further than this rate")


def run(arguments: argparse.Namespace) -> int:
    from sim.capacity import capacity_of
    from sim.probe import Probe
    from sim.sustain import Sampling

    scenario = searched_scenario(arguments)
    counted = scenario.workload.num_requests or scenario.workload.resample
    sampling = Sampling(counted, _MAX_FACTOR * counted) if counted else Sampling()
    shows = sys.stderr.isatty() and not arguments.quiet
    capacity = capacity_of(
        Probe(scenario, sampling=sampling, drift_limit=arguments.tolerance),
        hint=arguments.request_rate,
        lowest=arguments.min_rate,
        highest=arguments.max_rate,
        relative_tolerance=arguments.tolerance,
        on_trial=_show if shows else None,
    )
    result = capacity.goodput
    plain = _plain(scenario, capacity)
    if arguments.out:
        _write(arguments.out, scenario, result, plain)
    if arguments.json:
        import orjson

        print(orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode())
    else:
        _print(scenario, result, plain)
        if arguments.out:
            print(f"Files: {arguments.out}/ (goodput.json, and the run at that rate)")
    return NONE_PASSES if result.status == "none_pass" else 0


def searched_scenario(arguments: argparse.Namespace) -> "Scenario":
    """The scenario of the command line, its trace to be resampled; raises ConfigError."""
    if arguments.trace is not None and arguments.resample is None:
        from sim.sustain import Sampling

        arguments.resample = arguments.num_requests or Sampling().num_requests
    if arguments.target is not None:
        arguments.settings = [*arguments.settings, f"slo.attainment={arguments.target}"]
    return scenario_of(arguments)


def _show(trial: "Trial[Finding]") -> None:
    verdict = trial.verdict.verdict
    print(f"{trial.request_rate:10.4g} req/s  {verdict.reason or 'sustained'}", file=sys.stderr)


def _plain(scenario: "Scenario", capacity: "Capacity") -> dict[str, Any]:
    from metrics.summary import baton_version

    result = capacity.goodput
    rate, refusal = result.request_rate, result.refusal
    return {
        "name": scenario.name,
        "version": baton_version(),
        "seed": scenario.seed,
        "slo": asdict(scenario.slo),
        "status": result.status,
        "request_rate": rate,
        "num_gpus": scenario.num_gpus,
        "goodput_per_gpu": None if rate is None else rate / scenario.num_gpus,
        "attainment": result.attainment,
        "fails_at": None if refusal is None else refusal.request_rate,
        "limit": capacity.limit or None,
        "history": [{"request_rate": trial.request_rate, **asdict(trial.verdict.verdict)} for trial in result.history],
    }


def _write(out: str, scenario: "Scenario", result: "GoodputResult[Finding]", plain: dict[str, Any]) -> None:
    """goodput.json, and the files of the run at the rate found, or where it failed when none was."""
    import orjson

    from metrics.files import write_run
    from scenario.loading import dump_scenario
    from sim.traffic import at_rate
    from sim.variants import run_scenario

    trial = result.best or result.refusal
    assert trial is not None
    shown = at_rate(scenario, trial.request_rate, trial.verdict.verdict.num_requests)
    write_run(out, run_scenario(shown), shown.slo, dump_scenario(shown))
    Path(out, "goodput.json").write_bytes(orjson.dumps(plain, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _print(scenario: "Scenario", result: "GoodputResult[Finding]", plain: dict[str, Any]) -> None:
    from metrics.facts import number
    from metrics.summary_text import plain_text

    print(plain_text(_history(scenario, result), width=120))
    slo = scenario.slo
    targets = [f"{name} {getattr(slo, field):g} ms" for name, field in _slos(scenario).items()]
    within = f"{100 * slo.attainment:g} % of requests within {' and '.join(targets)}" if targets else "no SLO"
    rate = result.request_rate
    if rate is None:
        print(f"No rate passes: not even {number(plain['fails_at'])} req/s, with {within}.")
    else:
        per_gpu = f"{number(plain['goodput_per_gpu'])} per GPU on {scenario.num_gpus}"
        bound = "at least " if result.status == "all_pass" else ""
        print(f"Goodput: {bound}{number(rate)} req/s, {per_gpu}, with {within}.")
    if plain["limit"]:
        print(f"Limit: at {number(plain['fails_at'])} req/s, {plain['limit']}.")


def _history(scenario: "Scenario", result: "GoodputResult[Finding]") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from metrics.facts import number, percent

    names = list(_slos(scenario))
    table = Table(box=SIMPLE_HEAD, title=f"Rates tried for {scenario.name}", title_justify="left")
    for column in ("req/s", "", "good", *names, "delay p50", "backlog growth", "requests", "why it fails"):
        table.add_column(column, justify="left" if column in ("", "why it fails") else "right", no_wrap=True)
    for trial in sorted(result.history, key=lambda one: one.request_rate):
        verdict = trial.verdict.verdict
        table.add_row(
            number(trial.request_rate),
            "passes" if verdict.passed else "fails",
            percent(verdict.attainment),
            *(percent(verdict.attainment_by_slo.get(name)) for name in names),
            f"{1e3 * verdict.delay_s:,.0f} ms",
            percent(verdict.drift),
            f"{verdict.num_requests:,}",
            verdict.reason,
        )
    return table


def _slos(scenario: "Scenario") -> dict[str, str]:
    from sim.sustain import SLO_FIELDS

    return {name: field for name, field in SLO_FIELDS.items() if getattr(scenario.slo, field) is not None}
