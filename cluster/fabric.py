"""KV transfers in flight: instances' NICs shared by concurrent flows.

An instance has a NIC for each kind of link. It is full duplex and splits its bandwidth evenly among its
flows; a flow moves at the smaller of its two shares, and every share changes when a flow joins or ends. Two
flows on one NIC take twice as long.
"""

from collections.abc import Callable
from math import inf

from cluster.agenda import FLOW_END, Agenda
from cluster.handoff import Handoff
from cluster.link import LinkSpec

Nic = tuple[int, str]
"""An instance, and the kind of link its NIC is on."""


class Flow:
    """The KV of one handoff on its way. `end_s` moves whenever a neighbour joins or ends.

    A layer-wise flow starts with its prefill step and moves no faster than layers are computed
    (`supply_bytes_s`) until that step ends; only then its last layer can go.
    """

    __slots__ = (
        "_alpha_left_s",
        "_left_bytes",
        "_since_s",
        "end_s",
        "entering",
        "handoff",
        "leaving",
        "link",
        "rate",
        "start_s",
        "supply_bytes_s",
    )

    def __init__(self, handoff: Handoff, link: LinkSpec, now: float) -> None:
        self.handoff = handoff
        self.link = link
        self.leaving = (handoff.source, link.name)
        self.entering = (handoff.target, link.name)
        self.supply_bytes_s = inf
        self._left_bytes = float(handoff.num_bytes)
        self._alpha_left_s = link.alpha_s
        self.start_s = self._since_s = self.end_s = now
        self.rate = 0.0

    def hold_back(self, last_layer_bytes: float, prefill_s: float) -> None:
        """Before the start: the step that computes the KV takes `prefill_s` and runs along."""
        self.supply_bytes_s = self._left_bytes / prefill_s
        self._left_bytes -= last_layer_bytes

    def let_go(self, last_layer_bytes: float, now: float) -> None:
        """The step has ended: what the link has not moved yet, and the last layer, go as fast as it allows."""
        self.set_rate(self.rate, now)
        self.supply_bytes_s = inf
        self._left_bytes += last_layer_bytes
        self._alpha_left_s = self.link.alpha_s

    def set_rate(self, rate: float, now: float) -> None:
        elapsed = now - self._since_s
        latency = min(self._alpha_left_s, elapsed)
        self._alpha_left_s -= latency
        self._left_bytes = max(0.0, self._left_bytes - (elapsed - latency) * self.rate)
        self._since_s = now
        self.rate = rate
        self.end_s = now + self._alpha_left_s + self._left_bytes / rate


class Fabric:
    """Flows by the NIC they leave and the NIC they enter; calls `on_end(flow, now)` when one has arrived."""

    def __init__(self, agenda: Agenda, on_end: Callable[[Flow, float], None]) -> None:
        self._agenda = agenda
        self._on_end = on_end
        self._leaving: dict[Nic, dict[Flow, None]] = {}
        self._entering: dict[Nic, dict[Flow, None]] = {}
        self._told: dict[Nic, int] = {}

    def tell_leaving(self, nic: Nic, flows: int, now: float) -> None:
        """How many flows leave a NIC in all, where this fabric only knows those that come to one receiver."""
        self._told[nic] = flows
        leaving = self._leaving.get(nic)
        if leaving:
            self._share(leaving, {}, now)

    def start(self, handoff: Handoff, link: LinkSpec, now: float) -> Flow:
        """Send the KV of a handoff, all of which is computed."""
        return self._add(Flow(handoff, link, now), now)

    def start_layerwise(
        self, handoff: Handoff, link: LinkSpec, now: float, *, prefill_s: float, last_layer_bytes: float
    ) -> Flow:
        """Send KV layer by layer while the step that computes it runs; `finish_prefill` must follow at its end."""
        flow = Flow(handoff, link, now)
        flow.hold_back(last_layer_bytes, prefill_s)
        return self._add(flow, now)

    def _add(self, flow: Flow, now: float) -> Flow:
        leaving = self._leaving.setdefault(flow.leaving, {})
        entering = self._entering.setdefault(flow.entering, {})
        alone = not leaving and not entering and not self._told
        leaving[flow] = entering[flow] = None
        if alone:
            self._set_rate(flow, flow.link.effective_bytes_s, now)
        else:
            self._share(leaving, entering, now)
        return flow

    def finish_prefill(self, flow: Flow, last_layer_bytes: float, now: float) -> None:
        """The prefill step of a layer-wise flow has ended."""
        flow.let_go(last_layer_bytes, now)
        self._set_rate(flow, self._share_of(flow), now)

    def cancel(self, flow: Flow, now: float) -> None:
        """Stop a flow before its end; its bandwidth goes to its neighbours. A flow that has ended is ignored."""
        leaving, entering = self._leaving[flow.leaving], self._entering[flow.entering]
        if flow in leaving:
            del leaving[flow], entering[flow]
            if leaving or entering:
                self._share(leaving, entering, now)

    def _share_of(self, flow: Flow) -> float:
        sharers = max(len(self._leaving[flow.leaving]), len(self._entering[flow.entering]))
        if self._told:
            sharers = max(sharers, self._told.get(flow.leaving, 0))
        return flow.link.effective_bytes_s / sharers

    def _share(self, leaving: dict[Flow, None], entering: dict[Flow, None], now: float) -> None:
        for flow in {**leaving, **entering}:
            share = self._share_of(flow)
            if min(share, flow.supply_bytes_s) != flow.rate:
                self._set_rate(flow, share, now)

    def _set_rate(self, flow: Flow, share: float, now: float) -> None:
        flow.set_rate(min(share, flow.supply_bytes_s), now)
        if flow.supply_bytes_s == inf:
            self._agenda.at(flow.end_s, FLOW_END, self._end, flow)

    def _end(self, now: float, flow: Flow) -> None:
        if flow.end_s == now and flow in self._leaving[flow.leaving]:
            self.cancel(flow, now)
            self._on_end(flow, now)
