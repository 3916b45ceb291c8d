"""Shared links as a fluid, recomputed for all flows whenever one joins or leaves."""

from dataclasses import dataclass
from math import inf
from typing import Any

from cluster.link import LinkSpec


@dataclass(eq=False)
class FluidFlow:
    what: Any
    source: int
    target: int
    link: LinkSpec
    latency_left_s: float
    bytes_left: float
    supply: float = inf
    """Bytes a second that are computed; a flow does not end before all are, and supply is infinite again."""


class Fluid:
    """An instance's NIC on a kind of link splits its bandwidth evenly; a flow gets the smaller of its two shares."""

    def __init__(self) -> None:
        self.flows: list[FluidFlow] = []
        self.now = 0.0

    def rate(self, flow: FluidFlow) -> float:
        alike = [other for other in self.flows if other.link.name == flow.link.name]
        leaving = sum(other.source == flow.source for other in alike)
        entering = sum(other.target == flow.target for other in alike)
        return min(flow.supply, flow.link.efficiency * flow.link.bandwidth_bytes_s / max(leaving, entering))

    def move_to(self, now: float) -> None:
        """Let time pass: first the latency of a flow, then its bytes at its rate."""
        for flow in self.flows:
            waited = min(flow.latency_left_s, now - self.now)
            flow.latency_left_s -= waited
            flow.bytes_left = max(0.0, flow.bytes_left - (now - self.now - waited) * self.rate(flow))
        self.now = now

    def start(self, what: Any, source: int, target: int, link: LinkSpec, num_bytes: float, now: float) -> FluidFlow:
        self.move_to(now)
        flow = FluidFlow(what, source, target, link, link.alpha_s, num_bytes)
        self.flows.append(flow)
        return flow

    def stop(self, flow: FluidFlow, now: float) -> None:
        self.move_to(now)
        self.flows.remove(flow)

    def end_s(self, flow: FluidFlow) -> float:
        """When the flow ends if no other joins or leaves."""
        return self.now + flow.latency_left_s + flow.bytes_left / self.rate(flow) if flow.supply == inf else inf

    def next_to_end(self) -> FluidFlow:
        return min(self.flows, key=self.end_s)
