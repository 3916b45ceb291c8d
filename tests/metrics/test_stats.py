from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.stats import Stats, percentiles

SAMPLES = st.lists(
    st.tuples(st.floats(0, 1e4) | st.sampled_from([0.0, 0.1, 7.0]), st.integers(1, 50)), min_size=1, max_size=60
)


def test_hand_computed():
    stats = Stats.of(np.array([4.0, nan, 1.0, 3.0, 2.0]))
    assert stats == Stats(
        count=4,
        mean=2.5,
        min=1.0,
        std=pytest.approx(1.25**0.5),
        p50=2.5,
        p90=pytest.approx(3.7),
        p95=pytest.approx(3.85),
        p99=pytest.approx(3.97),
        max=4.0,
    )


def test_no_sample_is_null():
    assert Stats.of(np.array([nan])) == Stats(0, None, None, None, None, None, None, None, None)
    assert Stats.of(np.array([5.0]), np.array([0.0])) == Stats()


def test_one_sample_is_every_statistic_but_the_spread():
    assert Stats.of(np.array([0.3])) == Stats(1, 0.3, 0.3, 0.0, 0.3, 0.3, 0.3, 0.3, 0.3)


@given(SAMPLES)
def test_weights_are_repeats(samples):
    values, weights = np.array(samples).T
    expanded = np.repeat(values, weights.astype(int))
    stats = Stats.of(values, weights)
    assert stats.count == len(expanded)
    assert (stats.min, stats.max) == (expanded.min(), expanded.max())
    assert stats.mean == pytest.approx(expanded.mean(), abs=1e-9)
    assert stats.std == pytest.approx(expanded.std(), abs=1e-7)
    assert (stats.p50, stats.p90, stats.p95, stats.p99) == pytest.approx(np.percentile(expanded, [50, 90, 95, 99]))


@given(SAMPLES, st.lists(st.floats(0, 100), min_size=1))
def test_percentiles_are_those_of_the_expanded_sample(samples, q):
    values, weights = np.array(samples).T
    expected = np.percentile(np.repeat(values, weights.astype(int)), q)
    assert percentiles(values, weights, np.array(q)) == pytest.approx(expected, abs=1e-9)


def test_ranks_between_distant_values():
    values, weights = np.array([1e6, 1.0, 2.0]), np.array([1.0, 98.0, 1.0])
    assert percentiles(values, weights, np.array([0, 50, 98, 99, 99.5, 100])).tolist() == pytest.approx(
        [1.0, 1.0, 1.02, 10001.98, 505000.99, 1e6]
    )
