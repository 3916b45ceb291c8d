"""A cluster under a virtual clock: arrivals, instances, transfers and planner ticks as events."""

from collections import deque
from time import perf_counter, process_time
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster.errors import StalledError
from cluster.events import Event, Finished, PrefillDone, RoomReserved
from cluster.fabric import Fabric, Flow
from cluster.handoff import Handoff, HandoffState
from cluster.instance import Instance
from cluster.request import Request, Status
from cluster.role import Phase
from metrics.records import Records
from metrics.run import RoleChange, RunResult
from planner.decision import RoleOrder
from planner.observation import Observation
from planner.planner import Planner
from scenario.build import build_instance, build_router, initial_roles, instance_names
from scenario.loading import to_plain
from scenario.spec import Scenario
from sim.history import History
from sim.loop import ARRIVAL, FLOW_END, ROLE, SAMPLE, STEP_END, TICK, EventLoop
from workload.trace import Trace


class Simulator:
    """One run of one scenario. `too_long` marks requests to reject (see workload.load.fit_lengths)."""

    def __init__(self, scenario: Scenario, trace: Trace, too_long: npt.NDArray[np.bool_] | None = None) -> None:
        self.scenario = scenario
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
        self._kv_bytes_per_token = scenario.model.kv_bytes_per_token
        self._link = scenario.link
        self._fabric = Fabric()
        self.instances: list[Instance] = [
            build_instance(scenario, index, role) for index, role in enumerate(initial_roles(scenario))
        ]
        self._router = build_router(scenario)
        for instance in self.instances:
            self._router.open(instance.index, instance.role)
        self._planner = Planner(scenario.planner) if scenario.planner.policy != "static" else None
        self._loop = EventLoop()
        self._records = Records()
        self._history = History(self.instances)
        self._changing: set[int] = set()
        self._homeless_prompts: deque[Request] = deque()
        """Prompts and handoffs for which no instance of the role serves right now."""
        self._homeless_handoffs: deque[Request] = deque()
        self._live: dict[int, Request] = {}
        self._num_transfers = 0
        self._kv_bytes_moved = 0

    def run(self) -> RunResult:
        """Simulate to the last request; raises StalledError when some can make no progress."""
        cpu, wall = process_time(), perf_counter()
        loop = self._loop
        self._next_arrival()
        loop.at(self.scenario.sample_interval_s, SAMPLE, self._sample, None)
        if self._planner is not None:
            loop.at(self.scenario.planner.interval_s, TICK, self._tick, None)
        loop.run()
        if self._live:
            raise StalledError(self._stall_report())
        for instance in self.instances:
            instance.memory.check_empty()
        self._history.end(loop.now)
        return self._result(process_time() - cpu, perf_counter() - wall)

    # Requests.

    def _next_arrival(self) -> None:
        row = next(self._arrivals, None)
        if row is not None:
            self._loop.at(row[0], ARRIVAL, self._arrive, row)

    def _arrive(self, now: float, row: tuple[float, int, int, bool]) -> None:
        request = Request(self._num_arrived, now, row[1], row[2])
        self._num_arrived += 1
        self._next_arrival()
        if row[3]:
            request.enter(Status.REJECTED, now)
            self._records.add(request)
        elif request.output_tokens == 0:
            request.enter(Status.QUEUED, now)
            request.enter(Status.FINISHED, now)
            self._records.add(request)
        else:
            self._live[request.request_id] = request
            self._route_prompt(request, now)

    def _route_prompt(self, request: Request, now: float) -> None:
        choice = self._router.route_prompt(request)
        if choice is None:
            self._homeless_prompts.append(request)
            return
        instance = self.instances[choice.instance]
        instance.submit(request, now)
        self._plan(instance, now)

    def _plan(self, instance: Instance, now: float) -> None:
        step = instance.plan(now)
        if step is not None:
            end = step.end_s
            self._loop.at(end, STEP_END, self._complete, instance)
            if step.next_plan_s < end:
                self._loop.at(step.next_plan_s, STEP_END, self._plan_again, instance)

    def _plan_again(self, now: float, instance: Instance) -> None:
        self._plan(instance, now)

    def _complete(self, now: float, instance: Instance) -> None:
        in_flight = instance.in_flight
        if not in_flight or in_flight[0].end_s != now:
            return
        for event in instance.complete(now):
            self._apply(event, instance, now)
        self._plan(instance, now)
        if self._changing:
            self._check_drained(instance, now)

    def _apply(self, event: Event, instance: Instance, now: float) -> None:
        kind = type(event)
        if kind is Finished:
            request = event.request
            self._router.done(instance.index, request)
            self._records.add(request)
            del self._live[request.request_id]
        elif kind is PrefillDone:
            self._router.done(instance.index, event.request)
            self._hand_over(event.request, now)
        elif kind is RoomReserved:
            self._start_transfer(event.handoff, now)

    # Handoffs.

    def _hand_over(self, request: Request, now: float) -> None:
        choice = self._router.route_handoff(request)
        if choice is None:
            self._homeless_handoffs.append(request)
            return
        target = self.instances[choice.instance]
        num_bytes = request.target * self._kv_bytes_per_token
        handoff = Handoff(request, request.prefill_instance, target.index, target.state.epoch, num_bytes)
        if target.accept(handoff, now):
            self._start_transfer(handoff, now)

    def _start_transfer(self, handoff: Handoff, now: float) -> None:
        handoff.enter(HandoffState.MOVING)
        self._num_transfers += 1
        self._kv_bytes_moved += handoff.num_bytes
        flow = Flow(handoff.source, handoff.target, handoff.num_bytes, self._link, now, handoff)
        self._schedule_flows(self._fabric.start(flow, now))

    def _schedule_flows(self, flows: list[Flow]) -> None:
        for flow in flows:
            self._loop.at(flow.end_s, FLOW_END, self._flow_end, flow)

    def _flow_end(self, now: float, flow: Flow) -> None:
        handoff = flow.what
        if flow.end_s != now or handoff.state is not HandoffState.MOVING:
            return
        moved = self._fabric.end(flow, now)
        if moved:
            self._schedule_flows(moved)
        source, target = self.instances[flow.source], self.instances[flow.target]
        source.release(handoff.request)
        target.receive(handoff, now)
        self._plan(target, now)
        if not source.in_flight:
            self._plan(source, now)
            if self._changing:
                self._check_drained(source, now)

    # Roles.

    def _tick(self, now: float, _: None) -> None:
        planner = self._planner
        assert planner is not None
        for index in list(self._changing):
            self._check_timeout(self.instances[index], now)
        observation = Observation(now, tuple(instance.load(now) for instance in self.instances))
        for order in planner.tick(observation).orders:
            self._begin_change(order, now)
        if self._live or self._num_arrived < self.num_requests or self._changing:
            self._loop.at(now + self.scenario.planner.interval_s, TICK, self._tick, None)

    def _begin_change(self, order: RoleOrder, now: float) -> None:
        instance = self.instances[order.instance]
        turned_away = instance.begin_drain(order.role, order.epoch, now)
        if turned_away is None:
            return
        self._router.close(instance.index)
        self._changing.add(instance.index)
        self._history.change_begins(instance, order.reason, now)
        for handoff in turned_away:
            handoff.enter(HandoffState.FAILED)
            self._router.done(instance.index, handoff.request)
            self._hand_over(handoff.request, now)
        self._check_drained(instance, now)

    def _check_drained(self, instance: Instance, now: float) -> None:
        if instance.index in self._changing and instance.drained:
            instance.commit_role(now)
            self._history.change_commits(instance, now)
            self._loop.at(now + self.scenario.planner.switch_time_s, ROLE, self._serve, instance)

    def _serve(self, now: float, instance: Instance) -> None:
        instance.serve(now)
        self._changing.discard(instance.index)
        self._history.change_serves(instance, now)
        self._reopen(instance, now)

    def _check_timeout(self, instance: Instance, now: float) -> None:
        draining = instance.state.phase is Phase.DRAINING
        if draining and now - instance.state.since_s > self.scenario.planner.drain_timeout_s:
            instance.state.rollback(now)
            self._changing.discard(instance.index)
            self._history.change_rolls_back(instance, now)
            self._reopen(instance, now)

    def _reopen(self, instance: Instance, now: float) -> None:
        self._router.open(instance.index, instance.role)
        for request in _drain(self._homeless_prompts):
            self._route_prompt(request, now)
        for request in _drain(self._homeless_handoffs):
            self._hand_over(request, now)

    # Results.

    def _sample(self, now: float, _: None) -> None:
        self._history.sample(now)
        if self._live or self._num_arrived < self.num_requests:
            self._loop.at(now + self.scenario.sample_interval_s, SAMPLE, self._sample, None)

    def _stall_report(self) -> str:
        stuck = list(self._live.values())
        named = "; ".join(
            f"request {request.request_id} ({request.status.name}, needs {request.max_tokens} KV tokens)"
            for request in stuck[:5]
        )
        memory = ", ".join(f"{one.memory.free} of {one.memory.capacity} free" for one in self.instances)
        return f"{len(stuck)} requests can make no progress: {named}; KV tokens by instance: {memory}"

    def _result(self, cpu_s: float, wall_s: float) -> RunResult:
        starved = sum(instance.scheduler.starved_steps for instance in self.instances)
        notices = []
        if starved:
            notices.append(
                f"the token budget left no room for prompts beside the running decodes in {starved} steps: "
                "raise engine.token_budget or lower engine.max_batch"
            )
        return RunResult(
            driver="simulate",
            scenario=to_plain(self.scenario),
            num_requests=self.num_requests,
            duration_s=self._history.last_work_s,
            instance_names=instance_names(self.scenario),
            num_gpus=self.scenario.num_gpus,
            records=self._records.table(),
            step_logs=[
                [np.array(log.values).reshape(-1, log.WIDTH) for log in instance.logs] for instance in self.instances
            ],
            extra_gaps_s=[gap for instance in self.instances for gap in instance.extra_gaps],
            role_spans=self._history.spans,
            role_changes=self._history.changes,
            samples=self._history.samples(),
            kv_capacity_tokens=[instance.memory.capacity for instance in self.instances],
            kv_bytes_moved=self._kv_bytes_moved,
            num_transfers=self._num_transfers,
            starved_steps=starved,
            cpu_s=cpu_s,
            wall_s=wall_s,
            notices=notices,
        )


def _drain(queue: deque[Request]) -> list[Request]:
    requests = list(queue)
    queue.clear()
    return requests
