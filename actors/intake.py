"""KV coming into an instance: the modelled flow and the real bytes of every handoff; both must be over."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray.exceptions

from actors.byte_budget import ByteBudget
from actors.calls import Calls
from actors.clock import Clock
from actors.kv_store import KvStore
from actors.messages import Offer, TransferTimes
from cluster.agenda import Agenda
from cluster.errors import TransferFailed
from cluster.fabric import Fabric, Flow
from cluster.handoff import Handoff, HandoffState
from cluster.link import LinkSpec
from cluster.request import Request
from metrics.prometheus import MetricStore
from scenario.build import Placement
from scenario.spec import Scenario

logger = logging.getLogger(__name__)

PULL_TIMEOUT_S = 30.0
"""Wall seconds after which a pull has failed."""
PULL_ATTEMPTS = 3


@dataclass(slots=True)
class Arrival:
    """Seconds from `started_s` to the end of each transfer; None while it goes on."""

    handoff: Handoff
    offer: Offer
    flow: Flow
    started_s: float
    modelled_s: float | None = None
    measured_s: float | None = None


class Intake:
    """`on_whole(handoff, now)` when the KV is here, `on_lost(handoff, offer, reason)` when it cannot be had.

    The receiver pulls, so it owns the Ray object; a byte budget bounds what is on its way. The links are
    modelled here for flows to this instance; a source that sends to others as well says how many flows leave it.
    """

    def __init__(
        self,
        scenario: Scenario,
        index: int,
        agenda: Agenda,
        store: KvStore,
        metrics: MetricStore,
        calls: Calls,
        *,
        on_whole: Callable[[Handoff, float], None],
        on_lost: Callable[[Handoff, Offer, str], None],
    ) -> None:
        self._index = index
        self._scenario = scenario
        self._placement = Placement(scenario)
        self._fabric = Fabric(agenda, self._flow_ends)
        self._store, self._metrics, self._calls = store, metrics, calls
        self._on_whole, self._on_lost = on_whole, on_lost
        self._arrivals: dict[int, Arrival] = {}
        self._kv_bytes_per_token = scenario.model.kv_bytes_per_token
        self.transfers: list[TransferTimes] = []
        self.num_refused = 0

    def start(self, clock: Clock, catch_up: Callable[[], float], peers: dict[int, Any]) -> None:
        """`catch_up` does what is due and returns now; `peers` are handles by index, kept up to date by the owner."""
        self._clock, self._catch_up, self._peers = clock, catch_up, peers
        self._budget = ByteBudget(self._scenario.live.kv_budget_bytes)

    def real_bytes(self, request: Request) -> int:
        """Real bytes of a request's KV, a whole number of 16-bit elements."""
        modelled = request.target * self._kv_bytes_per_token
        return int(modelled * self._scenario.live.kv_bytes_scale) // 2 * 2

    def begin(self, handoff: Handoff, offer: Offer, now: float) -> None:
        """Room is reserved: start both transfers."""
        handoff.begin(now)
        flow = self._fabric.start(handoff, self._link(offer.source), now)
        arrival = Arrival(handoff, offer, flow, now)
        self._arrivals[handoff.request.request_id] = arrival
        self._calls.spawn(self._ask_leaving(arrival))
        if self.real_bytes(handoff.request):
            self._calls.spawn(self._pull(arrival))
        else:
            arrival.measured_s = 0.0

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
        request, offer = arrival.handoff.request, arrival.offer
        request_id = request.request_id
        for attempt in range(1, PULL_ATTEMPTS + 1):
            try:
                async with self._budget.take(self.real_bytes(request)):
                    answer = self._calls.ask(self._peers[offer.source].pull, request_id)
                    payload = await asyncio.wait_for(answer, PULL_TIMEOUT_S)
                    await asyncio.to_thread(self._store.keep, request_id, offer.source_epoch, payload)
                    del payload
                break
            except (TransferFailed, ray.exceptions.RayError, TimeoutError) as error:
                if self._arrivals.get(request_id) is not arrival:
                    break
                self.num_refused += 1
                self._metrics.add("baton_kv_payloads", 1, "refused")
                logger.warning("KV of request %d, attempt %d: %s", request_id, attempt, error)
                if attempt == PULL_ATTEMPTS or isinstance(error, ray.exceptions.ActorDiedError):
                    self._catch_up()
                    self._lose(arrival, str(error).split("\n")[0])
                    return
        if self._arrivals.get(request_id) is not arrival:
            self._store.drop(request_id)
            return
        self._metrics.add("baton_kv_payloads", 1, "verified")
        now = self._catch_up()
        arrival.measured_s = now - arrival.started_s
        self._finish_if_whole(arrival, now)

    def _finish_if_whole(self, arrival: Arrival, now: float) -> None:
        if arrival.modelled_s is None or arrival.measured_s is None:
            return
        handoff = arrival.handoff
        request = handoff.request
        del self._arrivals[request.request_id]
        self._note(TransferTimes(arrival.modelled_s, arrival.measured_s, handoff.num_bytes, self.real_bytes(request)))
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
