"""Scenario time for live actors: wall time since the start of the run, divided by `time_scale`."""

import time


class Clock:
    """`start_wall_s` is the Unix time of scenario second 0, the same for every actor of a run.

    On several hosts their clocks must agree (NTP): differences show up as latency.
    """

    def __init__(self, start_wall_s: float, time_scale: float) -> None:
        self.start_wall_s = start_wall_s
        self.time_scale = time_scale

    def now(self) -> float:
        return (time.time() - self.start_wall_s) / self.time_scale

    def delay_s(self, until: float) -> float:
        """Wall seconds from now until scenario second `until`; 0 when it has passed."""
        return max(0.0, (until - self.now()) * self.time_scale)
