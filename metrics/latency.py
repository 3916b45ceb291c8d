"""The one place that says what TTFT, TPOT, TTST, E2E and ITL are.

Everything is in seconds and follows from the timestamps alone, the same way for colocated and
disaggregated, simulated and live; nan where there is no sample.
"""

from itertools import chain
from math import ceil

import numpy as np
import numpy.typing as npt

from cluster.request import Status
from cluster.step_log import StepRow
from metrics.records import Column, FloatArray
from metrics.run import RunResult
from metrics.stats import Chunk, Sample

IntArray = npt.NDArray[np.int64]

_PIECE_GAPS = 500_000

_START, _END, _ITERATIONS, _DECODES, _CONTINUING, _, _LAST_TOKEN, _FIRST, _SLOPE = range(len(StepRow._fields))

_CLOCK_ERROR_S = 1e-7
"""Far below a step, far above what rounding does to equal times."""


def ttft_s(records: FloatArray) -> FloatArray:
    """Time to first token, from arrival, of every request that got one."""
    return records[:, Column.FIRST_TOKEN_S] - records[:, Column.ARRIVAL_S]


def e2e_s(records: FloatArray) -> FloatArray:
    """Arrival to last token, of finished requests."""
    finished = records[:, Column.STATUS] == Status.FINISHED
    return np.where(finished, records[:, Column.FINISHED_S] - records[:, Column.ARRIVAL_S], np.nan)


def tpot_s(records: FloatArray) -> FloatArray:
    """Time per output token after the first, (E2E - TTFT) / (OSL - 1), of finished requests with OSL > 1."""
    later_tokens = records[:, Column.OUTPUT_TOKENS] - 1
    later_tokens[later_tokens < 1] = np.nan
    return (e2e_s(records) - ttft_s(records)) / later_tokens


def ttst_s(records: FloatArray) -> FloatArray:
    """Time from the first to the second token: where a handoff shows."""
    return records[:, Column.SECOND_TOKEN_S] - records[:, Column.FIRST_TOKEN_S]


def ttft_parts_s(records: FloatArray) -> dict[str, FloatArray]:
    """TTFT as queue (arrival to the step that starts the prompt) plus prefill."""
    start = records[:, Column.PREFILL_START_S]
    return {"queue": start - records[:, Column.ARRIVAL_S], "prefill": records[:, Column.FIRST_TOKEN_S] - start}


def ttst_parts_s(records: FloatArray) -> dict[str, FloatArray]:
    """TTST as wait for room at decode, transfer, wait to join the batch, and first decode step.

    A colocated request has only the last part, which is all of its TTST. One whose prompt was computed twice after a fault
    may have its second token from that, before its KV goes anywhere: then the first part is all of it.
    """
    first, second = records[:, Column.FIRST_TOKEN_S], records[:, Column.SECOND_TOKEN_S]
    room, arrived, joined = (
        np.minimum(records[:, column], second)
        for column in (Column.TRANSFER_START_S, Column.KV_ARRIVED_S, Column.DECODE_START_S)
    )
    joined = np.where(records[:, Column.DECODE_INSTANCE] < 0, first, joined)
    return {
        "room": room - first,
        "transfer": arrived - room,
        "decode_wait": joined - arrived,
        "first_decode_step": second - joined,
    }


def itl(result: RunResult) -> Sample:
    """Inter-token latency: every gap between tokens of all requests.

    A sequence that runs on gets its first gap of a step from its last token in the step before; one that
    has just joined gets it from its TTST, or from `extra_gaps_s` after a preemption.
    """
    second = ttst_s(result.records)
    once = np.concatenate([second[~np.isnan(second)], np.array(result.extra_gaps_s, dtype=np.float64)])
    single = once, np.ones(len(once))
    pieces = [piece for logs in result.step_logs for log in logs for piece in _pieces(log)]
    return Sample(lambda: chain([single], map(_gaps_of, pieces)))


def _pieces(log: FloatArray) -> list[FloatArray]:
    """The rows of a log in slices that expand to about `_PIECE_GAPS` values each."""
    return np.array_split(log, max(1, ceil(log[:, _ITERATIONS].sum() / _PIECE_GAPS)))


def _gaps_of(rows: FloatArray) -> Chunk:
    """Gaps that step rows describe, and how many sequences had each."""
    rows = rows[rows[:, _DECODES] > 0]
    running_on = rows[rows[:, _CONTINUING] > 0]
    long = rows[rows[:, _ITERATIONS] > 1]
    later = long[:, _ITERATIONS].astype(np.int64) - 1
    iteration = np.arange(1, later.sum() + 1) - np.repeat(np.cumsum(later) - later, later)
    values = np.repeat(long[:, _FIRST], later) + np.repeat(long[:, _SLOPE], later) * iteration
    return (
        np.concatenate([running_on[:, _START] + running_on[:, _FIRST] - running_on[:, _LAST_TOKEN], values]),
        np.concatenate([running_on[:, _CONTINUING], np.repeat(long[:, _DECODES], later)]),
    )


def max_gap_per_request(result: RunResult) -> FloatArray:
    """Per record, the longest wait between two tokens: the worst stall its reader saw.

    nan for requests that did not finish or have fewer than two tokens, and for those that were preempted
    or moved by a fault, some of whose gaps no step row describes.
    """
    records = result.records
    longest = ttst_s(records)
    longest[(records[:, Column.STATUS] != Status.FINISHED) | (records[:, Column.NUM_PREEMPTIONS] > 0)] = np.nan
    decoded_at = np.where(
        records[:, Column.DECODE_INSTANCE] < 0, records[:, Column.PREFILL_INSTANCE], records[:, Column.DECODE_INSTANCE]
    )
    for index, logs in enumerate(result.step_logs):
        here = np.flatnonzero((decoded_at == index) & ~np.isnan(longest))
        gaps = np.full(len(here), np.nan)
        for log in logs:
            rows = log[log[:, _DECODES] > 0]
            second, finished = records[here, Column.SECOND_TOKEN_S], records[here, Column.FINISHED_S]
            gaps = np.fmax(gaps, _longest_gap(rows, second, finished))
        longest[here] = np.maximum(longest[here], gaps)
    return longest


def _longest_gap(rows: FloatArray, second_s: FloatArray, finished_s: FloatArray) -> FloatArray:
    """Longest gap in `rows` (one log, decode steps only) between a request's second token and its last.

    The request joined in the row that holds its second token: of that row only the later iterations are
    gaps of its own, of the rows after it all are. nan for a request of another log, whose second token is
    not the first of any row here.
    """
    first, slope, more = rows[:, _FIRST], rows[:, _SLOPE], rows[:, _ITERATIONS] - 1
    within = np.where(more > 0, first + np.maximum(slope, slope * more), 0.0)
    across = np.where(rows[:, _CONTINUING] > 0, rows[:, _START] + first - rows[:, _LAST_TOKEN], 0.0)
    joined = np.searchsorted(rows[:, _END], second_s - _CLOCK_ERROR_S)
    stop = np.searchsorted(rows[:, _END], finished_s + _CLOCK_ERROR_S)
    known = np.flatnonzero(joined < stop)
    joined, stop, second_s = joined[known], stop[known], second_s[known]
    gap = np.maximum(within[joined], _range_max(np.maximum(within, across), joined + 1, stop))
    gap[np.abs(rows[joined, _START] + first[joined] - second_s) > _CLOCK_ERROR_S] = np.nan
    longest = np.full(len(finished_s), np.nan)
    longest[known] = gap
    return longest


def _range_max(values: FloatArray, start: IntArray, stop: IntArray) -> FloatArray:
    """max(values[start:stop]) for every pair, 0 for an empty range: a sparse table, one level at a time."""
    length = stop - start
    result = np.zeros(len(length))
    table, width = values, 1
    while True:
        level = np.flatnonzero((length >= width) & (length < 2 * width))
        result[level] = np.maximum(table[start[level]], table[stop[level] - width])
        if not (length >= 2 * width).any():
            return result
        table = np.maximum(table[:-width], table[width:])
        width *= 2
