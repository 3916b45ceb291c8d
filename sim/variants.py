"""One scenario in several variants: the same requests, run through each of them."""

from collections.abc import Sequence
from dataclasses import replace

from metrics.run import RunResult
from metrics.summary import Summary, summarize
from scenario.requests import requests_of
from scenario.spec import InstanceCounts, Scenario
from sim.run import simulate
from workload.spec import Phase


def run_scenario(scenario: Scenario) -> RunResult:
    """Load the workload of a scenario and simulate it."""
    trace, too_long, notices = requests_of(scenario)
    result = simulate(scenario, trace, too_long)
    result.notices[:0] = notices
    return result


def summary_of(scenario: Scenario) -> Summary:
    return summarize(run_scenario(scenario), scenario.slo)


def splits(total: int) -> list[tuple[int, int]]:
    """Every xPyD of `total` instances, as (x, y)."""
    return [(prefill, total - prefill) for prefill in range(1, total)]


def with_split(scenario: Scenario, prefill: int, decode: int) -> Scenario:
    return replace(scenario, instances=InstanceCounts(prefill=prefill, decode=decode))


def with_policy(scenario: Scenario, policy: str) -> Scenario:
    return replace(scenario, planner=replace(scenario.planner, policy=policy))


def with_phases(scenario: Scenario, phases: Sequence[Phase]) -> Scenario:
    return replace(scenario, workload=replace(scenario.workload, phases=list(phases)))
