"""Count, mean, spread and percentiles of a sample, every value of which may stand for many equal ones."""

from dataclasses import dataclass

import numpy as np

from metrics.records import FloatArray

_NUM_BINS = 1 << 16


@dataclass(frozen=True, slots=True)
class Stats:
    """`std` is that of the population. All but `count` are None when there is no sample."""

    count: int = 0
    mean: float | None = None
    min: float | None = None
    std: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: FloatArray, weights: FloatArray | None = None) -> "Stats":
        """Statistics of `values`, each counted `weights` times (whole numbers, once by default); nan is no sample."""
        present = ~np.isnan(values) if weights is None else ~np.isnan(values) & (weights > 0)
        values = values[present]
        if not len(values):
            return cls()
        weights = np.ones(len(values)) if weights is None else weights[present]
        count = weights.sum()
        mean = (values * weights).sum() / count
        std = np.sqrt(((values - mean) ** 2 * weights).sum() / count)
        p50, p90, p95, p99 = percentiles(values, weights, np.array([50.0, 90.0, 95.0, 99.0])).tolist()
        return cls(
            count=int(count),
            mean=float(mean),
            min=float(values.min()),
            std=float(std),
            p50=p50,
            p90=p90,
            p95=p95,
            p99=p99,
            max=float(values.max()),
        )


def percentiles(values: FloatArray, weights: FloatArray, q: FloatArray) -> FloatArray:
    """Percentiles `q` (0 to 100) of values that each occur `weights` > 0 times, linearly interpolated.

    The same as `np.percentile(np.repeat(values, weights), q)` without the repeating: values are counted in
    equal bins, and only bins that hold a rank asked for are sorted.
    """
    lowest = values.min()
    width = (values.max() - lowest) / (_NUM_BINS - 1)
    bins = ((values - lowest) / width).astype(np.int32) if width > 0 else np.zeros(len(values), dtype=np.int32)
    per_bin = np.bincount(bins, weights=weights)
    ends = np.cumsum(per_bin)

    rank = q / 100.0 * (ends[-1] - 1)
    ranks = np.concatenate([np.floor(rank), np.ceil(rank)])
    holding = np.searchsorted(ends, ranks, side="right")
    is_held = np.zeros(len(per_bin), dtype=np.bool_)
    is_held[holding] = True
    passed_over = np.cumsum(np.where(is_held, 0.0, per_bin))[holding]

    held = np.flatnonzero(is_held[bins])
    held = held[np.argsort(values[held])]
    at = np.searchsorted(np.cumsum(weights[held]), ranks - passed_over, side="right")
    low, high = values[held[at]].reshape(2, -1)
    between: FloatArray = low + (high - low) * (rank - np.floor(rank))
    return between
