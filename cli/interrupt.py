"""Ctrl-C and SIGTERM: once to end a run early and keep what there is, twice to drop everything."""

import os
import signal
import sys
from types import TracebackType

INTERRUPTED = 130
"""Exit code of a command that was stopped, whatever it could still write."""


class Stop:
    """A context in which the first signal only sets `requested`, and the second raises KeyboardInterrupt."""

    def __init__(self, what_happens: str) -> None:
        self.requested = False
        self._what_happens = what_happens

    def __enter__(self) -> "Stop":
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self.listen()
        return self

    def listen(self) -> None:
        """Take the signals over, also from a library that has taken them in between, as Ray does with SIGTERM."""
        for number in self._before:
            signal.signal(number, self._hear)

    def _hear(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        # Not print: the signal may have come in the middle of one.
        os.write(sys.stderr.fileno(), f"\n{self._what_happens}; once more to stop at once\n".encode())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
