import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from workload.trace import Trace, TraceInfo


def make_trace(arrival_s, prompt=None, output=None, *, hashes=None, block_size=None):
    n = len(arrival_s)
    return Trace(
        np.array(arrival_s, dtype=np.float64),
        np.array(prompt or [10] * n, dtype=np.int64),
        np.array(output or [2] * n, dtype=np.int64),
        TraceInfo(source="t.csv", format="vidur", unit="s", num_rows=n),
        hashes,
        block_size,
    )


@pytest.mark.parametrize(
    ("start_s", "end_s", "arrivals", "prompts"),
    [
        (0.0, 10.0, [0.0, 1.0, 1.0, 4.0], [1, 2, 3, 4]),
        (1.0, 4.0, [0.0, 0.0], [2, 3]),  # the end is not inside
        (0.5, np.inf, [0.5, 0.5, 3.5], [2, 3, 4]),  # counted from the start of the window, not from its first arrival
        (5.0, 6.0, [], []),
    ],
)
def test_window(start_s, end_s, arrivals, prompts):
    trace = make_trace([0.0, 1.0, 1.0, 4.0], [1, 2, 3, 4], hashes=[(1,), (2,), (3,), (4,)], block_size=512)
    window = trace.window(start_s, end_s)
    assert window.arrival_s.tolist() == arrivals
    assert window.prompt_tokens.tolist() == prompts
    assert window.prefix_hashes == [(prompt,) for prompt in prompts]
    assert window.prefix_block_size == 512


def test_head():
    trace = make_trace([0.0, 1.0, 2.0], [7, 8, 9])
    assert trace.head(2).prompt_tokens.tolist() == [7, 8]
    assert len(trace.head(99)) == 3


@given(
    gaps=st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=50),
    rate=st.floats(1e-6, 1e6),
)
def test_at_rate_gives_the_rate_and_keeps_order_and_proportions(gaps, rate):
    trace = make_trace(np.cumsum([3.0, *gaps]))
    scaled = trace.at_rate(rate)
    assert scaled.request_rate == pytest.approx(rate, rel=1e-9)
    assert np.all(np.diff(scaled.arrival_s) >= 0)
    assert np.allclose(scaled.arrival_s / scaled.arrival_s[-1], trace.arrival_s / trace.arrival_s[-1])


def test_at_rate_by_hand():
    assert make_trace([0.0, 1.0, 4.0]).at_rate(0.05).arrival_s.tolist() == [0.0, 10.0, 40.0]


@pytest.mark.parametrize(
    ("arrivals", "rate", "message"),
    [
        ([2.0, 2.0], 1.0, r"t\.csv: its 2 request\(s\) arrive at one time; use a longer part"),
        ([0.0], 1.0, r"its 1 request\(s\)"),
        ([0.0, 1.0], 0.0, "request_rate is 0.0; it must be a finite number above 0"),
        ([0.0, 1.0], np.inf, "request_rate is inf"),
    ],
)
def test_at_rate_that_cannot_be(arrivals, rate, message):
    with pytest.raises(ConfigError, match=message):
        make_trace(arrivals).at_rate(rate)


def test_describe():
    data = make_trace([0.0, 1.0, 4.0], [10, 20, 60], [0, 1, 5]).describe()
    assert data == {
        "source": "t.csv",
        "format": "vidur",
        "unit": "s",
        "num_rows": 3,
        "num_requests": 3,
        "span_s": 4.0,
        "request_rate": 0.5,
        "prompt_tokens": {"mean": 30.0, "min": 10, "p50": 20.0, "p99": pytest.approx(59.2), "max": 60},
        "output_tokens": {"mean": 2.0, "min": 0, "p50": 1.0, "p99": pytest.approx(4.92), "max": 5},
        "prefix_block_size": None,
        "num_rejected": 0,
        "rejected": {},
        "rejected_examples": [],
        "notices": [],
    }


def test_describe_nothing():
    data = make_trace([]).describe()
    assert data["request_rate"] is None
    assert set(data["prompt_tokens"].values()) == {None}
