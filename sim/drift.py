"""Whether the number of unfinished requests grows, and how far the figure can be trusted."""

from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from typing import ClassVar

import numpy as np

from cluster.request import Status
from metrics.records import Column, FloatArray

_NUM_BATCHES = 16
_MIN_SERVED = 20
_LONG_STAY = 95
"""Percentile of stays that counts: those who stay longest are most of whom one finds."""
_MIN_STAYS = 5
_MIN_WARM_UP, _MAX_WARM_UP = 0.1, 0.5


@dataclass(frozen=True, slots=True)
class Drift:
    """Compares the two halves of what is left of a run after the time that a long request stays."""

    growth: float
    """Unfinished requests that an arrival finds, more of them per arrival: the share that piles up."""
    error: float
    """Standard error of the growth of a queue that forgets within the run."""
    walk_error: float
    """The same of a queue that does not, and wanders as arrivals and lengths come: all of it may be chance."""
    filled: float
    """How long the arrivals span against five times what a long early request stays: below 1, growth may be
    filling up."""

    UNKNOWN: ClassVar["Drift"]

    @classmethod
    def of(cls, records: FloatArray, period_s: float | None = None) -> "Drift":
        """Drift of a run by its records, in order of arrival; UNKNOWN for a few requests.

        Traffic that comes again every `period_s` is compared over whole periods.
        """
        served = records[records[:, Column.STATUS] == Status.FINISHED]
        if len(served) < _MIN_SERVED:
            return cls.UNKNOWN
        arrival_s = served[:, Column.ARRIVAL_S]
        stay_s = served[:, Column.FINISHED_S] - arrival_s
        span_s = max(arrival_s[-1] - arrival_s[0], 1e-9)
        filled = float(span_s / (_MIN_STAYS * np.percentile(stay_s[: len(stay_s) // 10], _LONG_STAY)))

        warm_up = min(max(np.percentile(stay_s, _LONG_STAY) / span_s, _MIN_WARM_UP), _MAX_WARM_UP)
        start_s = arrival_s[0] + warm_up * span_s
        if period_s is not None:
            end_s = ceil(arrival_s[-1] / period_s) * period_s
            num_pairs = int((end_s - start_s) / (2 * period_s))
            start_s = end_s - 2 * num_pairs * period_s
            filled = filled if num_pairs else min(filled, 0.5)
        finished_s = np.sort(served[:, Column.FINISHED_S])
        found = np.arange(len(served)) - np.searchsorted(finished_s, arrival_s, side="right")
        settled = found[np.searchsorted(arrival_s, start_s) :].astype(np.float64)
        half = len(settled) // 2
        if half < _NUM_BATCHES:
            return replace(cls.UNKNOWN, filled=filled)
        growth = (settled[half:].mean() - settled[:half].mean()) / half
        _, error = mean_and_error(settled - growth * np.arange(len(settled)))
        # Means over the halves of a random walk, whose steps have variance v, differ by 2/3 half v.
        marks = settled[np.linspace(0, len(settled) - 1, _NUM_BATCHES + 1).astype(np.int64)]
        step_variance = float(np.diff(marks).var(ddof=1)) * _NUM_BATCHES / len(settled)
        return cls(
            growth=float(growth),
            error=2 * error / half,
            walk_error=max(2 * error / half, sqrt(2 / 3 * step_variance / half)),
            filled=filled,
        )


Drift.UNKNOWN = Drift(0.0, inf, inf, filled=inf)


def mean_and_error(values: FloatArray) -> tuple[float, float]:
    """Mean of a correlated series and its standard error, from the means of batches in a row.

    Batches that are still alike are taken for an AR(1) process, whose mean varies (1 + r) / (1 - r) times as
    much. Of a series too short for batches the error is infinite.
    """
    if len(values) < 2 * _NUM_BATCHES:
        return float(values.mean()), inf
    means = np.array([batch.mean() for batch in np.array_split(values, _NUM_BATCHES)])
    deviations = means - means.mean()
    squares = float(deviations @ deviations)
    if not squares:
        return float(values.mean()), 0.0
    alike = min(max(float(deviations[1:] @ deviations[:-1]) / squares, 0.0), 0.9)
    variance = squares / (_NUM_BATCHES - 1) / _NUM_BATCHES
    return float(values.mean()), sqrt(variance * (1 + alike) / (1 - alike))
