"""How far a long command is, on stderr: a bar with the time left on a terminal, a line per result elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REDRAW_S = 0.1

Advance = Callable[[int, str], None]
"""Told how many are done, and what to say about the latest. Calls between two redraws cost next to nothing."""


@contextmanager
def progress(what: str, total: int, *, quiet: bool, delay_s: float = 0.0) -> Iterator[Advance]:
    """A bar, where stderr is a terminal and it takes longer than `delay_s`; elsewhere a line for every text."""
    if quiet:
        yield _ignore
    elif not sys.stderr.isatty():
        yield lambda num_done, text: _print(f"{num_done}/{total} {text}") if text else None
    else:
        with _bar(what, total, delay_s) as advance:
            yield advance


def _ignore(num_done: int, text: str) -> None:
    """Nothing."""


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _bar(what: str, total: int, delay_s: float) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}", style="dim"),
        console=Console(stderr=True),
        refresh_per_second=4,
        transient=True,
    )
    task = bar.add_task(what, total=total, text="")
    due = time.monotonic() + delay_s
    if not delay_s:
        bar.start()

    def advance(num_done: int, text: str) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + REDRAW_S
            bar.start()
            bar.update(task, completed=num_done, text=text)

    try:
        yield advance
    finally:
        bar.stop()
