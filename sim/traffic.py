"""The requests of a scenario at any rate: the same gaps, scaled, and the same lengths in the same order."""

from dataclasses import replace

import numpy as np

from cluster.errors import ConfigError
from scenario.spec import Scenario
from workload.load import load_workload
from workload.spec import Phase, WorkloadSpec
from workload.synthetic import generate, resample
from workload.trace import Trace


class Traffic:
    """A trace gives its lengths, drawn with replacement, and Poisson arrivals. One phase goes on for as long
    as it takes. Several phases, whose rates keep their proportions, are gone through again and again.

    Raises TraceError and ConfigError as `load_workload` does, and for a part cut out of phases.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._spec = spec = scenario.workload
        self._seed = scenario.seed
        if spec.trace is None and (spec.start_s is not None or spec.end_s is not None):
            raise ConfigError(
                "workload.start_s and end_s cut a part out of phases, which has no rate of its own; leave them out"
            )
        whole = replace(spec, num_requests=None, resample=None, max_total_tokens=None, request_rate=None)
        loaded = load_workload(whole, seed=self._seed)
        self._rows = None if spec.trace is None else loaded
        self.own_rate = spec.request_rate or (_mean_rate(spec.phases) if self._rows is None else loaded.request_rate)
        """Requests/s as the scenario has them; None for a trace whose requests all come at once."""
        self.period_s = sum(phase.duration_s for phase in spec.phases) if len(spec.phases) > 1 else None
        """After which several phases begin again."""

    def spec(self, request_rate: float, num_requests: int) -> WorkloadSpec:
        """The workload that gives just the requests of `trace` to whoever loads it."""
        if self._rows is not None:
            return replace(self._spec, resample=num_requests, num_requests=None, request_rate=request_rate)
        phases = _scaled(self._spec.phases, request_rate, num_requests)
        return replace(self._spec, phases=phases, num_requests=None, request_rate=None)

    def trace(self, request_rate: float, num_requests: int) -> Trace:
        """About `num_requests` requests: in whole rounds of the phases where there are several."""
        rng = np.random.default_rng(self._seed)
        if self._rows is None:
            return generate(_scaled(self._spec.phases, request_rate, num_requests), rng)
        limit = self._spec.max_total_tokens
        return resample(self._rows, num_requests, request_rate, rng, max_total_tokens=limit)


def at_rate(scenario: Scenario, request_rate: float, num_requests: int) -> Scenario:
    """The scenario with its workload at another rate."""
    return replace(scenario, workload=Traffic(scenario).spec(request_rate, num_requests))


def _mean_rate(phases: list[Phase]) -> float:
    expected = sum(phase.request_rate * phase.duration_s for phase in phases)
    return expected / sum(phase.duration_s for phase in phases)


def _scaled(phases: list[Phase], request_rate: float, num_requests: int) -> list[Phase]:
    duration_s = num_requests / request_rate
    if len(phases) == 1:
        return [replace(phases[0], request_rate=request_rate, duration_s=duration_s)]
    factor = request_rate / _mean_rate(phases)
    rounds = max(1, round(duration_s / sum(phase.duration_s for phase in phases)))
    return [replace(phase, request_rate=phase.request_rate * factor) for phase in phases] * rounds
