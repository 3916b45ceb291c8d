"""Which plans to simulate next as wholes: those that may be better than what has held so far."""

from collections.abc import Callable, Sequence
from math import inf

from sim.placement.designs import COLOCATED, rank_of
from sim.placement.plan import Plan
from sim.placement.question import Question

_MARGIN = 0.05
"""How much better a plan may be than its instances make it look."""
_ENOUGH = 3
"""Plans of a kind that held, from which on that is no longer counted with."""
HOPELESS = 0.5
"""How much worse than the best a design may be and still be simulated."""
AT_A_TIME = 2
"""Plans of each kind that are simulated in a round."""


def leading_plans(question: Question, plans: Sequence[Plan]) -> list[Plan]:
    """What to simulate next: colocated and disaggregated plans that may be better than the best of theirs that
    held, and the first of a design of which none has, unless it is hopeless.
    """
    leading: dict[int, Plan] = {}
    for own in _split(plans, lambda plan: str(plan.design == COLOCATED)):
        ranks = [rank_of(question, plan) for plan in own if plan.check is not None]
        held = min(ranks, default=inf)
        reach = held if len(ranks) >= _ENOUGH else held + _MARGIN * abs(held)
        better = [plan for plan in own if plan.check is None and rank_of(question, plan) < reach]
        leading |= {id(plan): plan for plan in better[:AT_A_TIME]}
    least = min((rank_of(question, plan) for plan in plans), default=0.0)
    for own in _split(plans, lambda plan: plan.design):
        is_near = rank_of(question, own[0]) <= least + HOPELESS * abs(least)
        if is_near and all(plan.check is None for plan in own):
            leading[id(own[0])] = own[0]
    return list(leading.values())


def _split(plans: Sequence[Plan], key: Callable[[Plan], str]) -> list[list[Plan]]:
    """Plans with equal keys together, each group in order."""
    groups: dict[str, list[Plan]] = {}
    for plan in plans:
        groups.setdefault(key(plan), []).append(plan)
    return list(groups.values())


def distinct(plans: Sequence[Plan]) -> list[Plan]:
    """Without those that came down to the same; one that held stays."""
    kept: dict[tuple[str, str, str], Plan] = {}
    for plan in plans:
        key = (plan.design, plan.counts, plan.groups[0].option.batching)
        if key not in kept or kept[key].check is None:
            kept[key] = plan
    return list(kept.values())
