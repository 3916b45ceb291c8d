"""KV that leaves an instance: written and sealed layer by layer, kept on a lease, and the links on which it leaves."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from actors.calls import Calls
from actors.clock import Clock
from actors.kv_store import KvStore
from actors.leases import Leases
from actors.messages import Offer
from cluster.request import Request
from compute.engine import Engine
from compute.kv_layout import Layers


class Outlet:
    """The counterpart of actors.intake.Intake. `groups_of` are the groups of layers in which a request's KV travels."""

    def __init__(
        self,
        index: int,
        engine: Engine,
        store: KvStore,
        calls: Calls,
        *,
        lease_s: float,
        groups_of: Callable[[Request], list[Layers]],
    ) -> None:
        self._index = index
        self._engine, self._store, self._calls = engine, store, calls
        self._groups_of = groups_of
        self._leases = Leases(lease_s, time.monotonic)
        self.offers: dict[int, Offer] = {}
        """KV that waits here to be pulled, by request."""
        self._early: set[int] = set()
        """Requests whose KV is written while it is computed."""
        self._leaving: dict[str, dict[int, int]] = {}
        """Flows that leave here: target by request, by link."""

    def start(self, clock: Clock, peers: dict[int, Any]) -> None:
        """`peers` are handles by index, kept up to date by the owner."""
        self._clock, self._peers = clock, peers

    # Writing.

    def offer(self, offer: Offer) -> None:
        """The KV is complete: have it written, unless it was as it was computed, and keep it until `release`."""
        request_id = offer.request.request_id
        self.offers[request_id] = offer
        self._leases.grant(request_id)
        groups = self._groups_of(offer.request)
        if groups and request_id not in self._early:
            self._store.drop(request_id)  # a decode instance that prefills it again
            self._store.expect(request_id, self._engine.kv_tokens(offer.request), groups)
            self._calls.spawn(asyncio.to_thread(self._write, offer, groups))

    def write_early(self, offer: Offer, now: float) -> None:
        """Write groups of layers as they are computed in the step that has just begun."""
        groups, request_id = self._groups_of(offer.request), offer.request.request_id
        if groups:
            self._early.add(request_id)
            self._store.expect(request_id, self._engine.kv_tokens(offer.request), groups)
            self._calls.spawn(self._write_as_computed(offer, groups, now))

    async def _write_as_computed(self, offer: Offer, groups: list[Layers], start_s: float) -> None:
        assert offer.prefill_ends_s is not None
        for layers in groups:
            share = layers.end / groups[-1].end
            await asyncio.sleep(self._clock.delay_s(start_s + share * (offer.prefill_ends_s - start_s)))
            if offer.request.request_id not in self._early:
                return
            self._engine.compute_layers(offer.request, layers.end)
            await asyncio.to_thread(self._write, offer, [layers])
        self._early.discard(offer.request.request_id)

    def _write(self, offer: Offer, groups: list[Layers]) -> None:
        request = offer.request
        for layers in groups:
            fill = partial(self._engine.write_kv, request, layers)
            self._store.write(request.request_id, offer.source_epoch, layers, fill)

    # Keeping.

    def renew(self, request_ids: list[int]) -> None:
        """Somebody still wants this KV."""
        self._leases.renew(request_ids)

    def expired(self) -> list[int]:
        """Requests whose KV nobody has asked for in time."""
        return self._leases.expired()

    def release(self, request_id: int) -> Offer | None:
        """The KV has arrived elsewhere, or is not wanted any more; its offer, or None when it is not here."""
        offer = self.offers.pop(request_id, None)
        if offer is not None:
            self.drop(request_id)
            self.stops_sending(request_id)
        return offer

    def take_back(self, request_id: int) -> Offer:
        """The request goes on here after all."""
        self._leases.end(request_id)
        self._store.drop(request_id)
        return self.offers.pop(request_id)

    def drop(self, request_id: int) -> None:
        """Nothing of the request's KV is needed here any more."""
        self._leases.end(request_id)
        self._early.discard(request_id)
        self._store.drop(request_id)
        self._engine.forget(request_id)

    # Links.

    def sends(self, request_id: int, target: int, link: str) -> int:
        """A flow has begun to leave for `target`; returns how many leave over that link."""
        flows = self._leaving.setdefault(link, {})
        flows[request_id] = target
        self._tell_leaving(link, except_for=request_id)
        return len(flows)

    def stops_sending(self, request_id: int) -> None:
        """Its flow, if there is one, has ended."""
        for link, flows in self._leaving.items():
            if flows.pop(request_id, None) is not None:
                self._tell_leaving(link)

    def _tell_leaving(self, link: str, except_for: int = -1) -> None:
        flows = self._leaving[link]
        for target in {target for request_id, target in flows.items() if request_id != except_for}:
            self._calls.tell(self._peers[target].tell_leaving, self._index, link, len(flows))

    def target_died(self, index: int) -> None:
        """What was leaving for an instance does not any more."""
        for flows in self._leaving.values():
            for request_id in [request_id for request_id, target in flows.items() if target == index]:
                del flows[request_id]
