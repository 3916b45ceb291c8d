"""What an instance ran, one row a step, from which reports expand every token gap."""

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from cluster.step import Step


class StepRow(NamedTuple):
    """`continuing` of the `decodes` sequences had their previous token at `last_token_s`, so their first gap
    here is start + first iteration - last_token_s; later gaps are first_s + slope_s x j, each `decodes` times.
    """

    start_s: float
    end_s: float
    iterations: int
    decodes: int
    continuing: int
    prefill_tokens: int
    last_token_s: float
    first_s: float
    slope_s: float


_pack = Struct(f"{len(StepRow._fields)}d").pack
"""A row as bytes: much faster to append than nine numbers."""


class StepLog:
    """Rows in one flat array of doubles."""

    __slots__ = ("values",)

    WIDTH = len(StepRow._fields)

    def __init__(self) -> None:
        self.values = array("d")

    def add(self, step: Step, continuing: int, last_token_s: float) -> None:
        run, start, end = step.run, step.start_s, step.end_s
        if run is None:
            tokens = 0
            for chunk in step.chunks:
                tokens += chunk[1]
            self.values.frombytes(
                _pack(start, end, 1, step.decodes, continuing, tokens, last_token_s, end - start, 0.0)
            )
        elif step.iterations <= run.split:
            self.values.frombytes(
                _pack(start, end, step.iterations, step.decodes, continuing, 0, last_token_s, run.first_s, run.slope_s)
            )
        else:
            split = int(run.split)
            middle = start + run.duration_s(split)
            late_first = run.late_first_s + split * run.late_slope_s
            size = step.decodes
            if split:
                self.values.frombytes(
                    _pack(start, middle, split, size, continuing, 0, last_token_s, run.first_s, run.slope_s)
                )
                continuing, last_token_s = size, middle
            self.values.frombytes(
                _pack(
                    middle,
                    end,
                    step.iterations - split,
                    size,
                    continuing,
                    0,
                    last_token_s,
                    late_first,
                    run.late_slope_s,
                )
            )

    def __len__(self) -> int:
        return len(self.values) // self.WIDTH

    def rows(self, start: int = 0) -> Iterator[StepRow]:
        """Rows from number `start` on."""
        values, width = self.values, self.WIDTH
        for at in range(start * width, len(values), width):
            row = values[at : at + width]
            yield StepRow(row[0], row[1], int(row[2]), int(row[3]), int(row[4]), int(row[5]), row[6], row[7], row[8])
