"""A search for the split of a fixed number of instances that serves given demand best, by simulation."""

from dataclasses import replace
from math import ceil

import numpy as np

from cluster.role import Role
from metrics.records import Column
from metrics.slo import meets
from planner.config import PlannerConfig
from planner.demand import Demand
from scenario.build import request_limit_tokens
from scenario.spec import Scenario
from sim.simulator import Simulator
from workload.trace import Trace, TraceInfo

RATE_STEP, MAX_STEPS = 1.5, 4
"""Splits that serve demand alike are told apart at a rate so many times as high, and again."""
STAYS = 2
"""Simulated time, in stays of a request that decodes at the TPOT target: the cluster fills in the first half."""
ALIKE = 0.01
"""A difference in the share of good requests that says nothing."""


class SplitSearch:
    """Callable as planner.tools.Replan: the split with the highest goodput, as far as rates are tried."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = replace(scenario, planner=PlannerConfig())
        self._config = scenario.planner
        self._limit = request_limit_tokens(scenario)

    def __call__(self, demand: Demand, instances: int) -> tuple[int, int]:
        config = self._config
        most = instances - config.min_decode
        left = [(prefill, instances - prefill) for prefill in range(config.min_prefill, most + 1)]
        for step in range(MAX_STEPS):
            trace = self._requests_like(demand, demand.request_rate * RATE_STEP**step)
            shares = [self._share_good(trace, *split) for split in left]
            best = max(shares)
            left = [split for split, share in zip(left, shares, strict=True) if share >= best - ALIKE]
            if len(left) == 1 or best < self._scenario.slo.attainment:
                break
        return left[len(left) // 2]

    def _requests_like(self, demand: Demand, request_rate: float) -> Trace:
        """Poisson arrivals of the lengths that came in the demand."""
        rng = np.random.default_rng(self._scenario.seed)
        typical = max(1, round(demand.output_tokens))
        stay_s = typical * (self._scenario.slo.tpot_ms or 0.0) / 1e3
        count = max(self._config.replan.num_requests, ceil(STAYS * stay_s * request_rate))
        lengths = np.array([(one.prompt_tokens, one.output_tokens or typical) for one in demand.arrived])
        prompts, outputs = lengths[rng.integers(len(lengths), size=count)].T
        outputs = np.minimum(outputs, self._limit - prompts)
        arrivals = np.cumsum(rng.exponential(1 / request_rate, count))
        return Trace(arrivals, prompts, outputs, TraceInfo(source="demand", format="demand", unit="s", num_rows=count))

    def _share_good(self, trace: Trace, prefill: int, decode: int) -> float:
        """Of the requests of the second half: the first ones find an empty cluster."""
        roles = [Role.PREFILL] * prefill + [Role.DECODE] * decode
        records = Simulator(self._scenario, trace, roles=roles, logs_steps=False).run().records
        settled = records[records[:, Column.REQUEST_ID] >= len(trace) // 2]
        return float(meets(settled, self._scenario.slo).mean())
