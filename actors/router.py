"""The router under the wall clock: the core's books and policies, who is where, and who has ended.

It refuses what dead incarnations still say, answers for every request exactly once, and sends what a death
leaves behind elsewhere: by transfer when the KV survives at its source, else to be prefilled again.
"""

import asyncio
import os
import time
from collections import deque
from dataclasses import replace
from typing import Any

import ray.exceptions

from actors.calls import Calls
from actors.clock import Clock
from actors.demand import DemandBook
from actors.ledger import Ledger
from actors.messages import Deeds, Inventory, Leftover, Legacy, Offer, Report, RouterHistory, Serving, Snapshot, Toll
from actors.migrations import Migrations
from actors.tracking import Stage, Tracked, Tracker, rewind
from cluster.errors import ConfigError
from cluster.load import LoadView
from cluster.request import Request, Status
from cluster.role import Phase, Role
from metrics.history import RoleHistory
from metrics.prometheus import MetricStore
from metrics.records import FloatArray
from planner.arrow import ArrowRouter
from planner.decision import How, RoleOrder
from planner.observation import Observation
from planner.pins import check_pins
from scenario.build import build_router, instance_names
from scenario.spec import Scenario

EXPORT_INTERVAL_S = 1.0
MAX_RETRIES = 10
"""Times that a request is started over before it is given up."""


class RouterActor:
    """`term` counts routers: instances obey only the latest."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._names = instance_names(scenario)
        self._core = build_router(scenario)
        self._tracker = Tracker()
        self._migrations = Migrations(
            self._core, self._tracker, at_once=scenario.planner.migrations_at_once, has_room=self._has_room
        )
        self._history = RoleHistory(scenario.roles)
        self._epochs: dict[int, int] = {}
        """Epoch of each living instance."""
        self._incarnations: dict[int, int] = {}
        """First epoch of each living instance."""
        self._loads: dict[int, LoadView] = {}
        self._heard_s: dict[int, float] = {}
        self._metrics = MetricStore()
        self._demand = DemandBook(scenario)
        self._ledger = Ledger(scenario, self._metrics, self._demand)
        self._calls = Calls()
        self._homeless_offers: deque[Offer] = deque()
        self._ordering_s: dict[int, float] = {}
        """How long an instance took to obey, until it serves."""
        self._control_s: list[float] = []
        self._pushed: dict[int, tuple[int, asyncio.Task[None]]] = {}
        """Where room is asked for, and the asking, by request whose prompt is still being computed."""
        self._retries: dict[int, int] = {}
        self._num_sent = self._num_refused = self._num_ignored = 0
        self._num_disturbed = self._num_resumed = self._num_failed = self._recomputed_tokens = 0
        self._pins: dict[int, Role] = {}
        self._changes: deque[str] = deque(maxlen=5)
        self._handed_over: list[tuple[int, int, int]] = []
        self._planner_words = ""
        self._in_office = asyncio.Event()
        """Set once the books are complete: what instances say before that has to wait."""

    async def start(
        self, clock: Clock, instances: dict[int, Any], exporter: Any, term: int, incarnations: dict[int, int]
    ) -> None:
        """Join the run with everybody in their first role."""
        self._clock, self._instances, self._exporter, self._term = clock, dict(instances), exporter, term
        for index, role in enumerate(self._scenario.roles):
            self._welcome(index, role, incarnations[index])
        self._in_office.set()
        self._calls.spawn(self._export_forever())

    # Requests.

    async def submit(self, requests: list[Request]) -> None:
        """Requests that have arrived; those that have ended already, or are known, are only recorded once."""
        for request in requests:
            if request.request_id in self._tracker.live or request.request_id in self._ledger.ended:
                self._num_ignored += 1
                continue
            self._num_sent += 1
            if request.status is Status.ARRIVED:
                self._tracker.add(request)
                self._demand.arrive(request)
                self._route_prompt(request)
            else:
                self._ledger.end([request])

    def _route_prompt(self, request: Request) -> None:
        tracked = self._tracker.live[request.request_id]
        choice = self._core.route_prompt(request)
        if choice is None:
            tracked.stage, tracked.instance = Stage.HOMELESS, -1
        else:
            self._tracker.sent(request.request_id, choice.instance)
            self._calls.spawn(self._submit(choice.instance, request))
            self._flip()

    async def _submit(self, instance: int, request: Request) -> None:
        epoch = self._epochs.get(instance, -1)
        refused = await self._try(self._instances[instance].submit, [request], epoch, self._term)
        if refused and self._is_at(request, instance, Stage.PROMPT):
            self._num_refused += 1
            self._core.done(instance, request)
            self._route_prompt(request)

    async def kv_waits(self, offer: Offer) -> None:
        """A prompt is computed, or a request has stopped decoding to go on elsewhere; find its KV an instance."""
        await self._in_office.wait()
        request, source = offer.request, offer.source
        if offer.source_epoch < self._incarnations.get(source, offer.source_epoch + 1):
            self._num_ignored += 1
            return
        tracked = self._tracker.live.get(request.request_id)
        stages = (Stage.PROMPT, Stage.DECODING) if offer.migrates else (Stage.PROMPT,)
        if tracked is None or tracked.instance != source or tracked.stage not in stages:
            self._num_ignored += 1
            self._calls.tell(self._instances[source].release, request.request_id)
            return
        pushed = self._pushed.get(request.request_id)
        if not offer.migrates:
            self._core.done(source, request)
        elif not self._migrations.is_chosen(request.request_id):  # but by a router before this one
            self._core.leaves(tracked.request, source)
        if tracked.cancelled:
            self._undo_push(request)
            self._core.unpair(request)
            self._calls.tell(self._instances[source].release, request.request_id)
            self._abort(request)
        elif pushed is not None:
            del self._pushed[request.request_id]
            self._send_offer(pushed[0], offer, after=pushed[1])
        else:
            self._route_offer(offer)

    async def prefill_starts(self, offer: Offer) -> None:
        """With push: have room reserved for KV while it is computed."""
        await self._in_office.wait()
        request, source = offer.request, offer.source
        tracked = self._tracker.live.get(request.request_id)
        if tracked is None or tracked.cancelled or not self._is_at(request, source, Stage.PROMPT):
            self._num_ignored += 1
            return
        choice = self._core.route_handoff(request)
        if choice is not None:
            asking = self._calls.spawn(self._push(choice.instance, offer))
            self._pushed[request.request_id] = (choice.instance, asking)

    async def _push(self, instance: int, offer: Offer) -> None:
        accepted = await self._try(self._instances[instance].accept, offer, self._epochs.get(instance, -1), self._term)
        if accepted is False and self._is_pushed_to(instance, offer.request):
            self._num_refused += 1
            del self._pushed[offer.request.request_id]
            self._core.handoff_undone(instance, offer.request)

    def _is_pushed_to(self, instance: int, request: Request) -> bool:
        return request.request_id in self._pushed and self._pushed[request.request_id][0] == instance

    def _undo_push(self, request: Request) -> None:
        """KV that an instance has reserved room for will not come."""
        pushed = self._pushed.pop(request.request_id, None)
        if pushed is not None:
            self._core.handoff_undone(pushed[0], request)
            self._calls.spawn(self._withdraw(*pushed, request.request_id))

    async def _withdraw(self, instance: int, asking: asyncio.Task[None], request_id: int) -> None:
        await asking
        await self._try(self._instances[instance].withdraw, request_id, self._term)

    def _route_offer(self, offer: Offer) -> None:
        if offer.migrates and self._core.role_if_open(offer.source) is not None:
            self._stay(offer)
            return
        choice = self._core.route_handoff(offer.request)
        if choice is None:
            self._tracker.offered(offer, -1)
            self._homeless_offers.append(offer)
        else:
            self._send_offer(choice.instance, offer)

    def _send_offer(self, instance: int, offer: Offer, after: asyncio.Task[None] | None = None) -> None:
        self._tracker.offered(offer, instance)
        self._calls.spawn(self._offer(instance, offer, after))

    async def _offer(self, instance: int, offer: Offer, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await after  # messages to an actor may overtake each other
        epoch = self._epochs.get(instance, -1)
        accepted = await self._try(self._instances[instance].accept, offer, epoch, self._term)
        if accepted is False and self._is_at(offer.request, instance, Stage.OFFERED):
            self._num_refused += 1
            self._core.handoff_undone(instance, offer.request)
            self._route_offer(offer)

    async def handoff_failed(self, request_id: int, instance: int, reason: str) -> None:
        """A decode instance could not get the KV: prefill again."""
        await self._in_office.wait()
        tracked = self._tracker.live.get(request_id)
        if tracked is None or tracked.stage is not Stage.OFFERED or tracked.instance != instance:
            self._num_ignored += 1
            return
        self._core.handoff_undone(instance, tracked.request)
        self._start_over(tracked, reason)

    async def lease_expired(self, request_id: int, source: int) -> None:
        """An instance has dropped KV that nobody asked for; whoever has taken it on will say so, if it is not there yet."""
        await self._in_office.wait()
        tracked = self._tracker.live.get(request_id)
        if tracked is None or (tracked.stage, tracked.source, tracked.instance) != (Stage.OFFERED, source, -1):
            return
        self._homeless_offers = deque(one for one in self._homeless_offers if one.request.request_id != request_id)
        self._start_over(tracked, f"its KV waited too long at {self._names[source]}")

    def _start_over(self, tracked: Tracked, reason: str) -> None:
        request = tracked.request
        self._undo_push(request)
        self._goes_on(self._migrations.over(request.request_id))
        retries = self._retries[request.request_id] = self._retries.get(request.request_id, 0) + 1
        if tracked.cancelled:
            self._abort(request)
        elif retries > MAX_RETRIES:
            self._num_failed += 1
            request.enter(Status.FAILED, self._clock.now())
            self._changes.append(f"{self._clock.now():.1f} s: request {request.request_id} is given up: {reason}")
            self._end(request)
        else:
            self._num_disturbed += 1
            self._recomputed_tokens += rewind(request)
            self._route_prompt(request)

    async def report(self, report: Report, incarnation: int) -> None:
        """What has happened at an instance since it last said."""
        await self._in_office.wait()
        index = report.load.index
        if incarnation != self._incarnations.get(index):
            self._num_ignored += 1
            return
        self._loads[index] = report.load
        self._heard_s[index] = time.monotonic()
        for request_id in report.received:
            tracked = self._tracker.received(request_id, index)
            if tracked is not None:
                self._handed_over.append((tracked.source, index, tracked.request.target))
                self._goes_on(self._migrations.over(request_id))
                self._goes_on(index)
        for progress in report.progress:
            self._tracker.progressed(progress, index)
        self._ledger.keep(report.deeds)
        ended = []
        for request in report.ended:
            tracked = self._tracker.live.get(request.request_id)
            if tracked is None or tracked.instance != index:
                self._num_ignored += 1
                continue
            if tracked.stage is Stage.OFFERED:
                source = self._migrations.over(request.request_id)
            else:
                source = self._migrations.undo(tracked.request)
            if tracked.stage is Stage.PROMPT:
                self._undo_push(request)
                self._core.done(index, request)
            else:
                self._core.handoff_undone(index, request)
            self._tracker.ended(request.request_id)
            self._goes_on(source)
            ended.append(request)
        self._ledger.end(ended)
        self._flip()

    def _is_at(self, request: Request, instance: int, stage: Stage) -> bool:
        tracked = self._tracker.live.get(request.request_id)
        return tracked is not None and (tracked.instance, tracked.stage) == (instance, stage)

    def _end(self, request: Request) -> None:
        self._tracker.ended(request.request_id)
        self._goes_on(self._migrations.over(request.request_id))
        self._ledger.end([request])

    def _abort(self, request: Request) -> None:
        request.enter(Status.ABORTED, self._clock.now())
        self._end(request)

    # Cancelling.

    async def cancel(self, request_id: int) -> bool:
        """The client is gone; False when the request has ended already."""
        tracked = self._tracker.live.get(request_id)
        if tracked is None:
            return False
        tracked.cancelled = True
        if tracked.instance < 0:
            self._homeless_offers = deque(one for one in self._homeless_offers if one.request.request_id != request_id)
            self._abort(tracked.request)
        else:
            await self._try(self._instances[tracked.instance].cancel, request_id, self._term)
        if tracked.stage is Stage.OFFERED and tracked.source in self._incarnations:
            self._calls.tell(self._instances[tracked.source].release, request_id)
        return True

    # Roles.

    async def observe(self, planner_words: str) -> Observation:
        """How things stand, for the planner. `planner_words` are those of its last tick."""
        self._planner_words = planner_words
        return await self.roles()

    async def roles(self) -> Observation:
        """The living instances as they are now, asked one by one."""
        answers = [self._try(self._instances[index].load) for index in self._incarnations]
        loads = [load for load in [await answer for answer in answers] if load is not None]
        self._loads.update((load.index, load) for load in loads)
        now = self._clock.now()
        return Observation(now, tuple(loads), self._demand.view(now), dict(self._pins))

    async def pin(self, pins: dict[int, Role | None]) -> None:
        """Set roles by hand, or with None leave them to the planner again.

        Raises ConfigError, and changes nothing, for an instance that is not there, and when too few would be left in
        a role.
        """
        unknown = sorted(set(pins) - set(range(len(self._names))))
        if unknown:
            raise ConfigError(f"there is no instance-{unknown[0]}; the last is {self._names[-1]}")
        wanted = {index: role for index, role in {**self._pins, **pins}.items() if role is not None}
        check_pins(wanted, (await self.roles()).instances, self._scenario.planner)
        self._pins = wanted
        self._tell_pins()
        for index, role in pins.items():
            if index in self._incarnations:
                await self._try(self._instances[index].keep_pin, role)

    def _tell_pins(self) -> None:
        if isinstance(self._core, ArrowRouter):
            self._core.pinned = frozenset(self._pins)

    def _flip(self) -> None:
        """Carry out what a router that also decides on roles has decided."""
        if isinstance(self._core, ArrowRouter):
            for order in self._core.take_orders():
                epoch = self._epochs[order.instance]
                self._calls.spawn(self.change_role(replace(order, epoch=epoch)))

    async def change_role(self, order: RoleOrder) -> bool:
        """Stop sending work to an instance and have it change; False when it refuses."""
        index = order.instance
        role = self._core.role_if_open(index)
        if role is None:
            return False
        self._core.close(index)
        decided_s = self._clock.now()
        self._history.change_begins(index, order.role, order.reason, decided_s)
        recalls = order.how is How.MIGRATE and bool(self._core.prompts.ids)
        leftover: Leftover | None = await self._try(self._instances[index].change_role, order, recalls, self._term)
        if leftover is None:
            if index in self._incarnations and self._core.role_if_open(index) is None:
                self._history.change_refused(index, decided_s)
                self._core.open(index, role)
            return False
        self._changes.append(f"{decided_s:.1f} s: {self._names[index]} becomes {order.role}: {order.reason}")
        self._ordering_s[index] = self._clock.now() - decided_s
        self._take_elsewhere(index, leftover)
        if order.how is How.MIGRATE and self._core.role_if_open(index) is None:
            self._migrations.begin(index)
            self._goes_on(index)
        return True

    def _take_elsewhere(self, index: int, leftover: Leftover) -> None:
        for offer in leftover.offers:
            request_id = offer.request.request_id
            if self._is_at(offer.request, index, Stage.OFFERED):
                self._core.handoff_undone(index, offer.request)
                self._route_offer(self._tracker.offer_of(request_id))
            elif self._is_pushed_to(index, offer.request):
                del self._pushed[request_id]
                self._core.handoff_undone(index, offer.request)
        for request in leftover.prompts:
            if self._is_at(request, index, Stage.PROMPT):
                self._core.done(index, request)
                self._tracker.live[request.request_id].request = request
                self._route_prompt(request)

    def _goes_on(self, source: int | None) -> None:
        """Have the next requests leave an instance that is being left."""
        chosen = [] if source is None else self._migrations.choose(source)
        if source is not None and chosen:
            self._calls.spawn(self._eject(source, chosen))

    async def _eject(self, source: int, request_ids: list[int]) -> None:
        stuck = await self._try(self._instances[source].eject, request_ids, self._term)
        for request_id in stuck or ():
            tracked = self._tracker.live.get(request_id)
            if tracked is not None and tracked.instance == source and tracked.stage is not Stage.OFFERED:
                self._migrations.stick(tracked.request)
        if stuck:
            self._goes_on(source)

    def _stay(self, offer: Offer) -> None:
        """The drain was rolled back before the KV had left."""
        request, source = offer.request, offer.source
        self._tracker.stays(offer)
        self._migrations.over(request.request_id)
        self._core.migration_undone(request, source)
        self._calls.tell(self._instances[source].take_back, request.request_id, self._term)

    def _has_room(self, request: Request, instance: int) -> bool:
        """Whether an instance can take in KV now, by its last report and by what is on its way there."""
        view = self._loads.get(instance)
        if view is None or view.num_offers:
            return False
        taken = max(view.kv_used_tokens, self._core.handoffs.booked.get(instance, 0))
        if self._scenario.engine.reserves_output:
            return taken + request.max_tokens <= view.kv_capacity_tokens
        growing = (view.num_decoding + view.num_incoming + 1) * self._scenario.engine.block_size
        return taken + request.prompt_tokens + request.generated + growing <= view.kv_capacity_tokens

    async def serve(self, serving: Serving) -> None:
        """An instance is ready in a role."""
        await self._in_office.wait()
        index = serving.instance
        if serving.epoch < self._incarnations.get(index, serving.epoch + 1):
            self._num_ignored += 1
            return
        if self._history.role_of(index) is not serving.role:
            self._metrics.add("baton_role_changes", 1, self._history.role_of(index), serving.role, serving.cause)
        if self._history.is_changing(index):
            self._history.change_commits(index, serving.role, serving.drained_s)
        self._history.serves(index, serving.role, serving.now_s)
        self._control_s.append(self._ordering_s.pop(index, 0.0) + self._clock.now() - serving.now_s)
        self._migrations.end(index)
        self._epochs[index] = serving.epoch
        self._core.close(index)
        self._core.open(index, serving.role)
        self._route_homeless()

    def _route_homeless(self) -> None:
        for tracked in [one for one in self._tracker.live.values() if one.stage is Stage.HOMELESS]:
            self._route_prompt(tracked.request)
        for _ in range(len(self._homeless_offers)):
            self._route_offer(self._homeless_offers.popleft())

    # Life and death.

    def _welcome(self, index: int, role: Role, first_epoch: int) -> None:
        self._epochs[index] = self._incarnations[index] = first_epoch
        self._heard_s[index] = time.monotonic()
        self._core.open(index, role)

    async def instance_died(self, index: int) -> tuple[Role, int, int, int]:
        """Take its requests elsewhere. Returns its role, its last epoch, how many it had, and tokens to recompute."""
        role, epoch = self._history.role_of(index), self._epochs.get(index, 0)
        if index not in self._incarnations:
            return role, epoch, 0, 0
        now = self._clock.now()
        del self._incarnations[index], self._heard_s[index]
        self._loads.pop(index, None)
        self._migrations.end(index)
        for tracked in self._tracker.at(index):
            if tracked.stage is not Stage.OFFERED:
                self._migrations.undo(tracked.request)
        self._core.forget(index)
        self._pushed = {request_id: pushed for request_id, pushed in self._pushed.items() if pushed[0] != index}
        self._history.dies(index, now)
        self._changes.append(f"{now:.1f} s: {self._names[index]} died")
        before = self._recomputed_tokens
        losses = self._tracker.losses(index)
        for loss in losses:
            tracked = self._tracker.live[loss.request.request_id]
            if loss.offer is None or loss.offer.source not in self._incarnations:
                self._start_over(tracked, f"{self._names[index]} died")
            elif tracked.cancelled:
                self._calls.tell(self._instances[loss.offer.source].release, loss.request.request_id)
                self._abort(tracked.request)
            else:
                self._num_disturbed += 1
                self._num_resumed += 1
                self._route_offer(loss.offer)
        return role, epoch, len(losses), self._recomputed_tokens - before

    async def instance_lives(self, index: int, instance: Any, role: Role, first_epoch: int) -> None:
        """A new incarnation serves."""
        self._instances[index] = instance
        self._welcome(index, role, first_epoch)
        self._history.serves(index, role, self._clock.now())
        self._changes.append(f"{self._clock.now():.1f} s: {self._names[index]} is back as {role}")
        if index in self._pins:
            await self._try(instance.keep_pin, self._pins[index])
        self._route_homeless()

    async def recover(
        self,
        me: Any,
        clock: Clock,
        instances: dict[int, Any],
        exporter: Any,
        term: int,
        incarnations: dict[int, int],
        ended: FloatArray,
        deeds: list[Deeds],
        legacy: Legacy | None,
    ) -> set[int]:
        """Take over from a router that died; returns the ids of all requests that are known here now.

        ended, deeds, legacy: what its snapshots have told.
        """
        if legacy is not None:
            self._inherit(legacy)
        self._clock, self._instances, self._exporter, self._term = clock, dict(instances), exporter, term
        self._ledger.recall(ended, deeds)
        inventories: dict[int, Inventory] = {}
        for index in incarnations:
            found = await self._try(instances[index].inventory, me, term)
            if found is not None:
                inventories[index] = found
        for index, found in inventories.items():
            self._ledger.catch_up(found.ended, found.texts, found.deeds)
            self._epochs[index], self._incarnations[index] = found.load.epoch, incarnations[index]
            if found.pin is not None:
                self._pins[index] = found.pin
            self._heard_s[index] = time.monotonic()
            self._loads[index] = found.load
            self._recall_role(index, found.load, found.reason)
            if found.load.target is None:
                self._core.open(index, found.load.role)
        self._tell_pins()
        for index, found in inventories.items():
            self._take_over(index, found, inventories)
        self._num_sent = len(self._ledger.ended) + len(self._tracker.live)
        self._demand.recall(self._ledger.records(), [tracked.request for tracked in self._tracker.live.values()])
        self._in_office.set()
        self._calls.spawn(self._export_forever())
        return self._ledger.ended | set(self._tracker.live)

    def _recall_role(self, index: int, load: LoadView, reason: str) -> None:
        """What the history lacks: a role change ordered since the last snapshot, and whether one is over."""
        role = load.target if load.phase is Phase.DRAINING else load.role
        if role is not None and role is not self._history.role_of(index) and not self._history.is_changing(index):
            self._history.change_begins(index, role, reason, load.serving_since_s)
        if load.phase is Phase.SERVING:
            self._history.serves(index, load.role, self._clock.now())

    def _inherit(self, legacy: Legacy) -> None:
        self._history, self._control_s = legacy.history, legacy.control_s
        self._num_refused, self._num_ignored = legacy.num_refused, legacy.num_ignored
        toll = legacy.toll
        self._num_disturbed, self._num_resumed = toll.disturbed, toll.resumed
        self._recomputed_tokens, self._num_failed = toll.recomputed_tokens, toll.failed

    def _take_over(self, index: int, found: Inventory, inventories: dict[int, Inventory]) -> None:
        """Put the requests of one instance back on the books."""
        for request in found.prompts:
            self._tracker.add(request)
            self._tracker.sent(request.request_id, index)
            self._core.book_prompt(index, request)
        for request in found.decoding:
            tracked = self._tracker.add(request)
            tracked.stage, tracked.instance = Stage.DECODING, index
            self._core.book_handoff(index, request)
        for offer in found.incoming:
            if offer.prefill_ends_s is not None:
                self._calls.tell(self._instances[index].withdraw, offer.request.request_id, self._term)
                continue
            self._tracker.add(offer.request)
            self._tracker.offered(offer, index)
            self._core.book_handoff(index, offer.request)
        for progress in found.progress:
            self._tracker.progressed(progress, index)
        taken = {
            offer.request.request_id
            for other in inventories.values()
            for offer in other.incoming
            if offer.prefill_ends_s is None
        }
        held = {request.request_id for other in inventories.values() for request in other.decoding}
        for offer in found.outgoing:
            if offer.request.request_id in held or offer.request.request_id in self._ledger.ended:
                self._calls.tell(self._instances[index].release, offer.request.request_id)
            elif offer.request.request_id not in taken:
                self._tracker.add(offer.request)
                self._route_offer(offer)

    async def _try(self, method: Any, *arguments: Any) -> Any:
        """The answer, or None from an instance that has died: its supervisor will say so."""
        try:
            return await self._calls.ask(method, *arguments)
        except ray.exceptions.RayActorError:
            return None

    # Watching.

    async def snapshot(self) -> Snapshot:
        now = time.monotonic()
        ended, texts, deeds = self._ledger.take_news()
        handed_over, self._handed_over = self._handed_over, []
        return Snapshot(
            now_s=self._clock.now(),
            num_sent=self._num_sent,
            num_ended=len(self._ledger.ended),
            num_good=self._ledger.num_good,
            loads=tuple(self._loads[index] for index in sorted(self._loads)),
            changes=tuple(self._changes),
            silent_s={index: now - heard_s for index, heard_s in self._heard_s.items()},
            ended=ended,
            texts=texts,
            handed_over=tuple(handed_over),
            planner_words=self._planner_words,
            deeds=tuple(deeds),
            legacy=Legacy(self._history, self._control_s, self._num_refused, self._num_ignored, self._counted()),
        )

    async def toll(self) -> Toll:
        """What faults have cost until now."""
        return replace(self._counted(), refusals=tuple(self._ledger.refusals()))

    def _counted(self) -> Toll:
        """Without the refusals, which only the deeds know: finding them takes a look at every transfer."""
        return Toll(self._num_disturbed, self._num_resumed, self._recomputed_tokens, self._num_failed)

    async def unfinished(self) -> list[Request]:
        """Requests that have not ended, as they were when they were heard of last."""
        return [tracked.request for tracked in self._tracker.live.values()]

    async def whereabouts(self) -> dict[int, Stage]:
        """Where each request is that has not ended."""
        return {request_id: tracked.stage for request_id, tracked in self._tracker.live.items()}

    async def watch(self) -> None:
        """Never returns; fails when this process dies or something in it has gone wrong."""
        await self._calls.failure()

    async def _export_forever(self) -> None:
        while True:
            await self._export()
            await asyncio.sleep(EXPORT_INTERVAL_S)
            self._renew_leases()

    def _renew_leases(self) -> None:
        """Of KV that has nowhere to go for the moment."""
        for source in {offer.source for offer in self._homeless_offers} & set(self._incarnations):
            waiting = [offer.request.request_id for offer in self._homeless_offers if offer.source == source]
            self._calls.tell(self._instances[source].renew, waiting)

    async def _export(self) -> None:
        await self._try(self._exporter.put, f"router/{self._term}", self._metrics)

    async def set_exporter(self, exporter: Any) -> None:
        self._exporter = exporter

    async def suffer(self) -> None:
        """Die, to see who minds."""
        os.kill(os.getpid(), 9)

    async def finish(self) -> RouterHistory:
        """Say what is still unsaid and hand over the records."""
        await self._export()
        self._history.end(self._clock.now())
        deeds, instances = self._ledger.deeds, range(len(self._names))
        return RouterHistory(
            records=self._ledger.records(),
            step_rows=[deeds.step_rows(index) for index in instances],
            samples=[deeds.samples(index) for index in instances],
            transfers=deeds.transfers(),
            lateness_s=deeds.lateness_s(),
            spans=self._history.spans,
            control_s=self._control_s,
            changes=self._history.changes,
            num_refused=self._num_refused,
            num_ignored=self._num_ignored,
            toll=await self.toll(),
            num_calls=self._calls.count,
            cpu_s=self._calls.cpu_s,
        )
