"""Demand by windows, what is expected of the next one, and how far that was off."""

import pytest

from planner.backtest import backtest
from planner.config import PredictorSettings
from planner.demand import Arrived, Demand
from planner.history import NO_LOAD, History, Load, expected, loads_of

REQUESTS = [(0.5, 100, 10), (1.5, 300, 20), (4.0, 50, 5), (4.5, 150, 15), (7.0, 1, 1)]


def test_windows_of_a_trace():
    """An empty window keeps the lengths of the one before, and the last, unfinished one is left out."""
    assert loads_of(REQUESTS, 2.0) == [Load(1.0, 200, 15), Load(0.0, 200, 15), Load(1.0, 100, 10)]
    assert loads_of([(5.0, 10, 1)], 2.0) == [NO_LOAD, NO_LOAD]
    assert loads_of([], 2.0) == []


def test_a_history_grows_by_whole_windows():
    arrived = tuple(Arrived(now / 2, 100 * now, 0) for now in range(1, 11))
    demand = Demand(5.0, arrived, mean_output_tokens=7.0)
    history = History().followed_by(demand, 5.0, 2.0)
    assert history == History((Load(2.0, 850, 7.0),), 5.0)
    assert history.followed_by(demand, 6.5, 2.0) is history
    quiet = history.followed_by(Demand(5.0), 7.0, 2.0)
    assert quiet.loads[1] == Load(0.0, 850, 7.0)


def test_expected_looks_back_on_a_window_of_each_series():
    loads = [Load(9.0, 900, 90), Load(1.0, 100, 10), Load(3.0, 200, 20)]
    assert expected(loads, PredictorSettings(name="average", window=2)) == Load(2.0, 150, 15)
    assert expected(loads, PredictorSettings(name="last")) == loads[-1]
    assert expected([], PredictorSettings()) == NO_LOAD


def errors_of(predictor, loads, **arguments):
    return [one for one in backtest(loads, **arguments) if one.predictor == predictor]


def test_errors_by_hand():
    """Leading idle is not predicted; a window without traffic has a rate, but no lengths to be right about."""
    loads = [NO_LOAD, Load(2.0, 100, 10), Load(4.0, 300, 10), Load(0.0, 300, 10), Load(2.0, 200, 10)]
    rate, prompt, output = errors_of("last", loads, steps_ahead=1, window=30)
    assert (rate.num_predictions, rate.mae, rate.rmse) == (3, pytest.approx(8 / 3), pytest.approx((24 / 3) ** 0.5))
    assert rate.mape == pytest.approx((2 / 4 + 2 / 2) / 2)
    assert (prompt.num_predictions, prompt.mae, prompt.mape) == (2, 150, pytest.approx((200 / 300 + 100 / 200) / 2))
    assert (output.mae, output.rmse, output.mape) == (0, 0, 0)


def test_two_steps_ahead_sees_two_windows_less():
    loads = [Load(float(rate), 1, 1) for rate in (1, 2, 4, 8)]
    rate, *_ = errors_of("last", loads, steps_ahead=2, window=30)
    assert (rate.num_predictions, rate.mae) == (2, (3 + 6) / 2)
    rate, *_ = errors_of("average", loads, steps_ahead=1, window=2)
    assert rate.mae == pytest.approx((1 + 2.5 + 5) / 3)


def test_nothing_to_predict_is_null():
    for one in backtest([Load(1.0, 1, 1)], steps_ahead=1, window=30):
        assert (one.num_predictions, one.mae, one.rmse, one.mape) == (0, None, None, None)
