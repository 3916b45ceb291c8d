"""What is due when: a heap of events in order of time, then priority, then the order they were scheduled.

The simulator runs it to the end; a live actor runs it up to the present, again and again.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

Handler = Callable[[float, Any], None]

STEP_END, FLOW_END, ARRIVAL, ROLE, TICK, SAMPLE = range(6)
"""Priorities of simultaneous events: what ends comes before what begins, and who watches comes last."""


class Agenda:
    """`at` schedules `handler(time, argument)`; there is no cancelling: a handler ignores what is out of date."""

    __slots__ = ("_heap", "_sequence", "now")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Handler, Any]] = []
        self._sequence = 0
        self.now = 0.0
        """Time of the latest event, or of the latest `run` that ended at a limit."""

    @property
    def next_s(self) -> float:
        """When the next event is due; infinity when nothing is."""
        return self._heap[0][0] if self._heap else inf

    @property
    def has_work(self) -> bool:
        """Whether anything is due but ticks and samples, which only watch."""
        return any(entry[1] < TICK for entry in self._heap)

    def at(self, time: float, priority: int, handler: Handler, argument: Any) -> None:
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (time, priority, sequence, handler, argument))

    def clear(self) -> None:
        """Drop all that is due; a `run` under way ends."""
        self._heap.clear()

    def run(self, until: float = inf) -> None:
        """Handle events in order until none is due at or before `until`."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            time, _, _, handler, argument = heappop(heap)
            self.now = time
            handler(time, argument)
        if until != inf:
            self.now = max(self.now, until)
