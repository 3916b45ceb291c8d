"""A look into the future: a copy of the cluster as observed, run forward under predicted arrivals.

The copy is made from what a planner sees, not from what the simulator knows: so many prompts of so many
tokens wait, so many sequences of so much context decode. How long they will still decode is drawn from the
outputs that were asked for lately.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isnan
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
        rng = Random(seed)
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
        had = {request.request_id: request.generated for request in simulator.live()}
        for view in observation.instances:
            if view.phase is Phase.DRAINING and view.target is not None:
                simulator.obey(RoleOrder(view.index, 0, view.target, "", "", How.DRAIN))
        for order in orders:
            simulator.obey(replace(order, epoch=0))
        running = simulator.run_until(horizon_s)
        good = bad = pending = 0
        for request, tokens, last_s in [
            *((one, one.generated, one.finished_s) for one in ended.requests),
            *((one, *simulator.progress(one)) for one in running),
        ]:
            verdict = self._judge(request, tokens, last_s, had.get(request.request_id, 0), horizon_s)
            good += verdict is True
            bad += verdict is False
            pending += verdict is None
        return Outlook(good, bad, pending)

    def _judge(self, request: Request, tokens: int, last_s: float, had: int, now: float) -> bool | None:
        """Whether a request is (so far) within its targets; None when it is too early to say."""
        start_s = 0.0
        if not had:
            if isnan(request.first_token_s):
                return False if now - request.arrival_s > self._ttft_s else None
            if request.first_token_s - request.arrival_s > self._ttft_s:
                return False
            start_s, had = request.first_token_s, 1
        if tokens <= had:
            waited = now - start_s
            return waited <= self._tpot_s * max(1, request.output_tokens - had)
        return (last_s - start_s) / (tokens - had) <= self._tpot_s


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
    """Sequences that decode at an instance, or are about to, somewhere between their first and last token."""
    count = view.num_decoding + view.num_ready + view.num_incoming
    if not count:
        return []
    outputs = [one.output_tokens for one in demand.arrived if one.output_tokens] or [
        max(2, round(demand.output_tokens))
    ]
    context = view.context_tokens / view.num_decoding if view.num_decoding else demand.prompt_tokens
    room = view.kv_capacity_tokens // count
    sequences = []
    for _ in range(count):
        output = max(2, rng.choice(outputs))
        generated = 1 + int(rng.random() * (output - 1))
        prompt = max(1, min(round(context) - generated, room - output))
        request = Request(0, -1.0, prompt, max(generated + 1, min(output, room - prompt)))
        request.generated = min(generated, request.output_tokens - 1)
        request.first_token_s = request.last_token_s = 0.0
        sequences.append(request)
    return sequences
