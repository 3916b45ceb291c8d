"""What a comparison draws of one run: a few thousand numbers, however long the run was."""

from dataclasses import dataclass

import numpy as np

from metrics.figure import MAX_POINTS, cdf_points
from metrics.gantt import Bars
from metrics.gaps import longest_gaps
from metrics.latency import e2e_s, itl, tpot_s, ttft_s
from metrics.records import FloatArray
from metrics.run import RunResult
from metrics.samples import SAMPLE_FIELDS
from metrics.stats import Sample

TTFT, ITL = "Time to first token", "Inter-token latency"
TPOT, E2E = "Time per output token", "End-to-end latency"
"""Titles of distributions."""
NUM_GAPS = 2_000
"""Windows of a run of which the longest gap is drawn."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Latencies at metrics.figure.CDF_Q percent by title; sums over the instances of the run at sample times."""

    cdfs_ms: dict[str, FloatArray]
    gap_end_s: FloatArray
    """The longest gaps between tokens in order of time: when each ended, and how long it was."""
    gap_ms: FloatArray
    sample_s: FloatArray
    queued_tokens: FloatArray
    num_decoding: FloatArray
    kv_use_percent: FloatArray
    bars: Bars

    @classmethod
    def of(cls, result: RunResult, gaps: Sample | None = None) -> "Curves":
        """gaps: metrics.latency.itl of `result`, where the caller has it already."""
        points = {
            TTFT: cdf_points(Sample.of(ttft_s(result.records))),
            ITL: cdf_points(gaps or itl(result)),
            TPOT: cdf_points(Sample.of(tpot_s(result.records))),
            E2E: cdf_points(Sample.of(e2e_s(result.records))),
        }
        end_s, gap_s = longest_gaps(result, NUM_GAPS)
        sample_s, queued, decoding, used = _totals(result)
        return cls(
            cdfs_ms={title: values for title, values in points.items() if values is not None},
            gap_end_s=end_s,
            gap_ms=gap_s * 1e3,
            sample_s=sample_s,
            queued_tokens=queued,
            num_decoding=decoding,
            kv_use_percent=100 * used / sum(result.kv_capacity_tokens),
            bars=Bars.of(result),
        )


def _totals(result: RunResult) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sample times, and queued tokens, decoding requests and used KV tokens of all instances; peaks of bins."""
    names = ("queued_tokens", "num_decoding", "kv_used_tokens")
    length = min((len(samples) for samples in result.samples), default=0)
    bins = np.arange(0, length, -(-length // MAX_POINTS) or 1)
    if not len(bins):
        nothing = np.empty(0)
        return nothing, nothing, nothing, nothing
    total = np.sum([samples[:length] for samples in result.samples], axis=0)
    queued, decoding, used = (np.maximum.reduceat(total[:, SAMPLE_FIELDS.index(name)], bins) for name in names)
    return result.samples[0][bins, 0], queued, decoding, used
