"""The longest waits for a token as a run goes on: where a stall is seen."""

from collections.abc import Iterator
from math import ceil

import numpy as np

from cluster.step_log import StepRow
from metrics.latency import ttst_s
from metrics.records import Column, FloatArray
from metrics.run import RunResult

_START, _ITERATIONS, _DECODES, _CONTINUING, _LAST_TOKEN, _FIRST, _SLOPE = (
    StepRow._fields.index(name)
    for name in ("start_s", "iterations", "decodes", "continuing", "last_token_s", "first_s", "slope_s")
)
_PIECE_GAPS = 500_000


def gaps_over_time(result: RunResult) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """When gaps between tokens ended, how long they were, and how many sequences had each; in pieces, in no order.

    The same as metrics.latency.itl, but for gaps around preemptions, whose time is not known.
    """
    second_s = result.records[:, Column.SECOND_TOKEN_S]
    has_second = ~np.isnan(second_s)
    yield second_s[has_second], ttst_s(result.records)[has_second], np.ones(int(has_second.sum()))
    for log in (log for logs in result.step_logs for log in logs):
        for rows in np.array_split(log, max(1, ceil(log[:, _ITERATIONS].sum() / _PIECE_GAPS))):
            running_on = rows[rows[:, _CONTINUING] > 0]
            first_end_s = running_on[:, _START] + running_on[:, _FIRST]
            yield first_end_s, first_end_s - running_on[:, _LAST_TOKEN], running_on[:, _CONTINUING]
            yield _later_gaps(rows[rows[:, _ITERATIONS] > 1])


def _later_gaps(rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of every iteration after the first."""
    later = rows[:, _ITERATIONS].astype(np.int64) - 1
    iteration = np.arange(1, later.sum() + 1) - np.repeat(np.cumsum(later) - later, later)
    start, first, slope, decodes = (np.repeat(rows[:, column], later) for column in (_START, _FIRST, _SLOPE, _DECODES))
    end_s = start + first * (iteration + 1) + slope * iteration * (iteration + 1) / 2
    return end_s, first + slope * iteration, decodes


def longest_gaps(result: RunResult, num_windows: int) -> tuple[FloatArray, FloatArray]:
    """The longest gap that ended in each of equal windows of the run: when it ended, and how long it was.

    Windows without a gap are left out. Far apart tokens have windows of their own, so all gaps are there.
    """
    end_of = np.full(num_windows, np.nan)
    longest = np.full(num_windows, -np.inf)
    for end_s, gap_s, _ in gaps_over_time(result):
        window = np.minimum((end_s / result.duration_s * num_windows).astype(np.int64), num_windows - 1)
        before = longest[window]
        np.maximum.at(longest, window, gap_s)
        record = np.flatnonzero((gap_s == longest[window]) & (gap_s > before))
        end_of[window[record]] = end_s[record]
    seen = np.flatnonzero(longest >= 0)
    return end_of[seen], longest[seen]
