"""Whether a run shows that its rate can be kept up: enough good requests, short waits, and no pile that grows.

A finite run of an overloaded system may end before it misses a loose SLO, so attainment alone proves
nothing. A verdict also says whether it is sure, or more requests might change it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from cluster.errors import ConfigError
from metrics.latency import ttft_parts_s
from metrics.records import FloatArray
from metrics.slo import SloSpec, meets
from sim.drift import Drift, mean_and_error

MAX_DELAY_S = 2.0
"""Median scheduling delay of a sustainable load (Sarathi-Serve, section 5)."""

SLO_FIELDS = {"TTFT": "ttft_ms", "TPOT": "tpot_ms", "E2E": "e2e_ms"}

_SIGMAS = 2.0
"""Standard errors within which a figure counts as too close to call."""
_FILLING_FACTOR = 32
"""So many times `max_requests` where it takes them to fill the cluster."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How many requests a verdict takes: at least `num_requests` to pass, up to `max_requests` while unsure."""

    num_requests: int = 1000
    max_requests: int = 8000

    def __post_init__(self) -> None:
        if self.num_requests < 1:
            raise ConfigError(f"num_requests is {self.num_requests}; it must be at least 1")
        if self.max_requests < self.num_requests:
            raise ConfigError(
                f"max_requests {self.max_requests} is below num_requests {self.num_requests}; raise it or lower the other"
            )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says about its rate. `reason` is why it failed, and empty when it passed."""

    passed: bool
    reason: str
    sure: bool
    attainment: float
    """Share of all requests that met every SLO; rejected ones did not."""
    attainment_by_slo: dict[str, float]
    """Per SLO that was given (TTFT, TPOT, E2E)."""
    delay_s: float
    """Median scheduling delay: arrival to the step that starts the prompt."""
    drift: float
    """Share of arrivals that pile up: the growth of unfinished requests per arrival, after the warm-up."""
    filled: float
    """Below 1, the run was too short for its requests' stay to tell growth from filling up."""
    num_requests: int


def each_target(slo: SloSpec) -> dict[str, SloSpec]:
    """The targets that are given (TTFT, TPOT, E2E), each as an SLO of its own."""
    alone = SloSpec(attainment=slo.attainment)
    return {
        name: replace(alone, **{field: getattr(slo, field)})
        for name, field in SLO_FIELDS.items()
        if getattr(slo, field) is not None
    }


def judge(
    records: FloatArray,
    slo: SloSpec,
    *,
    drift_limit: float,
    period_s: float | None = None,
    max_delay_s: float = MAX_DELAY_S,
) -> Verdict:
    """Judge a run by the records of all its requests, whose traffic may come again every `period_s`.

    `drift_limit`: growth that is let pass. At a rate R a growing share d of arrivals means that R (1 - d) are
    served, so a limit of the search's relative tolerance costs no more than that tolerance.
    """
    if not len(records):
        raise ConfigError("a run without requests says nothing about a rate; raise num_requests")
    good = meets(records, slo)
    attainment, attainment_error = mean_and_error(good.astype(np.float64))
    delays = ttft_parts_s(records)["queue"]
    delay_s = float(np.nanmedian(delays)) if not np.isnan(delays).all() else 0.0
    drift = Drift.of(records, period_s)

    by_slo = {name: float(meets(records, target).mean()) for name, target in each_target(slo).items()}
    reasons = {
        f"{_percent(attainment)} of requests are good": attainment < slo.attainment,
        f"half of the prompts wait longer than {delay_s:.3g} s": delay_s > max_delay_s,
        f"{_percent(drift.growth)} of arrivals pile up": drift.growth > drift_limit,
    }
    certain_failure = (
        attainment + _SIGMAS * attainment_error < slo.attainment
        or delay_s > 1.25 * max_delay_s
        or (drift.growth - _SIGMAS * drift.walk_error > drift_limit and drift.filled >= 1)
    )
    certain_pass = (
        attainment - _SIGMAS * attainment_error >= slo.attainment
        and delay_s <= 0.8 * max_delay_s
        and drift.growth + _SIGMAS * drift.error <= drift_limit
        and drift.filled >= 1
    )
    reason = next((sentence for sentence, holds in reasons.items() if holds), "")
    return Verdict(
        passed=not reason,
        reason=reason,
        sure=certain_failure or certain_pass,
        attainment=attainment,
        attainment_by_slo=by_slo,
        delay_s=delay_s,
        drift=drift.growth,
        filled=drift.filled,
        num_requests=len(records),
    )


def stalled(message: str, num_requests: int) -> Verdict:
    """Of a run whose requests could make no more progress."""
    return Verdict(
        passed=False,
        reason=message,
        sure=True,
        attainment=0.0,
        attainment_by_slo={},
        delay_s=inf,
        drift=1.0,
        filled=inf,
        num_requests=num_requests,
    )


def sustains(run: Callable[[int], Verdict], sampling: Sampling) -> Verdict:
    """The verdict of `run(num_requests)`, with as many requests as it takes to be sure or as are allowed.

    A quarter of the usual number goes first, to turn hopeless rates away: an overload that shows in a short
    run only gets worse in a longer one. A cluster that takes longer to fill than `max_requests` gets more.
    """
    num_requests = -(-sampling.num_requests // 4)
    while True:
        verdict = run(num_requests)
        if verdict.sure and (num_requests >= sampling.num_requests or not verdict.passed):
            return verdict
        is_filling = verdict.filled < 1
        limit = sampling.max_requests * (_FILLING_FACTOR if is_filling else 1)
        if num_requests >= limit:
            return verdict
        enough = round(1.1 * num_requests / verdict.filled) if is_filling else 0
        num_requests = min(max(2 * num_requests, enough, sampling.num_requests), limit)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
