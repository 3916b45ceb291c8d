"""Records as requests.jsonl: one JSON object a line."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from cluster.request import Status
from metrics.latency import e2e_s, tpot_s, ttft_s
from metrics.records import Column, FloatArray
from metrics.slo import SloSpec, meets

_LINES_PER_CHUNK = 4000


def request_lines(records: FloatArray, slo: SloSpec) -> Iterator[bytes]:
    """Chunks of whole lines. Fields are the columns of a record in lower case, then ttft_s, tpot_s, e2e_s and good.

    Times are rounded to the microsecond; null is what never came, also for an instance there was none of.
    """
    for start in range(0, len(records), _LINES_PER_CHUNK):
        chunk = records[start : start + _LINES_PER_CHUNK]
        fields: dict[str, list[Any]] = {column.name.lower(): _plain(chunk, column) for column in Column}
        for name, latency_s in (("ttft_s", ttft_s), ("tpot_s", tpot_s), ("e2e_s", e2e_s)):
            fields[name] = np.round(latency_s(chunk), 6).tolist()
        fields["good"] = meets(chunk, slo).tolist()
        objects = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
        # One call for many objects is three times as fast as one each; no string in them has a brace.
        yield orjson.dumps(objects)[1:-1].replace(b"},{", b"}\n{") + b"\n"


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
