"""Forecasts: hand-computed ones, and what every predictor must do with any series."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.predictors import PREDICTORS, holt

NAMES = list(PREDICTORS)
RAMP = [float(value) for value in range(1, 41)]
EVERY = pytest.mark.parametrize("name", NAMES)


@EVERY
@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ([], 0.0),
        ([0.0, 0.0, 0.0], 0.0),
        ([7.0], 7.0),
        ([3.0] * 40, 3.0),
        ([0.0] * 30 + [5.0] * 20, 5.0),  # leading idle
        ([0.0] * 30 + [5.0], 5.0),
    ],
)
def test_nothing_to_go_by(name, series, expected):
    for steps in (1, 6):
        assert PREDICTORS[name](series, steps) == expected


@EVERY
@given(st.lists(st.floats(0, 1e6), max_size=40), st.integers(1, 10), st.integers(0, 20))
def test_any_series(name, series, steps, idle):
    """Finite, never negative, and none the wiser for idle time before."""
    ahead = PREDICTORS[name](series, steps)
    assert 0.0 <= ahead < float("inf")
    assert PREDICTORS[name]([0.0] * idle + series, steps) == ahead


@pytest.mark.parametrize(
    ("name", "series", "steps", "expected"),
    [
        ("last", [1, 5, 3], 4, 3),
        ("average", [100, 1, 2, 3, 4, 5, 6], 2, 3.5),
        ("average", [2, 4], 1, 3),
    ],
)
def test_values(name, series, steps, expected):
    assert PREDICTORS[name](series, steps) == pytest.approx(expected)


def test_holt_by_hand():
    """10, 20: of all gains 0.8 and 0 come first, and with two values none is better: 10 + 0.8 x 10."""
    assert holt([10.0, 20.0], 1) == pytest.approx(18.0)


@pytest.mark.parametrize(("name", "limit"), [("holt", 49), ("kalman", 49), ("arima", 60)])
def test_a_trend_goes_on_but_not_for_ever(name, limit):
    """Each step is at most 0.9 of the one before, 0.95 in ARIMA."""
    near, far = (PREDICTORS[name](RAMP, steps) for steps in (1, 200))
    assert 40 < near < 41
    assert near < far < limit


@pytest.mark.parametrize("name", ["average", "holt", "kalman"])
def test_noise_is_smoothed(name):
    assert PREDICTORS[name]([9.0, 11.0] * 20, 1) == pytest.approx(10.0, abs=0.2)


@EVERY
def test_a_step_is_followed(name):
    """Six values after a step all predictors are nearly there."""
    assert PREDICTORS[name]([10.0, 11.0, 9.0] * 6 + [30.0, 31.0, 29.0] * 2, 1) == pytest.approx(30.0, abs=4.0)
