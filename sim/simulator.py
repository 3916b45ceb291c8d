"""A cluster under a virtual clock: arrivals, instances, transfers and planner ticks as events."""

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter, process_time

import numpy as np
import numpy.typing as npt

from cluster.agenda import ARRIVAL, SAMPLE, TICK, Agenda
from cluster.errors import StalledError
from cluster.events import (
    Ejected,
    Event,
    Finished,
    PrefillDone,
    PrefillStarted,
    RoleCommitted,
    RoleServed,
    RoomReserved,
)
from cluster.instance import Instance
from cluster.request import Request, Status
from cluster.role import Role
from cluster.runner import Runner
from metrics.history import RoleHistory
from metrics.records import Records, as_rows
from metrics.run import RunResult, starved_notice, stopped_notice
from metrics.samples import SAMPLE_FIELDS, sample_of, until
from metrics.slo import is_good
from planner.arrow import ArrowRouter
from planner.decision import How, RoleOrder
from planner.observation import Observation
from planner.planner import Planner
from planner.tools import Tools
from scenario.build import build_demand, build_instance, build_router, instance_names, planner_tools
from scenario.loading import to_plain
from scenario.spec import Scenario
from sim.handoffs import Handoffs
from workload.trace import Trace


class Simulator:
    """One run of one scenario. `too_long` marks requests to reject (see workload.load.fit_lengths).

    `watch` is told at every sample how many requests have ended; the run stops there when it answers True, and the
    result has the requests that have ended by then. `tools` are the planner's, by default without those that simulate
    (see sim.run). `roles` are those to begin with, instead of the scenario's.
    """

    def __init__(
        self,
        scenario: Scenario,
        trace: Trace,
        too_long: npt.NDArray[np.bool_] | None = None,
        *,
        watch: Callable[[int], bool] | None = None,
        tools: Tools | None = None,
        roles: Sequence[Role] | None = None,
        logs_steps: bool = True,
    ) -> None:
        roles = scenario.roles if roles is None else list(roles)
        self.scenario = scenario
        self._watch = watch
        self._stopped = False
        self._arrivals = iter(
            zip(
                trace.arrival_s.tolist(),
                trace.prompt_tokens.tolist(),
                trace.output_tokens.tolist(),
                [False] * len(trace.arrival_s) if too_long is None else too_long.tolist(),
                strict=True,
            )
        )
        self.num_requests = len(trace.arrival_s)
        self._num_arrived = 0
        self._agenda = Agenda()
        self.instances: list[Instance] = [
            build_instance(scenario, index, role, logs_steps=logs_steps) for index, role in enumerate(roles)
        ]
        self._runners = [
            Runner(
                instance,
                self._agenda,
                self._on_event,
                switch_time_s=scenario.planner.switch_time_s,
                drain_timeout_s=scenario.planner.drain_timeout_s,
                tells_prefill_starts=scenario.handoff.initiative == "push",
            )
            for instance in self.instances
        ]
        self._router = build_router(scenario)
        self._arrow = self._router if isinstance(self._router, ArrowRouter) else None
        for instance in self.instances:
            self._router.open(instance.index, instance.role)
        self._planner = Planner(tools or planner_tools(scenario)) if scenario.planner.policy != "static" else None
        self._records = Records()
        self._history = RoleHistory(roles)
        self._planner_words: list[tuple[float, str]] = []
        self._samples = [array("d") for _ in self.instances]
        self._handoffs = Handoffs(scenario, self._agenda, self._runners, self._router)
        self._homeless: deque[Request] = deque()
        """Prompts for which no instance serves right now."""
        self._live: dict[int, Request] = {}
        self._last_s = 0.0
        """When anything last happened to a request or a role."""
        self._demand = build_demand(scenario)

    # For whoever begins in the middle of things, or stops there: see sim.rollout.

    def put(self, request: Request, instance: int) -> None:
        """At time 0, a prompt waits at an instance, or decodes there when it has had tokens."""
        self._live[request.request_id] = request
        runner = self._runners[instance]
        if request.generated:
            request.decode_instance = instance
            self._router.book_handoff(instance, request)
            runner.instance.adopt(request)
        else:
            request.hands_over = runner.instance.role is Role.PREFILL
            self._router.book_prompt(instance, request)
            runner.instance.submit(request, 0.0, hands_over=request.hands_over)

    def obey(self, order: RoleOrder) -> None:
        """Carry out a role change at time 0."""
        self._begin_change(order, 0.0)

    def run_until(self, end_s: float) -> list[Request]:
        """Run for a while; returns the requests that have not ended by then."""
        for runner in self._runners:
            runner.plan(0.0)
        self._next_arrival()
        self._agenda.run(end_s)
        return self.live()

    def live(self) -> list[Request]:
        """Requests that have not ended."""
        return list(self._live.values())

    def decoding(self) -> Iterator[tuple[Request, int, float, float]]:
        """Who decodes: tokens had, when the last came, and how long an iteration takes there."""
        for instance in self.instances:
            step = instance.in_flight[0] if instance.in_flight else None
            iteration_s = (step.end_s - step.start_s) / step.iterations if step else 0.0
            for batch in instance.batches:
                for request in batch.members.values():
                    here = batch.iteration - request.join_iteration
                    last_s = batch.last_token_s if here else request.last_token_s
                    yield request, request.generated + here, last_s, iteration_s

    def prefill_s_ahead(self, request: Request) -> float:
        """Seconds of prompts before and with a live prompt, where it waits or is computed."""
        instance = self.instances[request.prefill_instance]
        tokens = sum(one.target - one.computed for batch in instance.batches for one in batch.prefilling)
        for waiting in instance.scheduler.waiting:
            tokens += waiting.target
            if waiting is request:
                break
        return instance.cost.step_s(tokens, 1, 0.0, tokens) if tokens else 0.0

    def run(self) -> RunResult:
        """Simulate to the last request; raises StalledError when some can make no progress."""
        cpu, wall = process_time(), perf_counter()
        agenda = self._agenda
        self._next_arrival()
        agenda.at(self.scenario.sample_interval_s, SAMPLE, self._sample, None)
        if self._planner is not None:
            agenda.at(self.scenario.planner.interval_s, TICK, self._tick, None)
        agenda.run()
        if not self._stopped:
            if self._live:
                raise StalledError(self._stall_report())
            for instance in self.instances:
                instance.memory.check_empty()
        self._history.end(self._last_s)
        return self._result(process_time() - cpu, perf_counter() - wall)

    # Requests.

    def _next_arrival(self) -> None:
        row = next(self._arrivals, None)
        if row is not None:
            self._agenda.at(row[0], ARRIVAL, self._arrive, row)

    def _arrive(self, now: float, row: tuple[float, int, int, bool]) -> None:
        request = Request(self._num_arrived, now, row[1], row[2])
        self._num_arrived += 1
        self._next_arrival()
        if row[3]:
            request.enter(Status.REJECTED, now)
            self._records.add(request)
        elif request.output_tokens == 0:
            request.enter(Status.FINISHED, now)
            self._records.add(request)
        else:
            self._live[request.request_id] = request
            if self._planner is not None:
                self._demand.arrive(now, request.prompt_tokens, request.output_tokens)
            self._route_prompt(request, now)

    def _route_prompt(self, request: Request, now: float) -> None:
        choice = self._router.route_prompt(request)
        if choice is None:
            self._homeless.append(request)
        else:
            self._runners[choice.instance].submit(request, now, hands_over=request.hands_over)
            if self._arrow is not None:
                self._flip(self._arrow, now)

    def _on_event(self, event: Event, instance: Instance, now: float) -> None:
        self._last_s = now
        if isinstance(event, Finished):
            self._finish(event.request, instance, now)
        elif isinstance(event, PrefillDone):
            self._router.done(instance.index, event.request)
            self._handoffs.kv_ready(event.request, now)
        elif isinstance(event, RoomReserved):
            self._handoffs.room_reserved(event.handoff, now)
        elif isinstance(event, Ejected):
            self._handoffs.kv_ready(event.request, now)
        elif isinstance(event, PrefillStarted):
            self._handoffs.prefill_starts(event.request, event.end_s, now)
        elif isinstance(event, RoleCommitted):
            self._history.change_commits(instance.index, instance.role, now)
        elif isinstance(event, RoleServed):
            self._serve(instance, now)

    def _finish(self, request: Request, instance: Instance, now: float) -> None:
        self._handoffs.finished(request, now)
        self._router.done(instance.index, request)
        self._records.add(request)
        del self._live[request.request_id]
        if self._planner is not None:
            self._demand.end(
                now,
                request.output_tokens,
                is_good(request, self.scenario.slo),
                prompt_tokens=request.prompt_tokens,
                ttft_s=request.first_token_s - request.arrival_s,
            )
        if self._arrow is not None:
            self._flip(self._arrow, now)

    # Roles.

    def _tick(self, now: float, _: None) -> None:
        planner = self._planner
        assert planner is not None
        loads = tuple(instance.load(now) for instance in self.instances)
        observation = Observation(now, loads, self._demand.view(now))
        decision = planner.tick(observation)
        self._planner_words.append((now, decision.reason))
        for order in decision.orders:
            self._begin_change(order, now)
        if self._can_progress() or observation.changing():
            self._agenda.at(now + self.scenario.planner.interval_s, TICK, self._tick, None)

    def _flip(self, arrow: ArrowRouter, now: float) -> None:
        for order in arrow.take_orders():
            self._begin_change(replace(order, epoch=self.instances[order.instance].state.epoch), now)

    def _begin_change(self, order: RoleOrder, now: float) -> None:
        runner = self._runners[order.instance]
        self._router.close(order.instance)
        self._history.change_begins(order.instance, order.role, order.reason, now)
        change = runner.flip if order.how is How.FLIP else runner.begin_drain
        turned_away = change(order.role, order.epoch, now)
        assert turned_away is not None, "the order was made from this instance's state just now"
        for handoff in turned_away:
            self._handoffs.turned_away(handoff, now)
        if order.how is How.MIGRATE:
            if self._router.prompts.ids:
                for request in runner.recall_prompts(now):
                    self._router.done(order.instance, request)
                    self._route_prompt(request, now)
            self._handoffs.begin_migration(order.instance, now)

    def _serve(self, instance: Instance, now: float) -> None:
        self._handoffs.end_migration(instance.index)
        self._history.serves(instance.index, instance.role, now)
        self._router.open(instance.index, instance.role)
        for _ in range(len(self._homeless)):
            self._route_prompt(self._homeless.popleft(), now)
        self._handoffs.decode_serves(now)

    def _can_progress(self) -> bool:
        return (bool(self._live) or self._num_arrived < self.num_requests) and self._agenda.has_work

    # Results.

    def _sample(self, now: float, _: None) -> None:
        for instance, samples in zip(self.instances, self._samples, strict=True):
            samples.extend(sample_of(instance, now))
        if self._watch is not None and self._watch(len(self._records)):
            self._stopped = True
            self._agenda.clear()
        elif self._can_progress():
            self._agenda.at(now + self.scenario.sample_interval_s, SAMPLE, self._sample, None)

    def _stall_report(self) -> str:
        stuck = list(self._live.values())
        named = "; ".join(
            f"request {request.request_id} ({request.status.name}, needs {request.max_tokens} KV tokens)"
            for request in stuck[:5]
        )
        memory = ", ".join(f"{one.memory.free} of {one.memory.capacity} free" for one in self.instances)
        return f"{len(stuck)} requests can make no progress: {named}; KV tokens by instance: {memory}"

    def _result(self, cpu_s: float, wall_s: float) -> RunResult:
        records = self._records.table()
        starved = sum(instance.scheduler.starved_steps for instance in self.instances)
        notices = [stopped_notice(self._last_s, len(records), self.num_requests)] if self._stopped else []
        return RunResult(
            driver="simulate",
            scenario=to_plain(self.scenario),
            num_requests=len(records) if self._stopped else self.num_requests,
            duration_s=self._last_s,
            instance_names=instance_names(self.scenario),
            num_gpus=self.scenario.num_gpus,
            running_costs=[self.scenario.hardware_of(role).running_cost() for role in self.scenario.roles],
            records=records,
            step_logs=[[as_rows(log.values, log.WIDTH) for log in instance.logs] for instance in self.instances],
            extra_gaps_s=[gap for instance in self.instances for gap in instance.extra_gaps],
            role_spans=self._history.spans,
            role_changes=self._history.changes,
            planner_words=self._planner_words,
            samples=[until(as_rows(samples, len(SAMPLE_FIELDS)), self._last_s) for samples in self._samples],
            kv_capacity_tokens=[instance.memory.capacity for instance in self.instances],
            kv_bytes_moved=self._handoffs.bytes_moved,
            num_transfers=self._handoffs.num_transfers,
            num_migrations=self._handoffs.num_migrations,
            kv_bytes_migrated=self._handoffs.bytes_migrated,
            starved_steps=starved,
            cpu_s=cpu_s,
            wall_s=wall_s,
            notices=notices
            + ([starved_notice(starved)] if starved else [])
            + (self._planner.notices() if self._planner else []),
        )
