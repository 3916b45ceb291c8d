"""KV coming into an instance: the modelled flow and the real bytes of every handoff; both must be over."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, isnan, nan
from typing import Any

import ray.exceptions

from actors.byte_budget import ByteBudget
from actors.calls import Calls
from actors.clock import Clock
from actors.kv_store import KvStore
from actors.kv_wire import KvWire
from actors.messages import Offer, TransferTimes
from cluster.agenda import Agenda
from cluster.errors import TransferFailed
from cluster.fabric import Fabric, Flow
from cluster.handoff import Handoff, HandoffState
from cluster.link import LinkSpec
from cluster.request import Request
from compute.engine import Engine
from compute.kv_layout import Layers
from metrics.prometheus import MetricStore
from scenario.build import Placement
from scenario.spec import Scenario

logger = logging.getLogger(__name__)

PULL_TIMEOUT_S = 30.0
"""Wall seconds after which a pull has failed."""
PULL_ATTEMPTS = 3
LAYER_GROUPS = 4
"""Groups of layers in which KV leaves while its prompt is computed: each costs a Ray call."""


@dataclass(slots=True)
class Arrival:
    """Seconds from `started_s` to the end of each transfer; None while it goes on."""

    handoff: Handoff
    offer: Offer
    flow: Flow
    started_s: float
    modelled_s: float | None = None
    measured_s: float | None = None
    refused_s: float = nan


class Intake:
    """`on_whole(handoff, now)` when the KV is here, `on_lost(handoff, offer, reason)` when it cannot be had.

    The receiver pulls, so it owns the Ray object; a byte budget bounds what is on its way. The links are
    modelled here for flows to this instance; a source that sends to others as well says how many flows leave it.
    KV that is larger than half the budget comes in several groups of layers, as does KV that leaves as it is computed.
    """

    def __init__(
        self,
        scenario: Scenario,
        index: int,
        agenda: Agenda,
        engine: Engine,
        store: KvStore,
        metrics: MetricStore,
        calls: Calls,
        *,
        budget_bytes: int,
        on_whole: Callable[[Handoff, float], None],
        on_lost: Callable[[Handoff, Offer, str], None],
    ) -> None:
        self._index = index
        self._engine = engine
        self._budget_bytes = budget_bytes
        self._scenario = scenario
        self._placement = Placement(scenario)
        self._fabric = Fabric(agenda, self._flow_ends)
        self._store, self._metrics, self._calls = store, metrics, calls
        self._on_whole, self._on_lost = on_whole, on_lost
        self._arrivals: dict[int, Arrival] = {}
        self.transfers: list[TransferTimes] = []
        self.num_refused = 0

    def start(self, clock: Clock, catch_up: Callable[[], float], peers: dict[int, Any], wire: KvWire | None) -> None:
        """`catch_up` does what is due and returns now; `peers` are handles by index, kept up to date by the owner.

        wire: brings KV from other nodes; None leaves that to the object store.
        """
        self._clock, self._catch_up, self._peers, self._wire = clock, catch_up, peers, wire
        self._budget = ByteBudget(self._budget_bytes)

    def groups(self, request: Request) -> list[Layers]:
        """The groups of layers in which a request's real KV travels."""
        num_tokens, layout = self._engine.kv_tokens(request), self._store.layout
        if not num_tokens:
            return []
        most_bytes = self._budget_bytes // 2
        if self._scenario.handoff.mode == "layerwise":
            most_bytes = min(most_bytes, ceil(layout.num_bytes(num_tokens) / LAYER_GROUPS))
        return list(layout.groups(num_tokens, most_bytes))

    def _real_bytes(self, request: Request) -> int:
        return self._store.layout.num_bytes(self._engine.kv_tokens(request))

    def begin(self, handoff: Handoff, offer: Offer, now: float) -> None:
        """Room is reserved: start both transfers."""
        handoff.begin(now)
        flow = self._fabric.start(handoff, self._link(offer.source), now)
        arrival = Arrival(handoff, offer, flow, now)
        self._arrivals[handoff.request.request_id] = arrival
        self._calls.spawn(self._ask_leaving(arrival))
        self._start_pull(arrival)

    def _start_pull(self, arrival: Arrival) -> None:
        if self._engine.kv_tokens(arrival.handoff.request):
            self._calls.spawn(self._pull(arrival))
        else:
            arrival.measured_s = 0.0

    def begin_early(self, handoff: Handoff, offer: Offer, now: float) -> None:
        """Room is reserved while the prompt is computed: layers leave as they are ready. `complete` follows."""
        assert offer.prefill_ends_s is not None
        handoff.enter(HandoffState.MOVING)
        flow = self._fabric.start_layerwise(
            handoff,
            self._link(offer.source),
            now,
            prefill_s=offer.prefill_ends_s - now,
            last_layer_bytes=self._last_layer_bytes(handoff),
        )
        arrival = Arrival(handoff, offer, flow, now)
        self._arrivals[handoff.request.request_id] = arrival
        self._calls.spawn(self._ask_leaving(arrival))
        self._start_pull(arrival)

    def complete(self, handoff: Handoff, now: float) -> None:
        """The prompt of a transfer that began early is computed: what is left goes at once. Times count from here."""
        handoff.begin(now)
        arrival = self._arrivals[handoff.request.request_id]
        arrival.started_s = now
        if arrival.measured_s is not None:
            arrival.measured_s = 0.0
        self._fabric.finish_prefill(arrival.flow, self._last_layer_bytes(handoff), now)

    def _last_layer_bytes(self, handoff: Handoff) -> float:
        return handoff.num_bytes / self._scenario.model.num_layers

    def cancel(self, request_id: int, now: float) -> Offer | None:
        """Stop a transfer that is not wanted any more; its offer, or None when there is none under way."""
        arrival = self._arrivals.pop(request_id, None)
        if arrival is None:
            return None
        self._fabric.cancel(arrival.flow, now)
        self._store.drop(request_id)
        if arrival.handoff.state is HandoffState.MOVING:
            arrival.handoff.enter(HandoffState.FAILED)
        return arrival.offer

    def source_lost(self, source: int) -> None:
        """An instance has died: what was coming from it will not come."""
        if self._wire is not None:
            self._wire.forget(source)
        for arrival in [one for one in self._arrivals.values() if one.offer.source == source]:
            self._lose(arrival, f"instance {source} died")

    def tell_leaving(self, source: int, link: str, flows: int, now: float) -> None:
        """How many flows leave `source` over `link`, to whomever."""
        self._fabric.tell_leaving((source, link), flows, now)

    def offers(self) -> list[Offer]:
        return [arrival.offer for arrival in self._arrivals.values()]

    def _link(self, source: int) -> LinkSpec:
        return self._placement.link_between(source, self._index)

    async def _ask_leaving(self, arrival: Arrival) -> None:
        source, link = arrival.offer.source, self._link(arrival.offer.source).name
        request_id = arrival.handoff.request.request_id
        flows = await self._calls.ask(self._peers[source].sends, request_id, self._index, link)
        self.tell_leaving(source, link, flows, self._catch_up())

    def _flow_ends(self, flow: Flow, now: float) -> None:
        arrival = self._arrivals.get(flow.handoff.request.request_id)
        if arrival is not None and arrival.flow is flow:
            arrival.modelled_s = now - arrival.started_s
            self._finish_if_whole(arrival, now)

    async def _pull(self, arrival: Arrival) -> None:
        request = arrival.handoff.request
        request_id = request.request_id
        if not self._is_wanted(arrival):
            return
        self._store.await_kv(request_id, self._engine.kv_tokens(request))
        pulls = [asyncio.ensure_future(self._pull_layers(arrival, layers)) for layers in self.groups(request)]
        try:
            await asyncio.gather(*pulls)
        except (TransferFailed, ray.exceptions.RayError, TimeoutError) as error:
            if self._is_wanted(arrival):
                self._catch_up()
                self._lose(arrival, str(error).split("\n")[0])
        finally:
            for pull in pulls:
                pull.cancel()
        if self._is_wanted(arrival):
            self._metrics.add("baton_kv_payloads", 1, "verified")
            now = self._catch_up()
            arrival.measured_s = now - arrival.started_s
            self._finish_if_whole(arrival, now)

    async def _pull_layers(self, arrival: Arrival, layers: Layers) -> None:
        """One group of layers, verified; raises what went wrong the last of several times."""
        offer, request_id = arrival.offer, arrival.handoff.request.request_id
        num_bytes = self._store.layout.num_bytes(self._engine.kv_tokens(arrival.handoff.request), layers)
        for attempt in range(1, PULL_ATTEMPTS + 1):
            try:
                async with self._budget.take(num_bytes):
                    await asyncio.wait_for(self._fetch(offer, layers), PULL_TIMEOUT_S)
                return
            except (TransferFailed, ray.exceptions.RayError, TimeoutError) as error:
                if self._is_wanted(arrival):
                    self.num_refused += 1
                    if isnan(arrival.refused_s):
                        arrival.refused_s = self._clock.now()
                    self._metrics.add("baton_kv_payloads", 1, "refused")
                    logger.warning("KV of request %d, attempt %d: %s", request_id, attempt, error)
                if attempt == PULL_ATTEMPTS or isinstance(error, ray.exceptions.ActorDiedError):
                    raise
                if not self._is_wanted(arrival):
                    return

    async def _fetch(self, offer: Offer, layers: Layers) -> None:
        """Through the object store, or over TCP from another node where that is asked for."""
        request_id, epoch, peer = offer.request.request_id, offer.source_epoch, self._peers[offer.source]
        endpoint = await self._wire.endpoint_of(offer.source, peer) if self._wire is not None else None
        if self._wire is not None and endpoint is not None:
            await self._wire.pull(endpoint, request_id, epoch, layers)
        else:
            payload = await self._calls.ask(peer.pull, request_id, layers)
            await asyncio.to_thread(self._store.keep, request_id, epoch, layers, payload)

    def _is_wanted(self, arrival: Arrival) -> bool:
        return self._arrivals.get(arrival.handoff.request.request_id) is arrival

    def _finish_if_whole(self, arrival: Arrival, now: float) -> None:
        if arrival.modelled_s is None or arrival.measured_s is None:
            return
        handoff = arrival.handoff
        request = handoff.request
        del self._arrivals[request.request_id]
        self._note(
            TransferTimes(
                arrival.modelled_s,
                arrival.measured_s,
                handoff.num_bytes,
                self._real_bytes(request),
                arrival.refused_s,
                now,
                arrival.offer.migrates,
            )
        )
        self._calls.tell(self._peers[arrival.offer.source].release, request.request_id)
        self._on_whole(handoff, now)

    def _note(self, times: TransferTimes) -> None:
        self.transfers.append(times)
        for kind, seconds, num_bytes in (
            ("modelled", times.modelled_s, times.modelled_bytes),
            ("measured", times.measured_s, times.real_bytes),
        ):
            self._metrics.observe("baton_kv_transfer_seconds", seconds, kind)
            self._metrics.add("baton_kv_transfer_bytes", num_bytes, kind)

    def _lose(self, arrival: Arrival, reason: str) -> None:
        self.cancel(arrival.handoff.request.request_id, self._clock.now())
        self._on_lost(arrival.handoff, arrival.offer, reason)
