"""What a running replay shows: a table that redraws on a terminal, else a line every few seconds on stderr."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from actors.messages import Snapshot
from cluster.role import Phase, Role
from scenario.build import instance_names
from scenario.spec import Scenario
from workload.trace import Trace

LINE_INTERVAL_S = 5.0
ROLE_STYLES = {Role.PREFILL: "bold blue", Role.DECODE: "bold yellow", Role.MIXED: "bold magenta"}


class View(Protocol):
    def say(self, text: str) -> None:
        """A sentence that stays."""
        ...

    def show(self, snapshot: Snapshot) -> None:
        """How the run stands now."""
        ...


@contextmanager
def live_view(scenario: Scenario, trace: Trace, *, quiet: bool) -> Iterator[View]:
    """The view that fits where stderr goes."""
    course = Course(len(trace), float(trace.arrival_s[-1]), scenario.live.time_scale)
    if quiet:
        yield Silence()
    elif sys.stderr.isatty():
        console = Console(stderr=True)
        with Live(console=console, refresh_per_second=4, transient=False) as live:
            yield Screen(scenario, course, live)
    else:
        yield Lines(course)


class Silence:
    def say(self, text: str) -> None:
        """Nothing."""

    def show(self, snapshot: Snapshot) -> None:
        """Nothing."""


class Lines:
    """One line every few seconds."""

    def __init__(self, course: "Course") -> None:
        self._course = course
        self._next = 0.0
        self._changes: set[str] = set()

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def show(self, snapshot: Snapshot) -> None:
        for change in snapshot.changes:
            if change not in self._changes:
                self._changes.add(change)
                self.say(change)
        if time.monotonic() < self._next and snapshot.num_ended < self._course.num_requests:
            return
        self._next = time.monotonic() + LINE_INTERVAL_S
        roles = " ".join(
            f"{load.role[0].upper()}{'*' if load.phase is not Phase.SERVING else ''}"
            f"[{load.num_waiting}w {load.num_prefilling + load.num_decoding}r {load.kv_use:.0%}]"
            for load in snapshot.loads
        )
        self.say(f"{snapshot.now_s:6.1f} s  {self._course.told(snapshot)}  {roles}")


class Screen:
    """A table of instances, the latest role changes, and how many requests were good."""

    def __init__(self, scenario: Scenario, course: "Course", live: Live) -> None:
        self._names = instance_names(scenario)
        self._course = course
        self._live = live

    def say(self, text: str) -> None:
        self._live.console.print(text)

    def show(self, snapshot: Snapshot) -> None:
        bar = ProgressBar(self._course.last_arrival_s, max(0.0, snapshot.now_s), width=40)
        table = Table(title=f"{snapshot.now_s:.1f} s   {self._course.told(snapshot)}", title_justify="left")
        for heading in ("instance", "role", "waiting", "queued tokens", "running", "KV use"):
            table.add_column(heading, justify="left" if heading in ("instance", "role") else "right")
        for load in snapshot.loads:
            role = Text(load.role, style=ROLE_STYLES[load.role])
            if load.phase is not Phase.SERVING:
                role.append(f" {load.phase} → {load.target or load.role}", style="dim")
            table.add_row(
                self._names[load.index],
                role,
                str(load.num_waiting + load.num_offers),
                f"{load.queued_tokens:,}",
                str(load.num_prefilling + load.num_decoding),
                f"{load.kv_use:.0%}",
            )
        self._live.update(Group(bar, table, *(Text(change, style="dim") for change in snapshot.changes)))


@dataclass(frozen=True, slots=True)
class Course:
    """What is known of a run before it begins: requests, scenario second of the last, wall seconds per second."""

    num_requests: int
    last_arrival_s: float
    time_scale: float

    def told(self, snapshot: Snapshot) -> str:
        """Requests ended of all, the good ones, goodput so far, and wall time until the last is sent."""
        goodput = snapshot.num_good / snapshot.now_s if snapshot.now_s > 0 else 0.0
        share = f"{snapshot.num_good / snapshot.num_ended:.0%}" if snapshot.num_ended else "-"
        text = f"{snapshot.num_ended}/{self.num_requests} ended, {share} good, goodput {goodput:.1f} req/s"
        left_s = self.time_scale * (self.last_arrival_s - snapshot.now_s)
        return f"{text}, {timedelta(seconds=round(left_s))} left" if left_s >= 0.5 else text
