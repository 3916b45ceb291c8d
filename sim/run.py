"""A scenario simulated with everything its planner may ask for."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from metrics.run import RunResult
from planner.tools import Tools
from scenario.build import planner_tools
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
    """See Simulator."""
    return Simulator(scenario, trace, too_long, watch=watch, tools=tools_of(scenario)).run()


def tools_of(scenario: Scenario) -> Tools:
    """What the planner's policies may use: rollouts for one that looks ahead, a search for one that plans anew."""
    return planner_tools(scenario, Rollout(scenario), SplitSearch(scenario))
