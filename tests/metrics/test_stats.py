from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.stats import Sample, Stats

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
    assert Sample.of(values, weights).percentiles(np.array(q)) == pytest.approx(expected, abs=1e-9)


def test_ranks_between_distant_values():
    values, weights = np.array([1e6, 1.0, 2.0]), np.array([1.0, 98.0, 1.0])
    assert Sample.of(values, weights).percentiles(np.array([0, 50, 98, 99, 99.5, 100])).tolist() == pytest.approx(
        [1.0, 1.0, 1.02, 10001.98, 505000.99, 1e6]
    )


@given(st.lists(SAMPLES, min_size=2, max_size=5))
def test_chunks_are_one_sample(chunks):
    arrays = [np.array(chunk).T for chunk in chunks]
    whole = Sample.of(*np.concatenate(arrays, axis=1))
    chunked = Sample(lambda: [(values, weights) for values, weights in arrays])
    assert chunked.stats().count == whole.stats().count
    assert (chunked.mean, chunked.std) == pytest.approx((whole.mean, whole.std), abs=1e-6)
    q = np.array([0.0, 13.0, 50.0, 99.0, 100.0])
    assert chunked.percentiles(q) == pytest.approx(whole.percentiles(q), abs=1e-9)
    assert len(chunked.expanded()) == whole.count


@given(SAMPLES, st.floats(0, 100))
def test_rough_percentiles_are_near(samples, q):
    values, weights = np.array(samples).T
    expanded = np.repeat(values, weights.astype(int))
    rough = Sample.of(values, weights).rough_percentiles(np.array([q]))[0]
    assert np.percentile(expanded, q, method="lower") * (1 - 1 / 1024) <= rough
    assert rough <= np.percentile(expanded, q, method="higher")


def test_negative_values_have_bins_too():
    values = np.array([-3.0, -1.0, 0.0, 2.0])
    assert Sample.of(values).percentiles(np.array([0.0, 50.0, 100.0])).tolist() == [-3.0, -0.5, 2.0]
