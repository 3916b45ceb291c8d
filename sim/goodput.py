"""The highest rate that passes: bracket it by doubling or halving, then bisect between a pass and a failure.

Knows nothing of what is evaluated. Only whether a rate passes steers the search, never how well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Generic, Literal, Protocol, TypeVar

from cluster.errors import ConfigError

REACH = 2.0**20
"""How far from the first rate the search goes where it was given no limit."""


class Judged(Protocol):
    """What the search reads of a verdict."""

    @property
    def passed(self) -> bool: ...

    @property
    def attainment(self) -> float: ...


V = TypeVar("V", bound=Judged)


Status = Literal["found", "none_pass", "all_pass"]
"""found: a rate passes, and one at most the tolerance above it does not. none_pass: not even the lowest rate
does. all_pass: even the highest does, and the limit is beyond it."""


@dataclass(frozen=True, slots=True)
class Trial(Generic[V]):
    request_rate: float
    verdict: V


@dataclass(frozen=True, slots=True)
class GoodputResult(Generic[V]):
    """`request_rate` is the highest that passed, and None when none did; `history` has every trial in order."""

    status: Status
    request_rate: float | None
    history: tuple[Trial[V], ...]

    @property
    def attainment(self) -> float | None:
        """At `request_rate`."""
        best = self.best
        return None if best is None else best.verdict.attainment

    @property
    def best(self) -> Trial[V] | None:
        """The trial at `request_rate`."""
        return next((trial for trial in self.history if trial.request_rate == self.request_rate), None)

    @property
    def refusal(self) -> Trial[V] | None:
        """The lowest rate that failed: what stands in the way of a higher one."""
        failures = [trial for trial in self.history if not trial.verdict.passed]
        return min(failures, key=lambda trial: trial.request_rate, default=None)


def find_goodput(
    evaluate: Callable[[float], V],
    *,
    hint: float,
    lowest: float | None = None,
    highest: float | None = None,
    relative_tolerance: float = 0.02,
    on_trial: Callable[[Trial[V]], None] | None = None,
) -> GoodputResult[V]:
    """Search the rates from `lowest` to `highest` (requests/s), beginning at `hint`.

    `evaluate` should be the same function of the rate throughout: the same seed at every rate. Where it is not
    monotone, the rate found is one below which it passes and just above which it fails. Raises ConfigError
    for limits that contradict each other.
    """
    low_limit = hint / REACH if lowest is None else lowest
    high_limit = hint * REACH if highest is None else highest
    _check(hint, low_limit, high_limit, relative_tolerance)
    history: list[Trial[V]] = []

    def passes(request_rate: float) -> bool:
        trial = Trial(request_rate, evaluate(request_rate))
        history.append(trial)
        if on_trial is not None:
            on_trial(trial)
        return trial.verdict.passed

    rate = min(max(hint, low_limit), high_limit)
    if passes(rate):
        passing, failing = rate, inf
        while failing == inf:
            if passing == high_limit:
                return GoodputResult("all_pass", passing, tuple(history))
            rate = min(2 * passing, high_limit)
            if passes(rate):
                passing = rate
            else:
                failing = rate
    else:
        passing, failing = 0.0, rate
        while not passing:
            if failing == low_limit:
                return GoodputResult("none_pass", None, tuple(history))
            rate = max(failing / 2, low_limit)
            if passes(rate):
                passing = rate
            else:
                failing = rate
    while failing > passing * (1 + relative_tolerance):
        rate = sqrt(passing * failing)
        if passes(rate):
            passing = rate
        else:
            failing = rate
    return GoodputResult("found", passing, tuple(history))


def _check(hint: float, lowest: float, highest: float, relative_tolerance: float) -> None:
    if not 0 < hint < inf:
        raise ConfigError(f"the rate to begin with is {hint}; it must be a finite number above 0")
    if not 0 < lowest < inf or not 0 < highest < inf:
        raise ConfigError(f"rates {lowest} to {highest} cannot be searched; both must be finite numbers above 0")
    if lowest > highest:
        raise ConfigError(f"the lowest rate {lowest:g} is above the highest {highest:g}; exchange them")
    if not 1e-6 <= relative_tolerance <= 1:
        raise ConfigError(f"the tolerance is {relative_tolerance}; it must be between 1e-6 and 1, like 0.02 for 2 %")
