import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import COLOCATED, records, run, serve

from metrics.gaps import gaps_over_time, longest_gaps
from metrics.latency import itl

ALONE = [1.0, 1.33, 3, 1, 0, 0, 0.0, 0.10, 0.01]
PROMPT = [1.33, 1.83, 1, 0, 0, 100, 1.33, 0.5, 0.0]
BOTH = [1.83, 2.24, 2, 2, 1, 0, 1.33, 0.20, 0.01]
A = {**COLOCATED, "first_token_s": 1.0, "second_token_s": 1.1, "finished_s": 2.24}
B = {**COLOCATED, "first_token_s": 1.83, "second_token_s": 2.03, "finished_s": 2.24}
RESULT = run(records(A, B), step_logs=[[np.array([ALONE, PROMPT, BOTH])]], extra_gaps_s=[0.9], duration_s=2.24)


def rows(result):
    return sorted(
        row for piece in gaps_over_time(result) for row in zip(*(part.tolist() for part in piece), strict=True)
    )


def test_when_the_gaps_of_two_requests_ended():
    """A runs alone for 3 iterations; the prompt of B stops it for half a second; both run 2 iterations."""
    assert rows(RESULT) == [
        pytest.approx(row)
        for row in [
            (1.1, 0.1, 1),
            (1.21, 0.11, 1),
            (1.33, 0.12, 1),
            (2.03, 0.2, 1),  # B's first gap
            (2.03, 0.7, 1),  # A waited for the prompt of B
            (2.24, 0.21, 2),
        ]
    ]


def test_the_longest_gap_of_each_window():
    end_s, gap_s = longest_gaps(RESULT, 1000)
    assert end_s.tolist() == pytest.approx([1.1, 1.21, 1.33, 2.03, 2.24])
    assert gap_s.tolist() == pytest.approx([0.1, 0.11, 0.12, 0.7, 0.21])
    end_s, gap_s = longest_gaps(RESULT, 2)  # up to 1.12 s, and after
    assert (end_s.tolist(), gap_s.tolist()) == (pytest.approx([1.1, 2.03]), pytest.approx([0.1, 0.7]))


def test_no_gap_at_all():
    assert [part.tolist() for part in longest_gaps(run(records()), 10)] == [[], []]


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 300), st.integers(1, 30)), min_size=1, max_size=15))
def test_they_are_the_inter_token_latencies(arrivals):
    result = serve(arrivals)
    gaps = np.sort([gap for _, gap, count in rows(result) for _ in range(int(count))])
    assert gaps == pytest.approx(np.sort(itl(result).expanded()))
    if len(gaps):
        assert longest_gaps(result, 7)[1].max() == pytest.approx(gaps.max())
