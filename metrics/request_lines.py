"""Records as requests.jsonl: one JSON object a line."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import orjson

from cluster.request import Status
from metrics.latency import e2e_s, tpot_s, ttft_s
from metrics.records import Column, FloatArray
from metrics.slo import SloSpec, meets

_LINES_PER_CHUNK = 2000


def request_lines(records: FloatArray, slo: SloSpec) -> Iterator[bytes]:
    """Chunks of whole lines. Fields are the columns of a record in lower case, then ttft_s, tpot_s, e2e_s and good.

    Times are rounded to the microsecond; null is what never came, also for an instance there was none of.
    """
    fields: dict[str, list[Any]] = {column.name.lower(): _plain(records, column) for column in Column}
    for name, latency_s in (("ttft_s", ttft_s), ("tpot_s", tpot_s), ("e2e_s", e2e_s)):
        fields[name] = np.round(latency_s(records), 6).tolist()
    fields["good"] = meets(records, slo).tolist()
    rows = zip(*fields.values(), strict=True)
    while chunk := [dict(zip(fields, row, strict=True)) for row in islice(rows, _LINES_PER_CHUNK)]:
        # One call for many objects is three times as fast as one each; no string in them has a brace.
        yield orjson.dumps(chunk)[1:-1].replace(b"},{", b"}\n{") + b"\n"


def _plain(records: FloatArray, column: Column) -> list[Any]:
    if column.name.endswith("_S"):
        return list(np.round(records[:, column], 6).tolist())
    integers: list[int] = records[:, column].astype(np.int64).tolist()
    if column is Column.STATUS:
        names = [status.name.lower() for status in Status]
        return [names[status] for status in integers]
    if column in (Column.PREFILL_INSTANCE, Column.DECODE_INSTANCE):
        return [None if index < 0 else index for index in integers]
    return integers
