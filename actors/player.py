"""The trace player: an open loop that sends every request at its time, however the cluster is doing."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from actors.calls import Calls
from actors.clock import Clock
from cluster.request import Request, Status
from metrics.prometheus import MetricStore
from workload.trace import Trace


class Player:
    """`send_lag_s` is, per request, the wall time from its scheduled arrival to its being sent.

    `router` and `exporter` give the handles to use now: a successor when one has died.
    """

    def __init__(
        self,
        trace: Trace,
        too_long: npt.NDArray[np.bool_],
        clock: Clock,
        *,
        router: Callable[[], Any],
        exporter: Callable[[], Any],
    ) -> None:
        self._trace = trace
        self._too_long = too_long
        self._clock = clock
        self._router, self._exporter = router, exporter
        self._metrics = MetricStore()
        self.calls = Calls()
        self.num_sent = 0
        self.stopped = False
        self.send_lag_s = np.zeros(len(trace))

    async def play(self) -> None:
        """Send the whole trace; requests that are due together go in one message."""
        arrivals = self._trace.arrival_s
        total = len(arrivals)
        exported_s = 0.0
        while self.num_sent < total:
            sent = self.num_sent
            await asyncio.sleep(self._clock.delay_s(float(arrivals[sent])))
            if self.stopped:
                break
            now = self._clock.now()
            due = max(sent + 1, int(np.searchsorted(arrivals, now, side="right")))
            self.num_sent = due
            self._send(range(sent, due))
            self.send_lag_s[sent:due] = np.maximum(0.0, (now - arrivals[sent:due]) * self._clock.time_scale)
            for lag in self.send_lag_s[sent:due]:
                self._metrics.observe("baton_send_lag_seconds", float(lag))
            if now - exported_s > 1.0:
                exported_s = now
                self.export()
        self.export()

    def stop(self) -> None:
        """Send nothing more."""
        self.stopped = True

    @property
    def num_due(self) -> int:
        """Requests that have been sent by the end."""
        return self.num_sent if self.stopped else len(self._trace)

    def export(self) -> None:
        self.calls.tell(self._exporter().put, "player", self._metrics)

    def send_again(self, known: set[int]) -> int:
        """After a router has died: send what was sent before and is not known to its successor. Returns how many."""
        missing = [index for index in range(self.num_sent) if index not in known]
        if missing:
            self._send(missing)
        return len(missing)

    def _send(self, indices: "range | list[int]") -> None:
        self.calls.tell(self._router().submit, [self._request(index) for index in indices])

    def _request(self, index: int) -> Request:
        trace = self._trace
        arrival = float(trace.arrival_s[index])
        request = Request(index, arrival, int(trace.prompt_tokens[index]), int(trace.output_tokens[index]))
        if self._too_long[index]:
            request.enter(Status.REJECTED, arrival)
        elif not request.output_tokens:
            request.enter(Status.FINISHED, arrival)
        return request
