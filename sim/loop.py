"""The virtual clock: a heap of events in order of time, then priority, then the order they were scheduled."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Handler = Callable[[float, Any], None]

STEP_END, FLOW_END, ARRIVAL, ROLE, TICK, SAMPLE = range(6)
"""Priorities of simultaneous events: what ends comes before what begins, and who watches comes last."""


class EventLoop:
    """`at` schedules `handler(time, argument)`; there is no cancelling: a handler ignores what is out of date."""

    __slots__ = ("_heap", "_sequence", "now", "num_events")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Handler, Any]] = []
        self._sequence = 0
        self.now = 0.0
        self.num_events = 0

    def at(self, time: float, priority: int, handler: Handler, argument: Any) -> None:
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (time, priority, sequence, handler, argument))

    def run(self) -> None:
        """Run until no event is left."""
        heap = self._heap
        count = 0
        while heap:
            time, _, _, handler, argument = heappop(heap)
            self.now = time
            handler(time, argument)
            count += 1
        self.num_events += count
