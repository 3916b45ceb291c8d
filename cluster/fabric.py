"""KV transfers in flight: instances' NICs shared by concurrent flows.

Every NIC is full duplex and splits its bandwidth evenly among its flows; a flow moves at the smaller of its
two shares, and every share changes when a flow joins or ends. Two flows on one NIC take twice as long.
"""

from cluster.errors import InvariantError
from cluster.link import LinkSpec


class Flow:
    """`num_bytes` from instance `source` to `target`. `end_s` moves whenever a neighbour joins or ends."""

    __slots__ = ("alpha_left_s", "end_s", "left_bytes", "link", "rate", "since_s", "source", "start_s", "target", "what")

    def __init__(self, source: int, target: int, num_bytes: float, link: LinkSpec, now: float, what: object) -> None:
        self.source = source
        self.target = target
        self.link = link
        self.left_bytes = num_bytes
        self.alpha_left_s = link.alpha_s
        self.start_s = self.since_s = now
        self.rate = 0.0
        self.end_s = now
        self.what = what
        """What is moved, for whoever started the flow."""

    def set_rate(self, rate: float, now: float) -> None:
        elapsed = now - self.since_s
        latency = min(self.alpha_left_s, elapsed)
        self.alpha_left_s -= latency
        self.left_bytes = max(0.0, self.left_bytes - (elapsed - latency) * self.rate)
        self.since_s = now
        self.rate = rate
        self.end_s = now + self.alpha_left_s + self.left_bytes / rate


class Fabric:
    """Flows by the NIC they leave and the NIC they enter. `start` and `end` return the flows whose end moved."""

    def __init__(self) -> None:
        self._leaving: dict[int, dict[Flow, None]] = {}
        self._entering: dict[int, dict[Flow, None]] = {}

    def start(self, flow: Flow, now: float) -> list[Flow]:
        """Add a flow; the list holds it and its slowed neighbours."""
        leaving = self._leaving.setdefault(flow.source, {})
        entering = self._entering.setdefault(flow.target, {})
        if not leaving and not entering:
            leaving[flow] = entering[flow] = None
            flow.set_rate(flow.link.effective_bytes_s, now)
            return [flow]
        leaving[flow] = entering[flow] = None
        return self._share(leaving, entering, now)

    def end(self, flow: Flow, now: float) -> list[Flow]:
        """Remove a flow that has ended or is given up; the list holds its sped-up neighbours."""
        leaving, entering = self._leaving[flow.source], self._entering[flow.target]
        if flow not in leaving:
            raise InvariantError(f"flow {flow.source}->{flow.target} is not in flight")
        del leaving[flow], entering[flow]
        return self._share(leaving, entering, now) if leaving or entering else []

    def _share(self, leaving: dict[Flow, None], entering: dict[Flow, None], now: float) -> list[Flow]:
        moved = []
        for flow in {**leaving, **entering}:
            sharers = max(len(self._leaving[flow.source]), len(self._entering[flow.target]))
            rate = flow.link.effective_bytes_s / sharers
            if rate != flow.rate:
                flow.set_rate(rate, now)
                moved.append(flow)
        return moved
