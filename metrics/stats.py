"""Count, mean, spread and percentiles of a sample, every value of which may stand for many equal ones."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from math import inf, sqrt

import numpy as np
import numpy.typing as npt

from metrics.records import FloatArray

Chunk = tuple[FloatArray, FloatArray]
"""Values and how often each occurs (whole numbers above 0)."""

_BIN_SHIFT = 41
"""Bits of a double below a bin: 11 bits of mantissa stay, so bins are 1/2048 of their value wide."""

_LOWEST = np.int64(-(2**63))


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
        return Sample.of(values, weights).stats()


def milliseconds(seconds: Stats) -> Stats:
    """The same statistics in milliseconds."""
    scaled = {
        field.name: None if (value := getattr(seconds, field.name)) is None else value * 1e3
        for field in fields(seconds)
        if field.name != "count"
    }
    return Stats(seconds.count, **scaled)


class Sample:
    """A sample that comes in chunks, so that it need not fit into memory at once.

    `chunks` is called once to count values into bins, and once more for each call of `percentiles`, which
    sorts only the bins that hold a rank asked for: the result is exact. Values are finite.
    """

    def __init__(self, chunks: Callable[[], Iterable[Chunk]]) -> None:
        self._chunks = chunks
        self.count, self.mean, squares = 0.0, 0.0, 0.0
        self.min, self.max = inf, -inf
        bins: dict[int, float] = {}
        for values, weights in chunks():
            if not len(values):
                continue
            count = float(weights.sum())
            mean = float((values * weights).sum()) / count
            off = mean - self.mean
            squares += float(((values - mean) ** 2 * weights).sum()) + off * off * self.count * count / (
                self.count + count
            )
            self.count += count
            self.mean += off * count / self.count
            self.min, self.max = min(self.min, float(values.min())), max(self.max, float(values.max()))
            found = _bins(values)
            lowest = int(found.min())
            per_bin = np.bincount(found - lowest, weights=weights)
            for at in np.flatnonzero(per_bin).tolist():
                bins[lowest + at] = bins.get(lowest + at, 0.0) + float(per_bin[at])
        self.std = sqrt(squares / self.count) if self.count else 0.0
        self._bins = np.array(sorted(bins), dtype=np.int64)
        self._ends = np.cumsum([bins[number] for number in self._bins.tolist()])

    @classmethod
    def of(cls, values: FloatArray, weights: FloatArray | None = None) -> "Sample":
        """A sample in memory; nan, and what occurs 0 times, is left out."""
        present = ~np.isnan(values) if weights is None else ~np.isnan(values) & (weights > 0)
        values = values[present]
        chunk = values, np.ones(len(values)) if weights is None else weights[present]
        return cls(lambda: [chunk])

    def stats(self) -> Stats:
        if not self.count:
            return Stats()
        p50, p90, p95, p99 = self.percentiles(np.array([50.0, 90.0, 95.0, 99.0])).tolist()
        return Stats(int(self.count), self.mean, self.min, self.std, p50, p90, p95, p99, self.max)

    def percentiles(self, q: FloatArray) -> FloatArray:
        """Percentiles `q` (0 to 100), linearly interpolated: np.percentile of the sample written out."""
        rank = q / 100.0 * (self.count - 1)
        ranks = np.concatenate([np.floor(rank), np.ceil(rank)])
        holding = np.searchsorted(self._ends, ranks, side="right")
        held = np.unique(holding)
        passed_over = np.where(holding > 0, self._ends[holding - 1], 0.0)
        before = np.concatenate([[0.0], np.cumsum(np.diff(self._ends, prepend=0.0)[held])])[
            np.searchsorted(held, holding)
        ]
        values, weights = self._in_bins(self._bins[held])
        order = np.argsort(values)
        at = np.searchsorted(np.cumsum(weights[order]), ranks - passed_over + before, side="right")
        low, high = values[order[at]].reshape(2, -1)
        between: FloatArray = low + (high - low) * (rank - np.floor(rank))
        return between

    def rough_percentiles(self, q: FloatArray) -> FloatArray:
        """Percentiles to 1/2048 of their value, from the bins alone: good enough to draw, and costs no pass."""
        held = np.searchsorted(self._ends, q / 100.0 * (self.count - 1), side="right")
        edges: FloatArray = _lowest_in(self._bins[held])
        return np.clip(edges, self.min, self.max)

    def expanded(self) -> FloatArray:
        """Every value as often as it occurs, in no order: for samples that fit into memory."""
        parts = [np.repeat(values, weights.astype(np.int64)) for values, weights in self._chunks()]
        return np.concatenate(parts) if parts else np.empty(0)

    def _in_bins(self, bins: npt.NDArray[np.int64]) -> Chunk:
        parts = []
        for values, weights in self._chunks():
            found = _bins(values)
            wanted = np.isin(found, bins)
            parts.append((values[wanted], weights[wanted]))
        return np.concatenate([values for values, _ in parts]), np.concatenate([weights for _, weights in parts])


def _bins(values: FloatArray) -> npt.NDArray[np.int64]:
    """Bin numbers that ascend with the value: the leading bits of a double, mirrored below 0."""
    bits = values.view(np.int64)
    return np.where(bits >= 0, bits, _LOWEST - bits) >> _BIN_SHIFT


def _lowest_in(bins: npt.NDArray[np.int64]) -> FloatArray:
    """The smallest value of each bin."""
    bits = bins << _BIN_SHIFT
    return np.where(bits >= 0, bits, _LOWEST - bits).view(np.float64)
