"""One way of serving one case, run and boiled down to what the comparison shows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.role import Phase
from metrics.latency import tpot_s, ttft_s
from metrics.records import FloatArray
from metrics.run import RoleSpan
from metrics.slo import meets
from metrics.windows import Windows
from planner.decision import RoleOrder
from planner.observation import Observation
from planner.tools import Outlook
from planner.tools import Rollout as AnyRollout
from scenario.spec import Scenario
from sim.rollout import Rollout
from sim.run import simulate, tools_of
from sim.simulator import Simulator
from sim.studies.rebalance_cases import Case

WINDOW_S = 6.0
"""Of the plots over time."""
SETTLING_S = 60.0
"""A role change later than this in a constant load is one too many."""


@dataclass(frozen=True, slots=True)
class Job:
    """A case and a way to serve it. arrivals_error: how many times too many arrivals its rollouts expect, or None
    for rollouts of what is seen."""

    case: Case
    way: str
    scenario: Scenario
    arrivals_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Rates per second of the case's span, so that all ways of one case are divided by the same."""

    way: str
    good: int
    """Requests that met every target."""
    goodput: float
    attainment: float
    missed_ttft: float
    """Share of requests."""
    missed_tpot: float
    num_role_changes: int
    num_late_changes: int
    """Of them, after SETTLING_S."""
    num_migrations: int
    gb_migrated: float
    idle_gpu_s: float
    """GPU-seconds spent draining and switching."""
    middle_s: FloatArray
    sent_rate: FloatArray
    good_rate: FloatArray
    spans: list[RoleSpan]


class MisledRollout:
    """A Rollout that expects `factor` times the arrivals it should."""

    def __init__(self, rollout: AnyRollout, factor: float) -> None:
        self._rollout = rollout
        self._factor = factor

    def __call__(self, observation: Observation, orders: Sequence[RoleOrder], horizon_s: float, seed: int) -> Outlook:
        demand = observation.demand
        told = replace(observation, demand=replace(demand, window_s=demand.window_s / self._factor))
        return self._rollout(told, orders, horizon_s, seed)


def measure(job: Job) -> Outcome:
    case, scenario = job.case, job.scenario
    if job.arrivals_error is None:
        result = simulate(scenario, case.trace, case.too_long)
    else:
        misled = MisledRollout(Rollout(scenario), job.arrivals_error)
        tools = replace(tools_of(scenario), rollout=misled)
        result = Simulator(scenario, case.trace, case.too_long, tools=tools).run()
    good = int(meets(result.records, scenario.slo).sum())
    windows = Windows.of(result.records, scenario.slo, num_windows=round(case.span_s / WINDOW_S))
    gpus = [scenario.hardware_of(role).num_gpus for role in scenario.roles]
    idle_gpu_s = sum(
        gpus[span.instance] * (span.end_s - span.start_s)
        for span in result.role_spans
        if span.phase in (Phase.DRAINING, Phase.SWITCHING)
    )
    return Outcome(
        way=job.way,
        good=good,
        goodput=good / case.span_s,
        attainment=good / len(case.trace),
        missed_ttft=_share_above(ttft_s(result.records), scenario.slo.ttft_ms),
        missed_tpot=_share_above(tpot_s(result.records), scenario.slo.tpot_ms),
        num_role_changes=len(result.role_changes),
        num_late_changes=sum(change.decided_s > SETTLING_S for change in result.role_changes),
        num_migrations=result.num_migrations,
        gb_migrated=result.kv_bytes_migrated / 1e9,
        idle_gpu_s=idle_gpu_s,
        middle_s=windows.middle_s,
        sent_rate=windows.sent_rate,
        good_rate=windows.good_rate,
        spans=result.role_spans,
    )


def _share_above(latency_s: FloatArray, target_ms: float | None) -> float:
    return 0.0 if target_ms is None else float(np.mean(latency_s > target_ms / 1e3))


def num_good(job: Job) -> int:
    """Requests that met every target."""
    result = simulate(job.scenario, job.case.trace, job.case.too_long)
    return int(np.count_nonzero(meets(result.records, job.scenario.slo)))
