from math import nan

import pytest
from made_runs import COLOCATED, HANDED_OVER, REJECTED, records

from metrics.slo import SloSpec
from metrics.windows import Windows


def test_windows_of_arrival_time():
    """Arrivals at 1, 2 and 5 s in two windows of 2 s; the handed-over request misses its TTFT."""
    windows = Windows.of(records(HANDED_OVER, COLOCATED, REJECTED), SloSpec(ttft_ms=120), num_windows=2)
    assert windows.middle_s.tolist() == [2.0, 4.0]
    assert windows.sent_rate.tolist() == [1.0, 0.5]
    assert windows.good_rate.tolist() == [0.5, 0.0]
    assert windows.attainment.tolist() == [0.5, 0.0]
    assert windows.ttft_parts_s["queue"].tolist() == pytest.approx([0.025, nan], nan_ok=True)
    assert windows.ttft_parts_s["prefill"].tolist() == pytest.approx([0.1, nan], nan_ok=True)
    assert windows.ttst_parts_s["transfer"].tolist() == pytest.approx([0.01, nan], nan_ok=True)


def test_a_window_without_requests_has_no_attainment():
    late = {**COLOCATED, "arrival_s": 8.0}
    windows = Windows.of(records(COLOCATED, late), SloSpec(), num_windows=3)
    assert windows.attainment.tolist() == pytest.approx([1.0, nan, 1.0], nan_ok=True)


def test_requests_that_arrive_together_are_one_window():
    windows = Windows.of(records(COLOCATED, COLOCATED), SloSpec(), num_windows=60)
    assert windows.sent_rate.tolist() == [2.0]
