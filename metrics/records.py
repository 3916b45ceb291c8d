"""One row per request, in one flat array of doubles: small, fast to write, and numpy reads it in place."""

from array import array
from enum import IntEnum
from struct import Struct

import numpy as np
import numpy.typing as npt

from cluster.request import DECODE, PREFILL, READY, TRANSFER, Request

FloatArray = npt.NDArray[np.float64]


class Column(IntEnum):
    """Columns of a record. Times are seconds from the start of the run, nan where they never came."""

    REQUEST_ID = 0
    STATUS = 1
    """A `cluster.request.Status` that ends a request."""
    ARRIVAL_S = 2
    PROMPT_TOKENS = 3
    OUTPUT_TOKENS = 4
    """Asked for."""
    GENERATED_TOKENS = 5
    """Delivered."""
    PREFILL_INSTANCE = 6
    """-1 where there was none."""
    DECODE_INSTANCE = 7
    """-1 where there was none: colocated, or ended before the handoff."""
    PREFILL_START_S = 8
    FIRST_TOKEN_S = 9
    TRANSFER_START_S = 10
    """Room reserved at decode."""
    KV_ARRIVED_S = 11
    DECODE_START_S = 12
    """Joined the decode batch."""
    SECOND_TOKEN_S = 13
    FINISHED_S = 14
    """When the request ended, however it ended."""
    NUM_PREEMPTIONS = 15


WIDTH = len(Column)
_pack = Struct(f"{WIDTH}d").pack


class Records:
    """Append-only table of ended requests."""

    def __init__(self) -> None:
        self.values = array("d")

    def add(self, request: Request) -> None:
        times = request.times
        status = request.status
        self.values.frombytes(
            _pack(
                request.request_id,
                status,
                request.arrival_s,
                request.prompt_tokens,
                request.output_tokens,
                request.generated,
                request.prefill_instance,
                request.decode_instance,
                times[PREFILL],
                request.first_token_s,
                times[TRANSFER],
                times[READY],
                times[DECODE],
                request.second_token_s,
                times[status],
                request.num_preemptions,
            )
        )

    def __len__(self) -> int:
        return len(self.values) // WIDTH

    def copy(self) -> FloatArray:
        """(requests, columns) in order of ending; more can be added afterwards."""
        return as_rows(self.values[:], WIDTH)

    def table(self) -> FloatArray:
        """(requests, columns), in order of request id. Nothing can be added any more."""
        rows = as_rows(self.values, WIDTH)
        return rows[np.argsort(rows[:, Column.REQUEST_ID], kind="stable")]


def as_rows(values: "array[float]", width: int) -> FloatArray:
    """A flat array as rows, in place: while the rows live, the array cannot grow."""
    return np.frombuffer(values, dtype=np.float64).reshape(-1, width)
