"""Demand window by window, so that a predictor can say what the next windows will bring."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.config import PredictorSettings
from planner.demand import Demand
from planner.predictors import PREDICTORS


class Load(NamedTuple):
    """What one window asked for. A window without traffic has the lengths of the one before: it says nothing of them."""

    request_rate: float
    """Requests per second."""
    prompt_tokens: float
    """Mean ISL; 0 until there has been traffic."""
    output_tokens: float
    """Mean OSL; 0 until it is known."""


NO_LOAD = Load(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class History:
    """Loads of windows that followed each other, the oldest first."""

    loads: tuple[Load, ...] = ()
    until_s: float = 0.0
    """When the last window ended."""

    def followed_by(self, demand: Demand, now: float, interval_s: float) -> "History":
        """With the window that ends now, when a whole one has passed since the last; else the same."""
        if now < self.until_s + interval_s - 1e-9:
            return self
        demand = demand.of_last(interval_s, now)
        last = self.loads[-1] if self.loads else NO_LOAD
        load = Load(
            demand.request_rate, demand.prompt_tokens or last.prompt_tokens, demand.output_tokens or last.output_tokens
        )
        return History((*self.loads, load), now)


def loads_of(requests: Iterable[tuple[float, int, int]], interval_s: float) -> list[Load]:
    """Loads of the whole windows of a trace, given as (arrival in seconds, prompt tokens, output tokens) in order.

    Windows count from time 0; what arrives after the last whole one is left out.
    """
    loads: list[Load] = []
    count = prompts = outputs = 0
    for arrival_s, prompt_tokens, output_tokens in requests:
        while arrival_s >= (len(loads) + 1) * interval_s:
            last = loads[-1] if loads else NO_LOAD
            lengths = (prompts / count, outputs / count) if count else last[1:]
            loads.append(Load(count / interval_s, *lengths))
            count = prompts = outputs = 0
        count += 1
        prompts += prompt_tokens
        outputs += output_tokens
    return loads


def expected(loads: Sequence[Load], settings: PredictorSettings) -> Load:
    """What the window `settings.steps_ahead` after the last will ask for."""
    predict = PREDICTORS[settings.name]
    recent = loads[-settings.window :]
    return Load(*(predict(series, settings.steps_ahead) for series in zip(*recent, strict=True))) if recent else NO_LOAD
