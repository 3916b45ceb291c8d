"""How far predictors would have been off on a trace: each window predicted from those before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from planner.history import Load
from planner.predictors import PREDICTORS


@dataclass(frozen=True, slots=True)
class Errors:
    """Of one predictor on one series; None where there was nothing to compare."""

    predictor: str
    series: str
    """request_rate, prompt_tokens or output_tokens."""
    steps_ahead: int
    num_predictions: int
    mae: float | None
    """Mean absolute error, in the unit of the series."""
    rmse: float | None
    mape: float | None
    """Mean of the absolute error as a share of the value, over values above 0."""


def backtest(loads: Sequence[Load], *, steps_ahead: int, window: int) -> list[Errors]:
    """Errors of every predictor on every series.

    A prediction sees at most the last `window` values. The first windows before any traffic are not predicted,
    nor are lengths of windows without traffic. All predictors are judged by the same values.
    """
    start = next((index for index, load in enumerate(loads) if load.request_rate > 0), len(loads))
    judged = range(start + steps_ahead, len(loads))
    results = []
    for column, series in enumerate(Load._fields):
        values = [load[column] for load in loads]
        known = [at for at in judged if not column or loads[at].request_rate > 0]
        for name, predict in PREDICTORS.items():
            errors = [
                predict(values[max(0, at + 1 - steps_ahead - window) : at + 1 - steps_ahead], steps_ahead) - values[at]
                for at in known
            ]
            results.append(_errors(name, series, steps_ahead, errors, [values[at] for at in known]))
    return results


def _errors(name: str, series: str, steps_ahead: int, errors: list[float], actual: list[float]) -> Errors:
    count = len(errors)
    shares = [abs(error) / value for error, value in zip(errors, actual, strict=True) if value > 0]
    return Errors(
        name,
        series,
        steps_ahead,
        count,
        mae=sum(map(abs, errors)) / count if count else None,
        rmse=sqrt(sum(error * error for error in errors) / count) if count else None,
        mape=sum(shares) / len(shares) if shares else None,
    )
