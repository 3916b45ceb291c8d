"""KV on its way between simulated instances: pulled or pushed, serial or layer by layer, and migrated."""

from collections import deque
from functools import partial

from cluster.agenda import Agenda
from cluster.fabric import Fabric, Flow
from cluster.handoff import MOVING, RESERVED, Handoff, HandoffState
from cluster.link import LinkSpec
from cluster.request import HANDOFF, Request
from cluster.router import Router
from cluster.runner import Runner
from scenario.build import Placement
from scenario.spec import Scenario


class Handoffs:
    """From a computed prompt, or a decoding request that has to leave, to KV in place at a decode instance."""

    def __init__(self, scenario: Scenario, agenda: Agenda, runners: list[Runner], router: Router) -> None:
        self._scenario = scenario
        self._runners = runners
        self._router = router
        self._fabric = Fabric(agenda, self._arrives)
        self._placement = Placement(scenario)
        self._kv_bytes_per_token = scenario.model.kv_bytes_per_token
        self._layerwise = scenario.handoff.mode == "layerwise"
        self._homeless: deque[Request] = deque()
        """Requests for whose KV no decode instance serves right now."""
        self._pushed: dict[int, Handoff] = {}
        """Handoffs offered before their prompt was complete, by request."""
        self._held_back: dict[int, Flow] = {}
        """Layer-wise flows whose prefill step goes on, by request."""
        self._leaving: dict[int, int] = {}
        """Draining instances whose requests go on elsewhere, and how many are on their way."""
        self._migrating: dict[int, int] = {}
        """Where the KV of a migrating request is."""
        self.num_transfers = 0
        self.bytes_moved = 0
        self.num_migrations = 0
        self.bytes_migrated = 0

    # Prefill to decode.

    def prefill_starts(self, request: Request, end_s: float, now: float) -> None:
        """With push: ask for room at decode while the prompt is computed, and send layers as they are ready."""
        handoff = self._offer(request, now)
        if handoff is None:
            return
        self._pushed[request.request_id] = handoff
        if self._layerwise and handoff.state is RESERVED:
            handoff.enter(MOVING)
            self._held_back[request.request_id] = self._fabric.start_layerwise(
                handoff,
                self._link_of(handoff),
                now,
                prefill_s=end_s - now,
                last_layer_bytes=self._last_layer_bytes(handoff),
            )

    def kv_ready(self, request: Request, now: float) -> None:
        """A prompt is computed, or a decoding request has been taken out of its batch: its KV may go."""
        source = self._migrating.get(request.request_id)
        if source is not None and self._router.role_if_open(source) is not None:
            self._stay(request, source, now)
            return
        handoff = self._pushed.pop(request.request_id, None)
        if handoff is None:
            handoff = self._offer(request, now)
        if handoff is None:
            self._homeless.append(request)
        elif handoff.state is MOVING:
            handoff.begin(now)
            flow = self._held_back.pop(request.request_id)
            self._fabric.finish_prefill(flow, self._last_layer_bytes(handoff), now)
        elif handoff.state is RESERVED:
            self._start(handoff, now)

    def room_reserved(self, handoff: Handoff, now: float) -> None:
        """A handoff that was in line has room; it starts if its KV is ready."""
        if handoff.request.status is HANDOFF:
            self._start(handoff, now)

    def turned_away(self, handoff: Handoff, now: float) -> None:
        """A handoff in line at an instance that leaves its role: offer it elsewhere."""
        handoff.enter(HandoffState.FAILED)
        self._router.handoff_undone(handoff.target, handoff.request)
        if self._pushed.pop(handoff.request.request_id, None) is None:
            self.kv_ready(handoff.request, now)

    def decode_serves(self, now: float) -> None:
        """An instance serves again: whose KV had nowhere to go may have now."""
        for _ in range(len(self._homeless)):
            self.kv_ready(self._homeless.popleft(), now)

    def _offer(self, request: Request, now: float) -> Handoff | None:
        """Choose a decode instance and offer it the request's KV; None while nobody serves decode."""
        choice = self._router.route_handoff(request)
        if choice is None:
            return None
        runner = self._runners[choice.instance]
        num_bytes = request.target * self._kv_bytes_per_token
        source = self._migrating.get(request.request_id, request.prefill_instance)
        handoff = Handoff(request, source, choice.instance, runner.instance.state.epoch, num_bytes)
        runner.accept(handoff, now)
        return handoff

    def _start(self, handoff: Handoff, now: float) -> None:
        handoff.begin(now)
        self._fabric.start(handoff, self._link_of(handoff), now)

    def _link_of(self, handoff: Handoff) -> LinkSpec:
        return self._placement.link_between(handoff.source, handoff.target)

    def _last_layer_bytes(self, handoff: Handoff) -> float:
        return handoff.num_bytes / self._scenario.model.num_layers

    def _arrives(self, flow: Flow, now: float) -> None:
        handoff = flow.handoff
        source, request = handoff.source, handoff.request
        self.num_transfers += 1
        self.bytes_moved += handoff.num_bytes
        self._runners[handoff.target].receive(handoff, now)
        self._runners[source].release(request, now)
        if self._migrating and self._migrating.pop(request.request_id, None) is not None:
            self.num_migrations += 1
            self.bytes_migrated += handoff.num_bytes
            self._next_may_leave(source, now)
        if handoff.target in self._leaving:
            self._migrate(handoff.target, now)

    # Decode to decode.

    def begin_migration(self, source: int, now: float) -> None:
        """Have the decoding requests of a draining instance go on elsewhere."""
        self._leaving[source] = 0
        self._migrate(source, now)

    def end_migration(self, source: int) -> None:
        """The instance has changed its role, or stays."""
        self._leaving.pop(source, None)

    def finished(self, request: Request, now: float) -> None:
        """A request that was to leave has ended before it could."""
        source = self._migrating.pop(request.request_id, None)
        if source is not None:
            self._router.migration_undone(request, source)
            self._next_may_leave(source, now)

    def _next_may_leave(self, source: int, now: float) -> None:
        if source in self._leaving:
            self._leaving[source] -= 1
            self._migrate(source, now)

    def _migrate(self, source: int, now: float) -> None:
        """Take more requests out, a few at a time, while somebody has room for them."""
        runner = self._runners[source]
        batches = runner.instance.batches
        for request in [one for batch in batches for one in (*batch.ready, *batch.members.values())]:
            if self._leaving.get(source, self._at_once) >= self._at_once:
                return
            if request.request_id in self._migrating:
                continue
            if self._router.route_migration(request, source, partial(self._has_room, request)) is None:
                return
            self._leaving[source] += 1
            self._migrating[request.request_id] = source
            runner.eject(request, now)

    def _stay(self, request: Request, source: int, now: float) -> None:
        """The drain was rolled back before the request had left: it goes on where it was."""
        del self._migrating[request.request_id]
        self._runners[source].take_back(request, now)
        self._router.migration_undone(request, source)

    @property
    def _at_once(self) -> int:
        return self._scenario.planner.migrations_at_once

    def _has_room(self, request: Request, instance: int) -> bool:
        target = self._runners[instance].instance
        return not target.offers and target.scheduler.has_room(request, stays=True)
