"""An instance under the wall clock: the core's runner with a timer, messages and real KV bytes.

The core decides and this waits. Steps end on absolute deadlines, so delays never add up; what happens in a
step carries its planned time, and how much later it was really done is recorded as lateness.
"""

import asyncio
import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
import torch

from actors.calls import Calls
from actors.clock import Clock
from actors.intake import Intake
from actors.kv_store import KvPayload, KvStore
from actors.kv_wire import Endpoint, KvServer, KvWire
from actors.messages import Farewell, Inventory, Leftover, Offer, Serving
from actors.outbox import Outbox
from actors.outlet import Outlet
from actors.slowed import Slowed
from cluster.agenda import SAMPLE, Agenda
from cluster.cost import StepCost
from cluster.events import (
    Aborted,
    Ejected,
    Event,
    Finished,
    FirstToken,
    PrefillDone,
    PrefillStarted,
    RoleCommitted,
    RoleServed,
    RoomReserved,
)
from cluster.handoff import Handoff, HandoffState
from cluster.instance import Instance
from cluster.load import LoadView
from cluster.request import Request, Status
from cluster.role import Phase, Role
from cluster.runner import Runner
from compute.engine import build_engine
from compute.kv_layout import Layers
from metrics.prometheus import MetricStore
from metrics.watch import observe_step, set_instance_gauges
from planner.decision import How, RoleOrder
from scenario.build import build_instance, instance_names
from scenario.spec import Scenario

HEARTBEAT_S = 0.5
"""Wall seconds between reports when nothing urgent happens."""
METRICS_INTERVAL_S = 0.5
"""Wall seconds between metric snapshots to the exporter."""
HANG_S = 3600.0
SLOW_S = 10.0
"""Scenario seconds for which a fault makes it slow."""


class InstanceActor:
    """One incarnation of an instance; its role switches while it lives.

    `first_epoch` is above any that an earlier incarnation can have had. Messages carry the router's term
    and the epoch they were meant for; others are refused. All methods but `pull` share one event loop.
    `kv_budget_bytes` bounds the real KV that is on its way here at any time.
    """

    def __init__(self, scenario: Scenario, index: int, role: Role, first_epoch: int, kv_budget_bytes: int) -> None:
        torch.set_num_threads(1)  # there are more instances than cores
        self._scenario = scenario
        self._name = instance_names(scenario)[index]
        self._incarnation = first_epoch
        self._agenda = Agenda()
        self._core = build_instance(scenario, index, role, first_epoch)
        self._runner = Runner(
            self._core,
            self._agenda,
            self._on_event,
            switch_time_s=scenario.planner.switch_time_s,
            drain_timeout_s=scenario.planner.drain_timeout_s,
            tells_prefill_starts=scenario.handoff.initiative == "push",
        )
        self._engine = build_engine(scenario)
        self._store = KvStore(self._engine.layout)
        self._calls = Calls()
        self._server = KvServer(self._store, self._calls)
        self._metrics = MetricStore()
        self._intake = Intake(
            scenario,
            index,
            self._agenda,
            self._engine,
            self._store,
            self._metrics,
            self._calls,
            budget_bytes=kv_budget_bytes,
            on_whole=self._kv_is_whole,
            on_lost=self._kv_is_lost,
        )
        self._outlet = Outlet(
            index,
            self._engine,
            self._store,
            self._calls,
            lease_s=scenario.live.kv_lease_s,
            groups_of=self._intake.groups,
        )
        self._outbox = Outbox(self._core, first_epoch, self._intake.transfers)
        self._peers: dict[int, Any] = {}
        self._term = 0
        self._offers: dict[int, Offer] = {}
        """Handoffs taken, until their KV is here, by request."""
        self._pushed: dict[int, Handoff] = {}
        """Of these, handoffs whose prompt is still being computed."""
        self._forsaken: set[int] = set()
        """Requests that leave this instance without having ended."""
        self._drained_s = nan
        self._cause = self._reason = ""
        self._pin: Role | None = None
        self._rows_seen = [0 for _ in self._core.logs]
        self._timer: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()

    async def start(self, clock: Clock, router: Any, exporter: Any, peers: dict[int, Any], term: int) -> None:
        """Join the run: from now on work may arrive."""
        self._clock, self._router, self._exporter, self._term = clock, router, exporter, term
        self._peers.update(peers)
        over_tcp = self._scenario.live.kv_between_nodes == "tcp"
        wire = KvWire(self._store, self._calls, await self.node_id()) if over_tcp else None
        self._intake.start(clock, self._catch_up, self._peers, wire)
        self._outlet.start(clock, self._peers)
        interval = self._scenario.sample_interval_s
        self._agenda.now = max(0.0, clock.now())
        self._agenda.at((self._agenda.now // interval + 1) * interval, SAMPLE, self._sample, None)
        self._calls.spawn(self._report_forever())
        self._calls.spawn(self._export_forever())
        self._calls.spawn(self._look_after_leases())
        self._arm()

    # Work.

    async def submit(self, requests: list[Request], epoch: int, term: int) -> list[Request]:
        """Queue prompts; returns those refused because the sender is not the router, or knows another epoch."""
        now = self._catch_up()
        if (epoch, term) != (self._core.state.epoch, self._term):
            return requests
        for request in requests:
            self._runner.submit(request, now, hands_over=request.hands_over)
        self._arm()
        return []

    async def accept(self, offer: Offer, epoch: int, term: int) -> bool:
        """Reserve room for KV on offer, or put it in line; False refuses it.

        With push an offer comes twice: when its prompt is begun, and when that is complete.
        """
        now = self._catch_up()
        state, request = self._core.state, offer.request
        pushed = self._pushed.pop(request.request_id, None) if term == self._term else None
        if pushed is not None:
            self._complete_push(pushed, offer, now)
        elif (epoch, term) != (state.epoch, self._term) or state.phase is not Phase.SERVING:
            return False
        else:
            self._give_up(request.request_id, now)
            num_bytes = request.target * self._scenario.model.kv_bytes_per_token
            handoff = Handoff(request, offer.source, self._core.index, epoch, num_bytes)
            self._offers[request.request_id] = offer
            reserved = self._runner.accept(handoff, now)
            if offer.prefill_ends_s is not None:
                self._pushed[request.request_id] = handoff
                if reserved and self._scenario.handoff.mode == "layerwise" and offer.prefill_ends_s > now:
                    self._intake.begin_early(handoff, offer, now)
            elif reserved:
                self._intake.begin(handoff, offer, now)
        self._arm()
        return True

    def _give_up(self, request_id: int, now: float) -> None:
        """An offer of KV that has been made anew since, because the one who computed it died."""
        offer = self._offers.pop(request_id, None)
        if offer is not None:
            self._pushed.pop(request_id, None)
            self._intake.cancel(request_id, now)
            self._forsake(offer.request)

    def _complete_push(self, handoff: Handoff, offer: Offer, now: float) -> None:
        request = handoff.request
        request.follow(offer.request)
        offer = self._offers[request.request_id] = replace(offer, request=request)
        if handoff.state is HandoffState.MOVING:
            self._intake.complete(handoff, now)
        elif handoff.state is HandoffState.RESERVED:
            self._intake.begin(handoff, offer, now)

    async def withdraw(self, request_id: int, term: int) -> None:
        """KV that was on offer while its prompt was computed will not come."""
        now = self._catch_up()
        if term == self._term and request_id in self._pushed:
            self._withdraw(request_id, now)
        self._arm()

    def _withdraw(self, request_id: int, now: float) -> None:
        handoff = self._pushed.pop(request_id)
        del self._offers[request_id]
        self._intake.cancel(request_id, now)
        self._forsake(handoff.request)

    async def cancel(self, request_id: int, term: int) -> bool:
        """Drop a cancelled request, wherever it is here; False when it is not (any more)."""
        now = self._catch_up()
        if term != self._term:
            return False
        self._intake.cancel(request_id, now)
        offer = self._offers.pop(request_id, None) or self._outlet.offers.pop(request_id, None)
        request = offer.request if offer is not None else self._core.find(request_id)
        if request is not None:
            self._outlet.stops_sending(request_id)
            self._runner.abort(request, now)
        self._arm()
        return request is not None

    async def release(self, request_id: int) -> None:
        """The KV has arrived elsewhere, or is not wanted any more. A second release is ignored."""
        now = self._catch_up()
        self._release(request_id, now)
        self._arm()

    def _release(self, request_id: int, now: float) -> None:
        offer = self._outlet.release(request_id)
        if offer is not None:
            self._runner.release(offer.request, now)

    @ray.method(concurrency_group="data")
    async def pull(self, request_id: int, layers: Layers) -> KvPayload:
        """Some layers of waiting KV. The caller owns the object; the original stays here until `release`."""
        payload = await asyncio.wrap_future(self._store.sealed(request_id, layers))
        return self._store.spoiled(payload)

    async def kv_endpoint(self) -> Endpoint:
        """Where to pull from over TCP: a port at the address that Ray has for this node."""
        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return self._server.endpoint(await self.node_id(), host)

    async def renew(self, request_ids: list[int]) -> None:
        """Somebody still wants this KV."""
        self._outlet.renew(request_ids)

    async def _look_after_leases(self) -> None:
        """Renew those of KV that is to come here; take back KV that nobody has asked for."""
        while True:
            await asyncio.sleep(self._scenario.live.kv_lease_s / 4)
            wanted: dict[int, list[int]] = defaultdict(list)
            for offer in self._offers.values():
                wanted[offer.source].append(offer.request.request_id)
            for source, request_ids in wanted.items():
                if source in self._peers:
                    self._calls.tell(self._peers[source].renew, request_ids)
            for request_id in self._outlet.expired():
                self._release(request_id, self._catch_up())
                self._calls.tell(self._router.lease_expired, request_id, self._core.index)
            self._arm()

    async def sends(self, request_id: int, target: int, link: str) -> int:
        """A flow has begun to leave for `target`; returns how many leave over that link."""
        return self._outlet.sends(request_id, target, link)

    async def tell_leaving(self, source: int, link: str, flows: int) -> None:
        """How many flows leave a peer that also sends to this instance."""
        self._intake.tell_leaving(source, link, flows, self._catch_up())
        self._arm()

    # Time.

    def _catch_up(self) -> float:
        """Do everything that is due by now, in order, each at its planned time; returns now."""
        now = max(self._clock.now(), self._agenda.now)
        self._agenda.run(now)
        for position, log in enumerate(self._core.logs):
            for row in log.rows(self._rows_seen[position]):
                late = (now - row.end_s) * self._clock.time_scale
                self._outbox.lateness_s.append(late)
                self._metrics.observe("baton_step_lateness_seconds", late)
                observe_step(self._metrics, row)
            self._rows_seen[position] = len(log)
        self._engine.follow(self._core)
        return now

    def _arm(self) -> None:
        """Set the timer to the next thing due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._agenda.next_s
        if due != inf:
            self._timer = asyncio.get_running_loop().call_later(self._clock.delay_s(due), self._on_timer)

    def _on_timer(self) -> None:
        self._catch_up()
        self._arm()

    def _on_event(self, event: Event, instance: Instance, now: float) -> None:
        match event:
            case Finished(request):
                self._engine.settle(request)
                self._end(request)
            case PrefillDone(request):
                self._engine.settle(request)
                self._offer_kv(request, migrates=False)
            case Ejected(request):
                self._engine.settle(request)
                self._offer_kv(request, migrates=True)
            case FirstToken() if instance.role is Role.DECODE:
                self._news.set()  # the router may choose by how many prompts a decode instance still computes
            case PrefillStarted(request, end_s):
                offer = Offer(request, instance.index, instance.state.epoch, prefill_ends_s=end_s)
                if self._scenario.handoff.mode == "layerwise":
                    self._outlet.write_early(offer, now)
                self._calls.tell(self._router.prefill_starts, offer)
            case RoomReserved(handoff) if handoff.request.request_id not in self._pushed:
                self._intake.begin(handoff, self._offers[handoff.request.request_id], now)
            case Aborted(request):
                self._outlet.drop(request.request_id)
                if request.request_id in self._forsaken:
                    self._forsaken.discard(request.request_id)
                else:
                    request.enter(Status.ABORTED, now)
                    self._end(request)
            case RoleCommitted():
                self._drained_s = now
            case RoleServed():
                state = instance.state
                serving = Serving(instance.index, state.role, state.epoch, now, self._drained_s, self._cause)
                self._calls.tell(self._router.serve, serving)

    def _end(self, request: Request) -> None:
        self._outlet.drop(request.request_id)
        self._outbox.end(request)
        self._news.set()

    # KV.

    def _offer_kv(self, request: Request, *, migrates: bool) -> None:
        """Write and seal the KV, and ask the router for a decode instance."""
        offer = Offer(request, self._core.index, self._core.state.epoch, migrates)
        self._outlet.offer(offer)
        self._calls.tell(self._router.kv_waits, offer)

    def _kv_is_whole(self, handoff: Handoff, now: float) -> None:
        request = handoff.request
        if self._engine.kv_tokens(request):
            self._engine.take_kv(request, self._store.tensor(request.request_id))
        offer = self._offers.pop(request.request_id)
        self._outbox.receive(handoff.request)
        if offer.migrates or self._core.state.phase is Phase.DRAINING:
            self._news.set()  # somebody waits to leave
        self._runner.receive(handoff, now)
        self._arm()

    def _kv_is_lost(self, handoff: Handoff, offer: Offer, reason: str) -> None:
        """The KV cannot be had: give the room back, and the request to the router."""
        request = handoff.request
        self._offers.pop(request.request_id, None)
        self._pushed.pop(request.request_id, None)
        self._forsake(request)
        if offer.source in self._peers:
            self._calls.tell(self._peers[offer.source].release, request.request_id)
        self._calls.tell(self._router.handoff_failed, request.request_id, self._core.index, reason)

    def _forsake(self, request: Request) -> None:
        self._forsaken.add(request.request_id)
        self._runner.abort(request, self._catch_up())
        self._arm()

    # Peers.

    async def set_peer(self, index: int, peer: Any) -> None:
        """An instance lives again, as another actor."""
        self._peers[index] = peer

    async def peer_died(self, index: int) -> None:
        """What was coming from it will not come; what was going to it may go elsewhere."""
        now = self._catch_up()
        for request_id in [one for one, handoff in self._pushed.items() if handoff.source == index]:
            self._withdraw(request_id, now)
        self._intake.source_lost(index)
        for handoff in [one for one in self._core.offers if one.source == index]:
            self._kv_is_lost(handoff, self._offers[handoff.request.request_id], f"instance {index} died")
        self._outlet.target_died(index)

    async def inventory(self, router: Any, term: int) -> Inventory:
        """A new router takes over: obey only it, and tell it everything."""
        now = self._catch_up()
        self._arm()
        self._router, self._term = router, term
        core = self._core
        found = Inventory(
            load=core.load(now),
            prompts=[*core.scheduler.waiting, *(one for batch in core.batches for one in batch.prefilling)],
            outgoing=list(self._outlet.offers.values()),
            pin=self._pin,
            reason=self._reason,
            incoming=list(self._offers.values()),
            decoding=[one for batch in core.batches for one in (*batch.members.values(), *batch.ready)],
            progress=self._outbox.progress(),
            texts=dict(self._outbox.texts),
            ended=self._outbox.records.copy(),
            deeds=self._outbox.deeds(),
        )
        self._outbox.all_told()
        return found

    # Roles.

    async def change_role(self, order: RoleOrder, recalls: bool, term: int) -> Leftover | None:
        """Drain towards another role, or flip to it; None refuses. `recalls`: give back prompts, too."""
        now = self._catch_up()
        if term != self._term:
            return None
        self._cause, self._reason, self._drained_s = order.cause, order.reason, nan
        change = self._runner.flip if order.how is How.FLIP else self._runner.begin_drain
        turned_away = change(order.role, order.epoch, now)
        if turned_away is None:
            return None
        for handoff in turned_away:
            handoff.enter(HandoffState.FAILED)
            self._pushed.pop(handoff.request.request_id, None)
        prompts = self._runner.recall_prompts(now) if recalls else []
        self._arm()
        return Leftover([self._offers.pop(handoff.request.request_id) for handoff in turned_away], prompts)

    async def eject(self, request_ids: list[int], term: int) -> list[int]:
        """Have decoding requests go on elsewhere: each is offered when it has stopped. Returns those that cannot."""
        now = self._catch_up()
        if term != self._term:
            return request_ids
        decoding = {
            one.request_id: one for batch in self._core.batches for one in (*batch.ready, *batch.members.values())
        }
        for request_id in request_ids:
            if request_id in decoding:
                self._runner.eject(decoding[request_id], now)
        self._arm()
        return [request_id for request_id in request_ids if request_id not in decoding]

    async def take_back(self, request_id: int, term: int) -> None:
        """An ejected request whose KV has not left goes on here after all."""
        now = self._catch_up()
        if term == self._term and request_id in self._outlet.offers:
            self._runner.take_back(self._outlet.take_back(request_id).request, now)
        self._arm()

    async def keep_pin(self, role: Role | None) -> None:
        """Remember the role that was set by hand, for a router to come."""
        self._pin = role

    # Watching.

    async def load(self) -> LoadView:
        now = self._catch_up()
        self._arm()
        return self._core.load(now)

    async def watch(self) -> None:
        """Never returns; fails when this process dies or something in it has gone wrong."""
        await self._calls.failure()

    def _sample(self, now: float, _: None) -> None:
        self._outbox.sample(now)
        self._agenda.at(now + self._scenario.sample_interval_s, SAMPLE, self._sample, None)

    async def _report_forever(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), HEARTBEAT_S)
            await asyncio.sleep(self._scenario.live.report_delay_s)
            self._news.clear()
            await self._report()

    async def _report(self) -> None:
        now = self._catch_up()
        self._arm()
        report = self._outbox.report(now)
        router = self._router
        try:
            await self._calls.ask(router.report, report, self._incarnation)
        except ray.exceptions.RayActorError:
            return  # the router has died; the next one takes an inventory
        if router is self._router:
            self._outbox.delivered(report)

    async def _export_forever(self) -> None:
        while True:
            await self._export()
            await asyncio.sleep(METRICS_INTERVAL_S)

    async def _export(self) -> None:
        set_instance_gauges(self._metrics, self._name, self._core.load(self._agenda.now))
        with suppress(ray.exceptions.RayActorError):  # its successor gets the next snapshot
            await self._calls.ask(self._exporter.put, f"{self._name}/{self._incarnation}", self._metrics)

    async def set_exporter(self, exporter: Any) -> None:
        self._exporter = exporter

    async def finish(self) -> Farewell:
        """Stop, and say what is still unsaid."""
        await self._calls.stop()
        await self._report()
        await self._export()
        if self._timer is not None:
            self._timer.cancel()
        return Farewell(
            kv_capacity_tokens=self._core.memory.capacity,
            kv_used_tokens=self._core.memory.used,
            kv_left_bytes=self._store.held_bytes(),
            starved_steps=self._core.scheduler.starved_steps,
            extra_gaps_s=self._core.extra_gaps,
            num_refused=self._intake.num_refused,
            num_calls=self._calls.count,
            cpu_s=self._calls.cpu_s,
        )

    # Chaos.

    async def suffer(self, fault: str, amount: float, role: Role | None, moment: str) -> bool:
        """Break on purpose, if this is its role and what it is at just now; otherwise False."""
        self._catch_up()
        self._arm()
        if (role is not None and role is not self._core.state.role) or not self._is_at(moment):
            return False
        if fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "kill node":
            _kill_node()
        elif fault == "hang":
            asyncio.get_running_loop().call_soon(time.sleep, HANG_S)
        elif fault == "slow":
            fast, self._core.cost = self._core.cost, Slowed(self._core.cost, amount)
            self._agenda.at(self._agenda.now + SLOW_S, SAMPLE, self._recover, fast)
        elif fault == "corrupt":
            self._store.spoil(int(amount))
        return True

    def _is_at(self, moment: str) -> bool:
        core = self._core
        return {
            "": True,
            "queued": bool(core.scheduler.waiting),
            "running": bool(core.in_flight),
            "holding": bool(core.outgoing),
            "receiving": core.num_incoming > 0,
            "changing": core.state.phase is not Phase.SERVING,
        }[moment]

    def _recover(self, _: float, cost: StepCost) -> None:
        self._core.cost = cost

    async def node_id(self) -> str:
        """The Ray node it runs on."""
        node_id: str = ray.get_runtime_context().get_node_id()
        return node_id


def _kill_node() -> None:
    """Kill this process's Ray node with all its processes, as when a machine goes away."""
    raylet = os.getppid()
    workers = [int(pid) for file in Path(f"/proc/{raylet}/task").glob("*/children") for pid in file.read_text().split()]
    for pid in (raylet, *(pid for pid in workers if pid != os.getpid()), os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
