"""A cluster under a virtual clock: arrivals, instances, transfers and planner ticks as events."""

from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
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
from cluster.fabric import Fabric, Flow
from cluster.handoff import Handoff, HandoffState
from cluster.instance import Instance
from cluster.link import LinkSpec
from cluster.request import Request, Status
from cluster.runner import Runner
from metrics.history import RoleHistory
from metrics.records import Records, as_rows
from metrics.run import RunResult, starved_notice
from metrics.samples import SAMPLE_FIELDS, sample_of
from planner.decision import How, RoleOrder
from planner.observation import Observation
from planner.planner import Planner
from scenario.build import Placement, build_instance, build_router, instance_names
from scenario.loading import to_plain
from scenario.spec import Scenario
from workload.trace import Trace


class Simulator:
    """One run of one scenario. `too_long` marks requests to reject (see workload.load.fit_lengths).

    `watch` is told at every sample how many requests have ended.
    """

    def __init__(
        self,
        scenario: Scenario,
        trace: Trace,
        too_long: npt.NDArray[np.bool_] | None = None,
        *,
        watch: Callable[[int], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self._watch = watch
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
        self._agenda = Agenda()
        self._fabric = Fabric(self._agenda, self._kv_arrives)
        self.instances: list[Instance] = [
            build_instance(scenario, index, role) for index, role in enumerate(scenario.roles)
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
        for instance in self.instances:
            self._router.open(instance.index, instance.role)
        self._planner = Planner(scenario.planner) if scenario.planner.policy != "static" else None
        self._records = Records()
        self._history = RoleHistory(scenario.roles)
        self._samples = [array("d") for _ in self.instances]
        self._homeless_prompts: deque[Request] = deque()
        """Prompts and handoffs for which no instance of the role serves right now."""
        self._homeless_handoffs: deque[Request] = deque()
        self._live: dict[int, Request] = {}
        self._last_s = 0.0
        """When anything last happened to a request or a role."""
        self._placement = Placement(scenario)
        self._layerwise = scenario.handoff.mode == "layerwise"
        self._pushed: dict[int, Handoff] = {}
        """Handoffs offered before their prompt was complete, by request."""
        self._held_back: dict[int, Flow] = {}
        """Layer-wise flows whose prefill step goes on, by request."""
        self._migrating: dict[int, int] = {}
        """Draining instances whose requests go on elsewhere, and how many are on their way."""
        self._sources: dict[int, int] = {}
        """Where the KV of a migrating request is."""
        self._num_migrations = 0
        self._kv_bytes_migrated = 0
        self._num_transfers = 0
        self._kv_bytes_moved = 0

    def run(self) -> RunResult:
        """Simulate to the last request; raises StalledError when some can make no progress."""
        cpu, wall = process_time(), perf_counter()
        agenda = self._agenda
        self._next_arrival()
        agenda.at(self.scenario.sample_interval_s, SAMPLE, self._sample, None)
        if self._planner is not None:
            agenda.at(self.scenario.planner.interval_s, TICK, self._tick, None)
        agenda.run()
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
            self._route_prompt(request, now)

    def _route_prompt(self, request: Request, now: float) -> None:
        choice = self._router.route_prompt(request)
        if choice is None:
            self._homeless_prompts.append(request)
        else:
            self._runners[choice.instance].submit(request, now, hands_over=request.hands_over)

    def _on_event(self, event: Event, instance: Instance, now: float) -> None:
        self._last_s = now
        if isinstance(event, Finished):
            request = event.request
            self._router.done(instance.index, request)
            self._records.add(request)
            del self._live[request.request_id]
        elif isinstance(event, PrefillDone):
            self._router.done(instance.index, event.request)
            self._prefill_done(event.request, now)
        elif isinstance(event, RoomReserved):
            self._room_reserved(event.handoff, now)
        elif isinstance(event, Ejected):
            self._prefill_done(event.request, now)
        elif isinstance(event, PrefillStarted):
            self._prefill_starts(event.request, event.end_s, now)
        elif isinstance(event, RoleCommitted):
            self._history.change_commits(instance.index, instance.role, now)
        elif isinstance(event, RoleServed):
            self._serve(instance, now)

    # Handoffs.

    def _prefill_starts(self, request: Request, end_s: float, now: float) -> None:
        """With push: ask for room at decode while the prompt is computed, and send layers as they are ready."""
        handoff = self._offer(request, now)
        if handoff is None:
            return
        self._pushed[request.request_id] = handoff
        if self._layerwise and handoff.state is HandoffState.RESERVED:
            handoff.enter(HandoffState.MOVING)
            self._held_back[request.request_id] = self._fabric.start_layerwise(
                handoff,
                self._link_of(handoff),
                now,
                prefill_s=end_s - now,
                last_layer_bytes=self._last_layer_bytes(handoff),
            )

    def _prefill_done(self, request: Request, now: float) -> None:
        handoff = self._pushed.pop(request.request_id, None)
        if handoff is None:
            handoff = self._offer(request, now)
        if handoff is None:
            self._homeless_handoffs.append(request)
        elif handoff.state is HandoffState.MOVING:
            handoff.begin(now)
            flow = self._held_back.pop(request.request_id)
            self._fabric.finish_prefill(flow, self._last_layer_bytes(handoff), now)
        elif handoff.state is HandoffState.RESERVED:
            self._start_transfer(handoff, now)

    def _offer(self, request: Request, now: float) -> Handoff | None:
        """Choose a decode instance and offer it the request's KV; None while nobody serves decode."""
        choice = self._router.route_handoff(request)
        if choice is None:
            return None
        runner = self._runners[choice.instance]
        num_bytes = request.target * self._kv_bytes_per_token
        epoch = runner.instance.state.epoch
        source = self._sources.get(request.request_id, request.prefill_instance)
        handoff = Handoff(request, source, choice.instance, epoch, num_bytes)
        runner.accept(handoff, now)
        return handoff

    def _room_reserved(self, handoff: Handoff, now: float) -> None:
        if handoff.request.status is Status.HANDOFF:
            self._start_transfer(handoff, now)

    def _start_transfer(self, handoff: Handoff, now: float) -> None:
        handoff.begin(now)
        self._fabric.start(handoff, self._link_of(handoff), now)

    def _link_of(self, handoff: Handoff) -> LinkSpec:
        return self._placement.link_between(handoff.source, handoff.target)

    def _last_layer_bytes(self, handoff: Handoff) -> float:
        return handoff.num_bytes / self.scenario.model.num_layers

    def _kv_arrives(self, flow: Flow, now: float) -> None:
        handoff = flow.handoff
        source, request = handoff.source, handoff.request
        self._num_transfers += 1
        self._kv_bytes_moved += handoff.num_bytes
        self._runners[handoff.target].receive(handoff, now)
        self._runners[source].release(request, now)
        if self._sources.pop(request.request_id, None) is not None:
            self._num_migrations += 1
            self._kv_bytes_migrated += handoff.num_bytes
            if source in self._migrating:
                self._migrating[source] -= 1
                self._migrate(source, now)

    def _migrate(self, source: int, now: float) -> None:
        """Send more decoding requests of a draining instance elsewhere, a few at a time, while there is room."""
        runner = self._runners[source]
        batches = runner.instance.batches
        staying = [one for batch in batches for one in (*batch.ready, *batch.members.values())]
        for request in staying:
            if self._migrating[source] >= self.scenario.planner.migrations_at_once:
                return
            if request.request_id in self._sources:
                continue
            if self._router.route_migration(request, source, partial(self._has_room, request)) is None:
                return
            self._migrating[source] += 1
            self._sources[request.request_id] = source
            runner.eject(request, now)

    def _has_room(self, request: Request, instance: int) -> bool:
        target = self.instances[instance]
        return not target.offers and target.scheduler.has_room(request, stays=True)

    # Roles.

    def _tick(self, now: float, _: None) -> None:
        planner = self._planner
        assert planner is not None
        observation = Observation(now, tuple(instance.load(now) for instance in self.instances))
        for order in planner.tick(observation).orders:
            self._begin_change(order, now)
        if self._can_progress() or observation.changing():
            self._agenda.at(now + self.scenario.planner.interval_s, TICK, self._tick, None)

    def _begin_change(self, order: RoleOrder, now: float) -> None:
        runner = self._runners[order.instance]
        self._router.close(order.instance)
        self._history.change_begins(order.instance, order.role, order.reason, now)
        change = runner.flip if order.how is How.FLIP else runner.begin_drain
        turned_away = change(order.role, order.epoch, now)
        assert turned_away is not None, "the order was made from this instance's state just now"
        for handoff in turned_away:
            handoff.enter(HandoffState.FAILED)
            self._router.handoff_undone(order.instance, handoff.request)
            if self._pushed.pop(handoff.request.request_id, None) is None:
                self._prefill_done(handoff.request, now)
        if order.how is How.MIGRATE:
            self._migrating[order.instance] = 0
            self._migrate(order.instance, now)

    def _serve(self, instance: Instance, now: float) -> None:
        self._migrating.pop(instance.index, None)
        self._history.serves(instance.index, instance.role, now)
        self._router.open(instance.index, instance.role)
        for waiting, route in (
            (self._homeless_prompts, self._route_prompt),
            (self._homeless_handoffs, self._prefill_done),
        ):
            for _ in range(len(waiting)):
                route(waiting.popleft(), now)

    def _can_progress(self) -> bool:
        return (bool(self._live) or self._num_arrived < self.num_requests) and self._agenda.has_work

    # Results.

    def _sample(self, now: float, _: None) -> None:
        for instance, samples in zip(self.instances, self._samples, strict=True):
            samples.extend(sample_of(instance, now))
        if self._watch is not None:
            self._watch(len(self._records))
        if self._can_progress():
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
        return RunResult(
            driver="simulate",
            scenario=to_plain(self.scenario),
            num_requests=self.num_requests,
            duration_s=self._last_s,
            instance_names=instance_names(self.scenario),
            num_gpus=self.scenario.num_gpus,
            running_costs=[self.scenario.hardware_of(role).running_cost() for role in self.scenario.roles],
            records=records,
            step_logs=[[as_rows(log.values, log.WIDTH) for log in instance.logs] for instance in self.instances],
            extra_gaps_s=[gap for instance in self.instances for gap in instance.extra_gaps],
            role_spans=self._history.spans,
            role_changes=self._history.changes,
            samples=[as_rows(samples, len(SAMPLE_FIELDS)) for samples in self._samples],
            kv_capacity_tokens=[instance.memory.capacity for instance in self.instances],
            kv_bytes_moved=self._kv_bytes_moved,
            num_transfers=self._num_transfers,
            num_migrations=self._num_migrations,
            kv_bytes_migrated=self._kv_bytes_migrated,
            starved_steps=starved,
            cpu_s=cpu_s,
            wall_s=wall_s,
            notices=[starved_notice(starved)] if starved else [],
        )
