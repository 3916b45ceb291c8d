"""A scenario simulated with everything its planner may ask for."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from metrics.run import RunResult
from scenario.spec import Scenario
from sim.rollout import Rollout
from sim.simulator import Simulator
from sim.split_search import SplitSearch
from workload.trace import Trace


def simulate(
    scenario: Scenario,
    trace: Trace,
    too_long: npt.NDArray[np.bool_] | None = None,
    *,
    watch: Callable[[int], bool] | None = None,
) -> RunResult:
    """See Simulator; a planner that looks ahead gets its rollouts, one that plans anew its search."""
    rollout, replan = Rollout(scenario), SplitSearch(scenario)
    return Simulator(scenario, trace, too_long, watch=watch, rollout=rollout, replan=replan).run()
