"""The rows of one trace file as they come in: usable ones to arrays, the others refused or counted."""

from collections import Counter
from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from cluster.errors import ConfigError, TraceError
from workload.columns import (
    NOT_A_TIME,
    BoolArray,
    Fault,
    explain_hashes,
    explain_length,
    explain_time_number,
    explain_wall_time,
    is_length,
    numbers,
    wall_times,
)
from workload.formats import TraceFormat
from workload.rows import RawColumns
from workload.trace import IntArray, Trace, TraceInfo

TimeArray = npt.NDArray[np.float64 | np.int64]

PER_SECOND = {"wall time": 1e9, "s": 1.0, "ms": 1e3}
"""How many of the numbers a table holds make a second; wall times are held in nanoseconds."""

NUM_EXAMPLES = 5


class Table:
    """Collects chunks of raw columns; `names` are the columns or keys the file has."""

    def __init__(
        self, path: str, known: TraceFormat, names: Sequence[str], *, trace_unit: str | None, skip_invalid: bool
    ) -> None:
        if trace_unit is not None and known.unit == "wall time":
            raise ConfigError(
                f"trace_unit is {trace_unit} while {path} gives {known.arrival} as wall time; leave trace_unit out"
            )
        self.path = path
        self.known = known
        self.names = names
        self.trace_unit = trace_unit
        self.skip_invalid = skip_invalid
        self.num_rows = 0
        self.rejected: Counter[str] = Counter()
        self.examples: list[str] = []
        self._arrival: list[TimeArray] = []
        self._prompt: list[IntArray] = []
        self._output: list[IntArray] = []
        self._hashes: list[tuple[int, ...]] = []

    def add(self, raw: RawColumns) -> None:
        """Take the usable rows of a chunk; refuse the others, the first in the file first."""
        arrival, is_time = self._times(raw)
        prompt = numbers(raw.prompt)
        output = numbers(raw.output)
        usable = is_time & is_length(prompt, 1) & is_length(output, 0)
        faults = raw.faults | {raw.lines[row]: self._explain(raw, row) for row in np.flatnonzero(~usable).tolist()}
        if raw.hashes is not None:
            for row in np.flatnonzero(usable).tolist():
                fault = self._hash_fault(raw.hashes[row], int(prompt[row]))
                if fault is not None:
                    usable[row] = False
                    faults[raw.lines[row]] = fault
        for line in sorted(faults):
            self._refuse(line, faults[line])

        self.num_rows += len(raw.lines) + len(raw.faults)
        self._arrival.append(arrival[usable])
        self._prompt.append(prompt[usable].astype(np.int64))
        self._output.append(output[usable].astype(np.int64))
        if raw.hashes is not None:
            hashes = cast("Sequence[list[int] | None]", raw.hashes)
            self._hashes += [tuple(hashes[row] or ()) for row in np.flatnonzero(usable).tolist()]

    def trace(self) -> Trace:
        """All rows so far, in order of arrival and counted from the first."""
        if not sum(map(len, self._arrival)):
            raise TraceError(self._why_empty())
        arrival = np.concatenate(self._arrival)
        prompt = np.concatenate(self._prompt)
        output = np.concatenate(self._output)
        hashes = self._hashes if any(self._hashes) else None
        notices = []

        unit, why = self._unit(arrival)
        if why:
            notices.append(f"timestamps are taken as {unit}, because {why}; trace_unit overrides this")
        num_late = int(np.count_nonzero(arrival[1:] < arrival[:-1]))
        if num_late:
            order = np.argsort(arrival, kind="stable")
            arrival, prompt, output = arrival[order], prompt[order], output[order]
            hashes = None if hashes is None else [hashes[row] for row in order.tolist()]
            notices.append(f"rows were not in time order ({num_late} came before the row above): sorted")
        num_silent = int(np.count_nonzero(output == 0))
        if num_silent:
            meaning = f", which stands for {self.known.zero_output}" if self.known.zero_output else ""
            notices.append(f"{num_silent} of {len(output)} requests have 0 output tokens{meaning}")
        unused = [name for name in self.names if name and name not in (*self.known.columns, self.known.hashes)]
        if unused:
            notices.append(f"columns not used: {', '.join(unused)}")
        if self.rejected:
            notices.append(f"{sum(self.rejected.values())} of {self.num_rows} rows are left out as invalid")
        return Trace(
            arrival_s=(arrival - arrival[0]) / PER_SECOND[unit],
            prompt_tokens=prompt,
            output_tokens=output,
            prefix_hashes=hashes,
            prefix_block_size=None if hashes is None else self.known.block_size,
            info=TraceInfo(
                source=self.path,
                format=self.known.name,
                unit=unit,
                num_rows=self.num_rows,
                rejected=dict(self.rejected),
                rejected_examples=tuple(self.examples),
                notices=tuple(notices),
            ),
        )

    def _times(self, raw: RawColumns) -> tuple[TimeArray, BoolArray]:
        if self.known.unit == "wall time":
            wall = wall_times(cast(Sequence[str], raw.arrival))
            return wall, wall != NOT_A_TIME
        plain = numbers(raw.arrival)
        return plain, np.isfinite(plain) & (plain >= 0)

    def _explain(self, raw: RawColumns, row: int) -> Fault:
        known = self.known
        explain_time = explain_wall_time if known.unit == "wall time" else explain_time_number
        faults = (
            explain_time(known.arrival, raw.arrival[row]),
            explain_length(known.prompt, raw.prompt[row], 1),
            explain_length(known.output, raw.output[row], 0),
        )
        return next(fault for fault in faults if fault)

    def _hash_fault(self, value: object, prompt_tokens: int) -> Fault | None:
        if value is None or self.known.hashes is None or self.known.block_size is None:
            return None
        return explain_hashes(self.known.hashes, value, prompt_tokens, self.known.block_size)

    def _refuse(self, line: int, fault: Fault) -> None:
        where = f"{self.path}:{line}: {fault.detail}"
        if not self.skip_invalid:
            raise TraceError(f"{where}; correct the row, or leave such rows out with --skip-invalid")
        self.rejected[fault.reason] += 1
        if len(self.examples) < NUM_EXAMPLES:
            self.examples.append(where)

    def _unit(self, arrival: TimeArray) -> tuple[str, str]:
        """The unit of the arrival times, and why where that is not plain from the format."""
        known = self.known
        if self.trace_unit is not None:
            return self.trace_unit, ""
        if known.markers:
            marker = next((name for name in known.markers if name in self.names), "")
            return "s", f"the key {marker} is that of the {known.name} format" if marker else ""
        if known.unit is not None:
            return known.unit, ""
        if np.any(arrival != np.floor(arrival)):
            return "s", "some have a fraction"
        return "ms", "all are whole numbers"

    def _why_empty(self) -> str:
        if not self.num_rows:
            return f"{self.path}: the file has a header but no rows; give a trace with requests"
        reasons = ", ".join(f"{reason}: {count}" for reason, count in self.rejected.most_common())
        return f"{self.path}: none of the {self.num_rows} rows can be used ({reasons}), like {self.examples[0]}"
