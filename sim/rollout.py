"""A look into the future: a copy of the cluster as observed, run forward under predicted arrivals.

The copy is made from what a planner sees, not from what the simulator knows: so many prompts of so many
tokens wait, so many sequences of so much context decode. How long they will still decode is drawn from the
outputs that were asked for lately.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from random import Random

import numpy as np

from cluster.load import LoadView
from cluster.request import Request
from cluster.role import Phase
from metrics.records import Records
from planner.config import PlannerConfig
from planner.decision import How, RoleOrder
from planner.demand import Demand
from planner.observation import Observation
from planner.tools import Outlook
from scenario.spec import Scenario
from sim.simulator import Simulator
from workload.trace import Trace, TraceInfo

PLACED_IDS = 10**9
"""Requests that are there at the start are numbered from here, apart from those to come."""


class Rollout:
    """Callable as planner.tools.Rollout. Requests to come are the same for all orders tried with one seed."""

    def __init__(self, scenario: Scenario) -> None:
        planner = scenario.planner
        kept = PlannerConfig(
            switch_time_s=planner.switch_time_s,
            drain_timeout_s=planner.drain_timeout_s,
            migrations_at_once=planner.migrations_at_once,
        )
        self._scenario = replace(scenario, planner=kept)
        self._ttft_s = inf if scenario.slo.ttft_ms is None else scenario.slo.ttft_ms / 1e3
        self._tpot_s = inf if scenario.slo.tpot_ms is None else scenario.slo.tpot_ms / 1e3

    def __call__(self, observation: Observation, orders: Sequence[RoleOrder], horizon_s: float, seed: int) -> Outlook:
        with _no_collection():
            return self._run(observation, orders, horizon_s, Random(seed))

    def _run(self, observation: Observation, orders: Sequence[RoleOrder], horizon_s: float, rng: Random) -> Outlook:
        demand = observation.demand
        simulator = Simulator(
            self._scenario,
            _predicted(demand, horizon_s, rng),
            roles=[view.role for view in observation.instances],
            logs_steps=False,
        )
        ended = _Ended()
        simulator._records = ended
        placed = 0
        for view in observation.instances:
            for request in [*_waiting(view, demand), *_decoding(view, demand, rng)]:
                request.request_id = PLACED_IDS + placed
                placed += 1
                simulator.put(request, view.index)
        for view in observation.instances:
            if view.phase is Phase.DRAINING and view.target is not None:
                simulator.obey(RoleOrder(view.index, 0, view.target, "", "", How.DRAIN))
        for order in orders:
            simulator.obey(replace(order, epoch=0))
        running = simulator.run_until(horizon_s)
        verdicts = [self._meets(one, one.finished_s) for one in ended.requests]
        decoding = set()
        for request, tokens, last_s, iteration_s in simulator.decoding():
            decoding.add(request.request_id)
            verdicts.append(self._meets(request, last_s + (request.output_tokens - tokens) * iteration_s))
        waiting = [request for request in running if request.request_id not in decoding]
        verdicts += [self._will_meet(request, simulator, horizon_s) for request in waiting]
        good = sum(verdicts)
        return Outlook(good, len(verdicts) - good)

    def _will_meet(self, request: Request, simulator: Simulator, now: float) -> bool:
        """Whether a request that waits, or whose KV is on its way, will be within its targets if all goes on so."""
        if request.generated:
            return self._meets(request, now)
        return now - request.arrival_s + simulator.prefill_s_ahead(request) <= self._ttft_s

    def _meets(self, request: Request, last_s: float) -> bool:
        """TTFT and TPOT against the targets, when the last token comes at `last_s`."""
        if request.first_token_s - request.arrival_s > self._ttft_s:
            return False
        return (last_s - request.first_token_s) / max(1, request.output_tokens - 1) <= self._tpot_s


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection meanwhile: it would find nothing, and take as long as the rollout."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Ended(Records):
    """Keeps requests themselves: there are few, and their verdict is not that of a whole run."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []

    def add(self, request: Request) -> None:
        self.requests.append(request)


def _predicted(demand: Demand, horizon_s: float, rng: Random) -> Trace:
    """Arrivals at the rate of the window, of the lengths that came in it."""
    rate = demand.request_rate
    arrivals, prompts, outputs = [], [], []
    now = rng.expovariate(rate) if rate else inf
    typical = max(1, round(demand.output_tokens))
    while now < horizon_s:
        like = rng.choice(demand.arrived)
        arrivals.append(now)
        prompts.append(like.prompt_tokens)
        outputs.append(like.output_tokens or typical)
        now += rng.expovariate(rate)
    info = TraceInfo(source="prediction", format="prediction", unit="s", num_rows=len(arrivals))
    return Trace(np.array(arrivals), np.array(prompts, dtype=np.int64), np.array(outputs, dtype=np.int64), info)


def _waiting(view: LoadView, demand: Demand) -> list[Request]:
    """Prompts that wait at an instance, evenly aged and equally long, the oldest first."""
    count = view.num_waiting + view.num_prefilling
    if not count:
        return []
    tokens = max(1, round(view.queued_tokens / count)) if view.queued_tokens else max(1, round(demand.prompt_tokens))
    output = max(2, round(demand.output_tokens))
    return [Request(0, -view.oldest_wait_s * (count - number) / count, tokens, output) for number in range(count)]


def _decoding(view: LoadView, demand: Demand, rng: Random) -> list[Request]:
    """Sequences that decode at an instance, or are about to.

    Where output is reserved at admission, what is set aside beyond their contexts is what they have yet to
    decode; else that is half of what is asked for lately. What they have had and what is to come is shared out
    at random, with the observed means; all have been served at the same pace.
    """
    count = view.num_decoding + view.num_ready + view.num_incoming
    if not count:
        return []
    context = round(view.context_tokens / view.num_decoding) if view.num_decoding else round(demand.prompt_tokens) + 1
    context = max(2, context)
    left = (view.kv_used_tokens - count * context) / count if demand.declares else demand.output_tokens / 2
    room = view.kv_capacity_tokens // count - context
    mean_had = view.generated_tokens / view.num_decoding if view.num_decoding else 1.0
    pace_s = view.decoding_s / max(1.0, mean_had)
    sequences = []
    for _ in range(count):
        to_come = max(1, min(room, round(rng.expovariate(1 / max(1.0, left)))))
        had = max(1, min(context - 1, round(rng.expovariate(1 / max(1.0, mean_had)))))
        request = Request(0, -had * pace_s, context - had, had + to_come)
        request.generated = had
        request.first_token_s, request.last_token_s = -had * pace_s, 0.0
        sequences.append(request)
    return sequences
