"""An instance under the wall clock: the core's runner with a timer, messages and real KV bytes.

The core decides and this waits. Steps end on absolute deadlines, so delays never add up; what happens in a
step carries its planned time, and how much later it was really done is recorded as lateness.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import ray.exceptions

from actors.byte_budget import ByteBudget
from actors.calls import Calls
from actors.clock import Clock
from actors.kv_store import KvPayload, KvStore
from actors.messages import InstanceHistory, Offer, Report, Serving, TransferTimes
from cluster.agenda import SAMPLE, Agenda
from cluster.errors import TransferFailed
from cluster.events import Aborted, Event, Finished, PrefillDone, RoleCommitted, RoleServed, RoomReserved
from cluster.fabric import Fabric, Flow
from cluster.handoff import Handoff, HandoffState
from cluster.instance import Instance
from cluster.load import LoadView
from cluster.request import Request, Status
from cluster.role import Phase, Role
from cluster.runner import Runner
from metrics.history import History
from metrics.prometheus import MetricStore
from metrics.records import as_rows
from metrics.watch import observe_step, set_instance_gauges
from scenario.build import Placement, build_instance, instance_names
from scenario.spec import Scenario

logger = logging.getLogger(__name__)

REPORT_INTERVAL_S = 0.2
"""Wall seconds between reports to the router."""
METRICS_EVERY = 3
"""Reports to the router for each metric delta to the exporter."""
PULL_TIMEOUT_S = 30.0
"""Wall seconds after which a pull has failed."""
PULL_ATTEMPTS = 3


@dataclass(slots=True)
class Arrival:
    """KV on its way here. Seconds from `started_s` to the end of each transfer; None while it goes on."""

    handoff: Handoff
    started_s: float
    modelled_s: float | None = None
    measured_s: float | None = None


class InstanceActor:
    """One per instance; its role switches while it lives. All methods but `pull` share one event loop."""

    def __init__(self, scenario: Scenario, index: int, role: Role) -> None:
        self._scenario = scenario
        self._name = instance_names(scenario)[index]
        self._agenda = Agenda()
        self._core = build_instance(scenario, index, role)
        self._runner = Runner(
            self._core,
            self._agenda,
            self._on_event,
            switch_time_s=scenario.planner.switch_time_s,
            drain_timeout_s=scenario.planner.drain_timeout_s,
        )
        self._history = History([self._core])
        # Transfers into this instance: flows that leave one source for different targets do not see each other.
        self._fabric = Fabric(self._agenda, self._flow_ends)
        self._placement = Placement(scenario)
        self._store = KvStore()
        self._metrics = MetricStore()
        self._calls = Calls()
        self._ended: list[Request] = []
        self._outgoing: dict[int, Request] = {}
        """Requests whose KV waits here to be pulled."""
        self._offers: dict[int, Offer] = {}
        """Handoffs to this instance that are not complete, by request."""
        self._arriving: dict[int, Arrival] = {}
        """Handoffs whose KV is on its way here."""
        self._failures: dict[int, str] = {}
        """Requests that leave because they failed here, and why."""
        self._cause = ""
        self._old_role = role
        self._transfers: list[TransferTimes] = []
        self._num_refused = 0
        self._lateness_s: list[float] = []
        self._rows_seen = [0 for _ in self._core.logs]
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, clock: Clock, router: Any, exporter: Any, peers: dict[int, Any]) -> None:
        """Join the run: from now on work may arrive."""
        self._clock, self._router, self._exporter, self._peers = clock, router, exporter, peers
        self._budget = ByteBudget(self._scenario.live.kv_budget_bytes)
        self._agenda.at(self._scenario.sample_interval_s, SAMPLE, self._sample, None)
        self._calls.spawn(self._report_forever())
        self._arm()

    # Work.

    async def submit(self, requests: list[Request], epoch: int) -> list[Request]:
        """Queue prompts; returns those refused because the sender knows an old epoch."""
        now = self._catch_up()
        if epoch != self._core.state.epoch or self._core.role is Role.DECODE:
            return requests
        for request in requests:
            self._runner.submit(request, now, hands_over=request.hands_over)
        self._arm()
        return []

    async def accept(self, offer: Offer, epoch: int) -> bool:
        """Reserve room for KV on offer, or put it in line; False refuses it."""
        now = self._catch_up()
        core = self._core
        if epoch != core.state.epoch or core.role is Role.PREFILL or core.state.phase is not Phase.SERVING:
            return False
        request = offer.request
        self._offers[request.request_id] = offer
        num_bytes = request.target * self._scenario.model.kv_bytes_per_token
        handoff = Handoff(request, offer.source, core.index, epoch, num_bytes)
        if self._runner.accept(handoff, now):
            self._begin_transfer(handoff, now)
        self._arm()
        return True

    async def release(self, request_id: int) -> None:
        """The KV has arrived elsewhere, or is not wanted any more. A second release is ignored."""
        now = self._catch_up()
        request = self._outgoing.pop(request_id, None)
        if request is not None:
            self._store.drop(request_id)
            self._runner.release(request, now)
        self._arm()

    # Time.

    def _catch_up(self) -> float:
        """Do everything that is due by now, in order, each at its planned time; returns now."""
        now = max(self._clock.now(), self._agenda.now)
        self._agenda.run(now)
        for position, log in enumerate(self._core.logs):
            for row in log.rows(self._rows_seen[position]):
                late = (now - row.end_s) * self._clock.time_scale
                self._lateness_s.append(late)
                self._metrics.observe("baton_step_lateness_seconds", late)
                observe_step(self._metrics, row)
            self._rows_seen[position] = len(log)
        return now

    def _arm(self) -> None:
        """Set the timer to the next thing due."""
        if self._timer is not None:
            self._timer.cancel()
        due = self._agenda.next_s
        if due != float("inf"):
            self._timer = asyncio.get_running_loop().call_later(self._clock.delay_s(due), self._on_timer)

    def _on_timer(self) -> None:
        self._catch_up()
        self._arm()

    def _on_event(self, event: Event, instance: Instance, now: float) -> None:
        match event:
            case Finished(request):
                self._end(request)
            case PrefillDone(request):
                self._offer_kv(request)
            case RoomReserved(handoff):
                self._begin_transfer(handoff, now)
            case Aborted(request):
                failed = request.request_id in self._failures
                request.enter(Status.FAILED if failed else Status.ABORTED, now)
                self._end(request)
            case RoleCommitted():
                self._history.change_commits(instance, now)
            case RoleServed():
                self._serve(instance, now)

    def _end(self, request: Request) -> None:
        self._store.drop(request.request_id)
        self._ended.append(request)

    # KV.

    def _real_bytes(self, request: Request) -> int:
        """Real bytes of a request's KV, a whole number of 16-bit elements."""
        modelled = request.target * self._scenario.model.kv_bytes_per_token
        return int(modelled * self._scenario.live.kv_bytes_scale) // 2 * 2

    def _offer_kv(self, request: Request) -> None:
        """Write and seal the KV, and ask the router for a decode instance."""
        self._outgoing[request.request_id] = request
        epoch = self._core.state.epoch
        num_bytes = self._real_bytes(request)
        if num_bytes:
            self._store.expect(request.request_id)
            self._calls.spawn(asyncio.to_thread(self._store.compute, request.request_id, epoch, num_bytes))
        self._calls.tell(self._router.prefilled, Offer(request, self._core.index, epoch))

    @ray.method(concurrency_group="data")
    async def pull(self, request_id: int) -> KvPayload:
        """The KV of a prefilled request. The caller owns the object; the original stays here until `release`."""
        return await asyncio.wrap_future(self._store.sealed(request_id))

    def _begin_transfer(self, handoff: Handoff, now: float) -> None:
        """Start the modelled flow and the real pull; the KV is here when both are over."""
        handoff.begin(now)
        arrival = Arrival(handoff, now)
        self._arriving[handoff.request.request_id] = arrival
        link = self._placement.link_between(handoff.source, handoff.target)
        self._fabric.start(handoff, link, now)
        if self._real_bytes(handoff.request):
            self._calls.spawn(self._pull(arrival))
        else:
            arrival.measured_s = 0.0

    def _flow_ends(self, flow: Flow, now: float) -> None:
        arrival = self._arriving.get(flow.handoff.request.request_id)
        if arrival is not None:
            arrival.modelled_s = now - arrival.started_s
            self._receive_if_whole(arrival, now)

    async def _pull(self, arrival: Arrival) -> None:
        request = arrival.handoff.request
        source, epoch = self._peers[arrival.handoff.source], self._offers[request.request_id].source_epoch
        for attempt in range(1, PULL_ATTEMPTS + 1):
            try:
                async with self._budget.take(self._real_bytes(request)):
                    payload = await asyncio.wait_for(self._calls.ask(source.pull, request.request_id), PULL_TIMEOUT_S)
                    await asyncio.to_thread(self._store.keep, request.request_id, epoch, payload)
                    del payload
                break
            except (TransferFailed, ray.exceptions.RayError, TimeoutError) as error:
                self._num_refused += 1
                self._metrics.add("baton_kv_payloads", 1, "refused")
                logger.warning("%s: KV of request %d, attempt %d: %s", self._name, request.request_id, attempt, error)
                if attempt == PULL_ATTEMPTS:
                    self._give_up(arrival, str(error))
                    return
        self._metrics.add("baton_kv_payloads", 1, "verified")
        now = self._catch_up()
        arrival.measured_s = now - arrival.started_s
        self._receive_if_whole(arrival, now)
        self._arm()

    def _receive_if_whole(self, arrival: Arrival, now: float) -> None:
        if arrival.modelled_s is None or arrival.measured_s is None:
            return
        handoff = arrival.handoff
        request = handoff.request
        del self._arriving[request.request_id], self._offers[request.request_id]
        self._note_transfer(
            TransferTimes(arrival.modelled_s, arrival.measured_s, handoff.num_bytes, self._real_bytes(request))
        )
        self._calls.tell(self._peers[handoff.source].release, request.request_id)
        self._runner.receive(handoff, now)

    def _note_transfer(self, times: TransferTimes) -> None:
        self._transfers.append(times)
        for kind, seconds, num_bytes in (
            ("modelled", times.modelled_s, times.modelled_bytes),
            ("measured", times.measured_s, times.real_bytes),
        ):
            self._metrics.observe("baton_kv_transfer_seconds", seconds, kind)
            self._metrics.add("baton_kv_transfer_bytes", num_bytes, kind)

    def _give_up(self, arrival: Arrival, reason: str) -> None:
        """The KV cannot be had: the request fails, and its room is freed on both sides."""
        handoff = arrival.handoff
        request = handoff.request
        now = self._catch_up()
        del self._arriving[request.request_id], self._offers[request.request_id]
        self._failures[request.request_id] = reason
        handoff.enter(HandoffState.FAILED)
        self._calls.tell(self._peers[handoff.source].release, request.request_id)
        self._runner.abort(request, now)
        self._arm()

    # Roles.

    async def begin_drain(self, role: Role, epoch: int, cause: str, reason: str) -> list[Offer] | None:
        """Head for another role; None refuses. Returns offers that were still in line, to be made elsewhere."""
        now = self._catch_up()
        core = self._core
        if epoch != core.state.epoch or core.state.phase is not Phase.SERVING or role is core.role:
            return None
        self._cause, self._old_role = cause, core.role
        self._history.change_begins(core, role, reason, now)
        turned_away = self._runner.begin_drain(role, epoch, now) or []
        self._arm()
        return [self._offers.pop(handoff.request.request_id) for handoff in turned_away]

    def _serve(self, instance: Instance, now: float) -> None:
        self._history.change_serves(instance, now)
        if instance.role is not self._old_role:
            self._metrics.add("baton_role_changes", 1, self._old_role, instance.role, self._cause)
        self._calls.tell(self._router.serve, Serving(instance.index, instance.role, instance.state.epoch))

    # Watching.

    async def load(self) -> LoadView:
        now = self._catch_up()
        self._arm()
        return self._core.load(now)

    def _sample(self, now: float, _: None) -> None:
        self._history.sample(now)
        self._agenda.at(now + self._scenario.sample_interval_s, SAMPLE, self._sample, None)

    async def _report_forever(self) -> None:
        """Tell the router who ended, and the exporter what to add, a few times a second."""
        ticks = 0
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S)
            ticks += 1
            await self._report()
            if ticks % METRICS_EVERY == 0:
                await self._export()

    async def _report(self) -> None:
        now = self._catch_up()
        self._arm()
        ended, self._ended = self._ended, []
        await self._calls.ask(self._router.report, Report(self._core.load(now), ended))

    async def _export(self) -> None:
        set_instance_gauges(self._metrics, self._name, self._core.load(self._agenda.now))
        await self._calls.ask(self._exporter.add, self._metrics.take())

    async def finish(self) -> InstanceHistory:
        """Stop, say what is still unsaid, and hand over the history."""
        await self._calls.stop()
        await self._report()
        await self._export()
        self._history.end(self._agenda.now)
        if self._timer is not None:
            self._timer.cancel()
        return InstanceHistory(
            step_logs=[as_rows(log.values, log.WIDTH) for log in self._core.logs],
            extra_gaps_s=self._core.extra_gaps,
            spans=self._history.spans,
            changes=self._history.changes,
            samples=self._history.samples()[0],
            kv_capacity_tokens=self._core.memory.capacity,
            kv_used_tokens=self._core.memory.used,
            starved_steps=self._core.scheduler.starved_steps,
            lateness_s=np.array(self._lateness_s),
            transfers=self._transfers,
            num_refused=self._num_refused,
            num_calls=self._calls.count,
            kv_left_bytes=self._store.held_bytes(),
        )
