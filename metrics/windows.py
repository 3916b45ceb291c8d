"""How a run went window by window: requests sent, good ones, and where their time went."""

from dataclasses import dataclass

import numpy as np

from metrics.latency import ttft_parts_s, ttft_s, ttst_parts_s, ttst_s
from metrics.records import Column, FloatArray
from metrics.slo import SloSpec, meets


@dataclass(frozen=True, slots=True)
class Windows:
    """Equal windows of arrival time; a request counts in the window it arrived in.

    `middle_s` is each window's centre, the rates are per second, shares and means nan in a window
    without requests. The parts are means over the requests of a window that have a first (second) token.
    """

    middle_s: FloatArray
    sent_rate: FloatArray
    good_rate: FloatArray
    attainment: FloatArray
    ttft_parts_s: dict[str, FloatArray]
    ttst_parts_s: dict[str, FloatArray]

    @classmethod
    def of(cls, records: FloatArray, slo: SloSpec, *, num_windows: int) -> "Windows":
        """Cut the span from first to last arrival of `records`, which must not be empty."""
        arrival = records[:, Column.ARRIVAL_S]
        start, span = float(arrival.min()), float(np.ptp(arrival))
        if not span:
            num_windows, span = 1, 1.0
        width = span / num_windows
        window = np.minimum(((arrival - start) / width).astype(np.int64), num_windows - 1)

        def total(values: FloatArray) -> FloatArray:
            return np.bincount(window, weights=np.nan_to_num(values), minlength=num_windows).astype(np.float64)

        def mean(parts: dict[str, FloatArray], whole: FloatArray) -> dict[str, FloatArray]:
            samples = total(np.isfinite(whole).astype(np.float64))
            return {name: _share(total(values), samples) for name, values in parts.items()}

        sent, good = total(np.ones(len(records))), total(meets(records, slo).astype(np.float64))
        return cls(
            middle_s=start + width * np.arange(0.5, num_windows, dtype=np.float64),
            sent_rate=sent / width,
            good_rate=good / width,
            attainment=_share(good, sent),
            ttft_parts_s=mean(ttft_parts_s(records), ttft_s(records)),
            ttst_parts_s=mean(ttst_parts_s(records), ttst_s(records)),
        )


def _share(amount: FloatArray, of: FloatArray) -> FloatArray:
    share = np.full(len(of), np.nan)
    np.divide(amount, of, out=share, where=of > 0)
    return share
