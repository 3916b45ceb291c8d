"""The `replan` policy: when demand has drifted from what the split was planned for, search for the best split anew.

After DistServe (OSDI 2024, section 4.3), which re-runs its placement algorithm when the workload shifts. The search is
handed in; instances then move to the split it found.
"""

from dataclasses import dataclass, replace
from math import inf

from cluster.role import Role
from planner.decision import Decision, How
from planner.demand import Demand, steady_part
from planner.history import Load
from planner.moves import towards
from planner.observation import Observation
from planner.tools import Tools


@dataclass(frozen=True, slots=True)
class ReplanMemory:
    planned_for: Load | None = None
    """None until the first search: nobody said what the split at the start was planned for."""
    searched_s: float = -inf
    wants: tuple[int, int] | None = None
    reason: str = ""


def replan_policy(observation: Observation, tools: Tools, memory: ReplanMemory) -> tuple[Decision, ReplanMemory]:
    """One tick. Pure, as the search it is handed is."""
    config, settings = tools.config, tools.config.replan
    split = len(observation.serving(Role.PREFILL)), len(observation.serving(Role.DECODE))
    if observation.changing():
        return Decision((), "a role change is under way", *split), memory
    if memory.wants is not None and (memory.wants == split or sum(memory.wants) != sum(split)):
        memory = replace(memory, wants=None)
    demand = steady_part(observation.demand, observation.now_s)
    load, why = _drifted(demand, tools, memory.planned_for)
    if load is not None and observation.now_s - memory.searched_s >= settings.min_interval_s:
        assert tools.replan is not None, "the driver hands a search to a planner that plans anew"
        found = tools.replan(demand, sum(split))
        reason = f"{why}; {found[0]}P{found[1]}D is best for that"
        memory = ReplanMemory(load, observation.now_s, None if found == split else found, reason)
    if memory.wants is None:
        return Decision((), why, *split), memory
    cause = "prefill_plan" if memory.wants[0] > split[0] else "decode_plan"
    orders = towards(memory.wants, observation, config.max_changes_per_tick, cause, memory.reason, How(config.how))
    return Decision(orders, memory.reason, *memory.wants), memory


def _drifted(demand: Demand, tools: Tools, planned_for: Load | None) -> tuple[Load | None, str]:
    """What demand is when it calls for a search, None when not, and why."""
    settings = tools.config.replan
    if len(demand.arrived) < settings.min_requests:
        return None, f"{len(demand.arrived)} requests in {demand.window_s:g} s are too few to judge"
    load = Load(demand.request_rate, demand.prompt_tokens, demand.output_tokens)
    what = f"{load.request_rate:.1f} req/s of {load.prompt_tokens:,.0f} + {load.output_tokens:,.0f} tokens"
    if planned_for is None:
        return load, f"the first look at demand: {what}"
    drift = max(_change(then, now) for then, now in zip(planned_for, load, strict=True))
    if drift > settings.drift:
        return load, f"demand has drifted by {drift:.0%} to {what}"
    return None, f"{what}: within {settings.drift:.0%} of what the split was planned for"


def _change(then: float, now: float) -> float:
    """Growth of the larger over the smaller, as a share: doubling and halving are both 1."""
    return max(now, then) / min(now, then) - 1.0 if now and then else (0.0 if now == then else inf)
