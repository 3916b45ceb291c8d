"""What comes next in a series of non-negative numbers, such as requests per second window by window.

A predictor takes the series so far, the oldest value first, and how many steps ahead to look (1 is the next
value). All are pure. Leading zeros are a cluster that was not in use yet, and are ignored.
"""

import warnings
from collections.abc import Callable, Sequence
from itertools import product
from math import inf, isfinite, log
from operator import itemgetter

Predictor = Callable[[Sequence[float], int], float]

AVERAGED = 6
"""Values that the moving average looks at."""
DAMPING = 0.9
"""Share of a trend that is left one step later (Gardner and McKenzie, 1985): no trend goes on for ever."""
LEVEL_GAINS, TREND_GAINS = (0.8, 0.6, 0.4, 0.2, 0.1), (0.0, 0.05, 0.1, 0.2)
LEVEL_NOISES, TREND_NOISES = (1.0, 0.2, 0.05, 0.01), (0.0, 0.001, 0.01, 0.05)
"""Variances per step, in those of a single value."""
UNKNOWN_TREND = 0.001
"""Variance of the trend at the start, in the same unit."""
LARGEST_ROOT = 0.95


def last_value(series: Sequence[float], steps_ahead: int) -> float:  # noqa: ARG001
    return series[-1]


def moving_average(series: Sequence[float], steps_ahead: int) -> float:  # noqa: ARG001
    recent = series[-AVERAGED:]
    return sum(recent) / len(recent)


def holt(series: Sequence[float], steps_ahead: int) -> float:
    """Exponential smoothing with a damped trend; the gains are those that would have predicted the series best."""
    fits = (_smoothed(series, *gains) for gains in product(LEVEL_GAINS, TREND_GAINS))
    _, level, trend = min(fits, key=itemgetter(0))
    return level + trend * _damped_steps(steps_ahead)


def _smoothed(series: Sequence[float], level_gain: float, trend_gain: float) -> tuple[float, float, float]:
    """Sum of squared one-step errors, last level and last trend."""
    level, trend, squares = series[0], 0.0, 0.0
    for value in series[1:]:
        expected = level + DAMPING * trend
        error = value - expected
        squares += error * error
        level = expected + level_gain * error
        trend = DAMPING * trend + level_gain * trend_gain * error
    return squares, level, trend


def kalman(series: Sequence[float], steps_ahead: int) -> float:
    """A local trend, damped and filtered; the noises are the likeliest for the series (Durbin and Koopman, 2012, 3.2)."""
    fits = (_filtered(series, *noises) for noises in product(LEVEL_NOISES, TREND_NOISES))
    _, level, trend = min(fits, key=itemgetter(0))
    return level + trend * _damped_steps(steps_ahead)


def _filtered(series: Sequence[float], level_noise: float, trend_noise: float) -> tuple[float, float, float]:
    """Deviance (-2 log likelihood, the scale maximised out), last level and last trend."""
    level, trend = series[0], 0.0
    level_var, covar, trend_var = 1.0, 0.0, UNKNOWN_TREND
    squares, logs = 0.0, 0.0
    for value in series[1:]:
        trend *= DAMPING
        level += trend
        covar, trend_var = DAMPING * covar, DAMPING**2 * trend_var
        level_var += 2 * covar + trend_var + level_noise
        covar += trend_var
        trend_var += trend_noise
        error, error_var = value - level, level_var + 1.0
        level += level_var / error_var * error
        trend += covar / error_var * error
        trend_var -= covar * covar / error_var
        level_var, covar = level_var / error_var, covar / error_var
        squares += error * error / error_var
        logs += log(error_var)
    count = len(series) - 1
    return logs + count * log(squares / count) if squares else -inf, level, trend


def _damped_steps(steps_ahead: int) -> float:
    return sum(DAMPING**step for step in range(1, steps_ahead + 1))


def arima(series: Sequence[float], steps_ahead: int) -> float:
    """ARIMA(1, 1, 1), fitted in the three regressions of Hannan and Rissanen: there is one fit per prediction."""
    import numpy as np
    from statsmodels.tsa.arima.estimators.hannan_rissanen import hannan_rissanen

    changes = np.diff(np.asarray(series, dtype=np.float64))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        fitted, _ = hannan_rissanen(changes, ar_order=1, ma_order=1, demean=False)
    ar, ma = (_within_roots(float(one[0])) for one in (fitted.ar_params, fitted.ma_params))
    before = error = 0.0
    for change in changes.tolist():
        error = change - ar * before - ma * error
        before = change
    first = ar * before + ma * error
    return series[-1] + first * sum(ar**step for step in range(steps_ahead))


def _within_roots(coefficient: float) -> float:
    """Kept where the process is stationary and can be inverted."""
    return max(-LARGEST_ROOT, min(LARGEST_ROOT, coefficient)) if isfinite(coefficient) else 0.0


def _of_what_is_known(model: Predictor, fewest: int) -> Predictor:
    """The last value where `model` has fewer than `fewest` to go by, or all are alike; never negative, never NaN."""

    def predict(series: Sequence[float], steps_ahead: int) -> float:
        start = next((index for index, value in enumerate(series) if value > 0), len(series))
        busy = series[start:]
        if not busy:
            return 0.0
        if len(busy) < fewest or min(busy) == max(busy):
            return float(busy[-1])
        ahead = model(busy, steps_ahead)
        return max(0.0, ahead) if isfinite(ahead) else float(busy[-1])

    return predict


PREDICTORS: dict[str, Predictor] = {
    "last": _of_what_is_known(last_value, 1),
    "average": _of_what_is_known(moving_average, 1),
    "holt": _of_what_is_known(holt, 3),
    "arima": _of_what_is_known(arima, 12),
    "kalman": _of_what_is_known(kalman, 3),
}
