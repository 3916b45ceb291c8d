"""One scenario at any rate: simulated with the same requests, judged, and what stood in the way."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cluster.errors import ConfigError, StalledError
from metrics.run import RunResult
from scenario.build import request_limit_tokens, smallest_kv_capacity
from scenario.spec import Scenario
from sim.simulator import Simulator
from sim.sustain import Sampling, Verdict, judge, stalled, sustains
from sim.traffic import Traffic
from sim.usage import Usage
from workload.load import fit_lengths
from workload.trace import Trace

_NUM_SAMPLES = 50


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict, and what the run made of the cluster; `usage` is None for a run that stalled."""

    verdict: Verdict
    usage: Usage | None

    @property
    def passed(self) -> bool:
        return self.verdict.passed

    @property
    def attainment(self) -> float:
        return self.verdict.attainment


class Probe:
    """`trim` changes the requests before they are simulated, for instance to their first tokens only.

    drift_limit: growth of the backlog that is let pass (see `sim.sustain.judge`).
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        sampling: Sampling | None = None,
        drift_limit: float = 0.02,
        trim: Callable[[Trace], Trace] | None = None,
    ) -> None:
        self.scenario = scenario
        self.sampling = sampling or Sampling()
        self.traffic = Traffic(scenario)
        self._drift_limit = drift_limit
        self._trim = trim
        self._limits = {"max_context": request_limit_tokens(scenario), "kv_capacity": smallest_kv_capacity(scenario)}

    def at(self, request_rate: float) -> Finding:
        """Whether the scenario sustains this rate."""
        usage: list[Usage | None] = []

        def judged(num_requests: int) -> Verdict:
            try:
                result = self.simulate(request_rate, num_requests)
            except StalledError as error:
                usage.append(None)
                return stalled(str(error), num_requests)
            usage.append(Usage.of(result, self.scenario.slo))
            return judge(
                result.records, self.scenario.slo, drift_limit=self._drift_limit, period_s=self.traffic.period_s
            )

        verdict = sustains(judged, self.sampling)
        return Finding(verdict, usage[-1])

    def simulate(self, request_rate: float, num_requests: int) -> RunResult:
        """One run; raises StalledError."""
        return self.run(*self.requests(request_rate, num_requests))

    def run(self, trace: Trace, too_long: npt.NDArray[np.bool_], *, is_static: bool = False) -> RunResult:
        """The scenario with these requests; `is_static` takes its planner away."""
        interval_s = max(trace.span_s / _NUM_SAMPLES, 1e-3)
        scenario = replace(self.scenario, sample_interval_s=interval_s)
        if is_static:
            scenario = replace(scenario, planner=replace(scenario.planner, policy="static"))
        return Simulator(scenario, trace, too_long).run()

    def requests(self, request_rate: float, num_requests: int) -> tuple[Trace, npt.NDArray[np.bool_]]:
        """What arrives, and which of it is too long to be served."""
        trace = self.traffic.trace(request_rate, num_requests)
        if self._trim is not None:
            trace = self._trim(trace)
        if not len(trace):
            raise ConfigError(f"no request arrives at {request_rate:g} req/s; raise num_requests")
        trace, too_long, _ = fit_lengths(trace, **self._limits, on_too_long=self.scenario.workload.on_too_long)
        return trace, too_long
