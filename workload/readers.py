"""Trace files in: opens, detects the format and reads in bounded portions."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import cast

from cluster.errors import ConfigError, TraceError
from workload.columns import Fault
from workload.formats import check_columns, detect_format, named_format
from workload.rows import CHUNK_LINES, chunks, csv_columns, csv_fields, json_columns, json_object
from workload.table import Table
from workload.trace import Trace


def read_trace(
    path: str | Path, *, trace_format: str | None = None, trace_unit: str | None = None, skip_invalid: bool = False
) -> Trace:
    """Read a trace file, gzipped or not; its header or keys tell the format.

    `trace_format` (a name in workload.formats.FORMATS) and `trace_unit` (s or ms) override what is detected.
    A row that cannot be used raises TraceError with path:line; with `skip_invalid` it is left out and counted.
    """
    forced = None if trace_format is None else named_format(trace_format)
    if trace_unit not in (None, "s", "ms"):
        raise ConfigError(f"trace_unit is {trace_unit!r}; use s or ms")
    name = str(path)
    with _open_text(Path(path)) as text:
        start = list(islice(text, CHUNK_LINES))
        skipped = next((number for number, line in enumerate(start) if line.strip()), len(start))
        start = start[skipped:]
        _check_start(name, start)
        container = "jsonl" if start[0].lstrip().startswith("{") else "csv"
        names = _names(name, container, start, skipped + 1)
        if forced is not None:
            check_columns(name, forced, container, names)
        known = forced or detect_format(name, container, names)

        table = Table(name, known, names, trace_unit=trace_unit, skip_invalid=skip_invalid)
        if container == "csv":
            for lines, first_line in chunks(chain(start[1:], text), skipped + 2):
                table.add(csv_columns(lines, first_line, names, known))
        else:
            for lines, first_line in chunks(chain(start, text), skipped + 1):
                table.add(json_columns(lines, first_line, known))
    return table.trace()


@contextmanager
def _open_text(path: Path) -> Iterator[io.TextIOWrapper]:
    try:
        with path.open("rb") as file:
            stream = gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == b"\x1f\x8b" else file
            if b"\0" in stream.peek(4096)[:4096]:
                raise TraceError(f"{path}: this is not text; give a CSV or JSON Lines file, plain or gzipped")
            # What is not UTF-8 becomes U+FFFD, so that a column nobody reads may hold anything.
            with io.TextIOWrapper(cast(io.BufferedReader, stream), encoding="utf-8-sig", errors="replace") as text:
                yield text
    except FileNotFoundError:
        raise TraceError(f"{path}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise TraceError(f"{path}: this is a directory; name the trace file in it") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: the gzip data is damaged ({error}); fetch the file again") from None
    except csv.Error as error:
        raise TraceError(f"{path}: a line cannot be read as CSV ({error}); give a CSV or JSON Lines file") from None
    except OSError as error:
        raise TraceError(f"{path}: the file cannot be read ({error.strerror or error}); check it") from None


def _check_start(path: str, start: list[str]) -> None:
    if not start:
        raise TraceError(f"{path}: the file is empty; give a trace with a header or JSON objects")
    first = start[0].lstrip()
    if first.startswith("version https://git-lfs"):
        raise TraceError(f"{path}: this is a Git LFS pointer, not the trace; fetch the file itself with git lfs pull")
    if first.startswith("["):
        raise TraceError(f"{path}: this is a JSON array; write one object per line, as `jq -c '.[]'` does")
    if "\ufffd" in first:
        raise TraceError(f"{path}: this is not UTF-8 text; give a CSV or JSON Lines file, plain or gzipped")


def _names(path: str, container: str, lines: list[str], first_line: int) -> list[str]:
    """The columns of the header, or the keys of the first object."""
    if container == "csv":
        return [field.strip() for field in csv_fields(lines[:1])[0]]
    for line in lines:
        row = json_object(line)
        if isinstance(row, dict):
            return list(row)
    fault = cast(Fault, json_object(lines[0]))
    raise TraceError(f"{path}:{first_line}: {fault.detail}; write one JSON object per line")
