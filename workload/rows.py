"""From lines of text to columns of raw fields: CSV and JSON Lines, with the line number of every row."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import orjson

from workload.columns import Fault
from workload.formats import TraceFormat

CHUNK_LINES = 16_384


@dataclass(frozen=True, slots=True)
class RawColumns:
    """Rows of one chunk of a file, as fields still to be read; `faults` has, by line, those without fields."""

    lines: Sequence[int]
    arrival: Sequence[object]
    prompt: Sequence[object]
    output: Sequence[object]
    hashes: Sequence[object] | None
    faults: dict[int, Fault]


def chunks(text: Iterable[str], first_line: int) -> Iterator[tuple[list[str], int]]:
    """Lines in bounded portions, each with the number of its first line."""
    source = iter(text)
    while lines := list(islice(source, CHUNK_LINES)):
        yield lines, first_line
        first_line += len(lines)


def csv_fields(lines: list[str]) -> list[list[str]]:
    """The fields of every line; a line is a row, so a quote that does not close ends with its line."""
    rows = list(csv.reader(lines))
    return rows if len(rows) == len(lines) else [next(csv.reader((line,))) for line in lines]


def csv_columns(lines: list[str], first_line: int, header: Sequence[str], wanted: TraceFormat) -> RawColumns:
    """Pick the format's columns by name."""
    rows = csv_fields(lines)
    numbers: Sequence[int] = range(first_line, first_line + len(rows))
    faults: dict[int, Fault] = {}
    width = len(header)
    if set(map(len, rows)) != {width}:
        numbered = list(zip(numbers, rows, strict=True))
        for number, row in numbered:
            if len(row) != width and "".join(row).strip():
                faults[number] = Fault("ragged row", f"the row has {len(row)} fields and the header {width}")
        numbers = [number for number, row in numbered if len(row) == width]
        rows = [row for row in rows if len(row) == width]
    fields = list(zip(*rows, strict=True)) or [()] * width
    arrival, prompt, output = (fields[header.index(name)] for name in wanted.columns)
    return RawColumns(numbers, arrival, prompt, output, None, faults)


def json_columns(lines: list[str], first_line: int, wanted: TraceFormat) -> RawColumns:
    """Pick the format's keys; one that a row lacks is None."""
    numbers: list[int] = []
    rows: list[dict[str, object]] = []
    faults: dict[int, Fault] = {}
    for number, line in enumerate(lines, first_line):
        row = json_object(line)
        if isinstance(row, Fault):
            faults[number] = row
        elif row is not None:
            numbers.append(number)
            rows.append(row)
    arrival, prompt, output = ([row.get(name) for row in rows] for name in wanted.columns)
    hashes = None if wanted.hashes is None else [row.get(wanted.hashes) for row in rows]
    return RawColumns(numbers, arrival, prompt, output, hashes, faults)


def json_object(line: str) -> dict[str, object] | Fault | None:
    """The object on a line, why there is none, or None for a blank line."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if not line.strip():
            return None
        return Fault("bad JSON", f"the line is not valid JSON ({error.msg} at column {error.colno})")
    if not isinstance(row, dict):
        return Fault("not an object", f"the line is a JSON {type(row).__name__}, not an object")
    return row
