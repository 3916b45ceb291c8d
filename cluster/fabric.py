"""KV transfers in flight: instances' NICs shared by concurrent flows.

Every NIC is full duplex and splits its bandwidth evenly among its flows; a flow moves at the smaller of its
two shares, and every share changes when a flow joins or ends. Two flows on one NIC take twice as long.
"""

from collections.abc import Callable

from cluster.agenda import FLOW_END, Agenda
from cluster.handoff import Handoff
from cluster.link import LinkSpec


class Flow:
    """The KV of one handoff on its way. `end_s` moves whenever a neighbour joins or ends."""

    __slots__ = ("_alpha_left_s", "_left_bytes", "_since_s", "end_s", "handoff", "link", "rate", "start_s")

    def __init__(self, handoff: Handoff, link: LinkSpec, now: float) -> None:
        self.handoff = handoff
        self.link = link
        self._left_bytes = float(handoff.num_bytes)
        self._alpha_left_s = link.alpha_s
        self.start_s = self._since_s = self.end_s = now
        self.rate = 0.0

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
        self._leaving: dict[int, dict[Flow, None]] = {}
        self._entering: dict[int, dict[Flow, None]] = {}

    def start(self, handoff: Handoff, link: LinkSpec, now: float) -> Flow:
        """Send a handoff's bytes from its source to its target."""
        flow = Flow(handoff, link, now)
        leaving = self._leaving.setdefault(handoff.source, {})
        entering = self._entering.setdefault(handoff.target, {})
        alone = not leaving and not entering
        leaving[flow] = entering[flow] = None
        if alone:
            self._set_rate(flow, link.effective_bytes_s, now)
        else:
            self._share(leaving, entering, now)
        return flow

    def cancel(self, flow: Flow, now: float) -> None:
        """Stop a flow before its end; its bandwidth goes to its neighbours. A flow that has ended is ignored."""
        leaving, entering = self._leaving[flow.handoff.source], self._entering[flow.handoff.target]
        if flow in leaving:
            del leaving[flow], entering[flow]
            if leaving or entering:
                self._share(leaving, entering, now)

    def _share(self, leaving: dict[Flow, None], entering: dict[Flow, None], now: float) -> None:
        for flow in {**leaving, **entering}:
            handoff = flow.handoff
            sharers = max(len(self._leaving[handoff.source]), len(self._entering[handoff.target]))
            rate = flow.link.effective_bytes_s / sharers
            if rate != flow.rate:
                self._set_rate(flow, rate, now)

    def _set_rate(self, flow: Flow, rate: float, now: float) -> None:
        flow.set_rate(rate, now)
        self._agenda.at(flow.end_s, FLOW_END, self._end, flow)

    def _end(self, now: float, flow: Flow) -> None:
        if flow.end_s == now and flow in self._leaving[flow.handoff.source]:
            self.cancel(flow, now)
            self._on_end(flow, now)
