"""What a running replay shows: a table that redraws on a terminal, else a line every few seconds on stderr."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from actors.messages import Snapshot
from cluster.role import Phase, Role
from scenario.build import instance_names
from scenario.spec import Scenario

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
def live_view(scenario: Scenario, num_requests: int, *, quiet: bool) -> Iterator[View]:
    """The view that fits where stderr goes."""
    if quiet:
        yield Silence()
    elif sys.stderr.isatty():
        console = Console(stderr=True)
        with Live(console=console, refresh_per_second=4, transient=False) as live:
            yield Screen(scenario, num_requests, live)
    else:
        yield Lines(num_requests)


class Silence:
    def say(self, text: str) -> None:
        """Nothing."""

    def show(self, snapshot: Snapshot) -> None:
        """Nothing."""


class Lines:
    """One line every few seconds."""

    def __init__(self, num_requests: int) -> None:
        self._num_requests = num_requests
        self._next = 0.0
        self._changes: set[str] = set()

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def show(self, snapshot: Snapshot) -> None:
        for change in snapshot.changes:
            if change not in self._changes:
                self._changes.add(change)
                self.say(change)
        if time.monotonic() < self._next and snapshot.num_ended < self._num_requests:
            return
        self._next = time.monotonic() + LINE_INTERVAL_S
        roles = " ".join(
            f"{load.role[0].upper()}{'*' if load.phase is not Phase.SERVING else ''}"
            f"[{load.num_waiting}w {load.num_prefilling + load.num_decoding}r {load.kv_use:.0%}]"
            for load in snapshot.loads
        )
        self.say(f"{snapshot.now_s:6.1f} s  {progress(snapshot, self._num_requests)}  {roles}")


class Screen:
    """A table of instances, the latest role changes, and how many requests were good."""

    def __init__(self, scenario: Scenario, num_requests: int, live: Live) -> None:
        self._names = instance_names(scenario)
        self._num_requests = num_requests
        self._live = live

    def say(self, text: str) -> None:
        self._live.console.print(text)

    def show(self, snapshot: Snapshot) -> None:
        table = Table(title=f"{snapshot.now_s:.1f} s   {progress(snapshot, self._num_requests)}", title_justify="left")
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
        self._live.update(Group(table, *(Text(change, style="dim") for change in snapshot.changes)))


def progress(snapshot: Snapshot, num_requests: int) -> str:
    """Requests ended of all, the good ones, and goodput so far."""
    goodput = snapshot.num_good / snapshot.now_s if snapshot.now_s > 0 else 0.0
    share = f"{snapshot.num_good / snapshot.num_ended:.0%}" if snapshot.num_ended else "-"
    return f"{snapshot.num_ended}/{num_requests} ended, {share} good, goodput {goodput:.1f} req/s"
