"""Plans from what single instances carry: two pools, units that keep KV on their nodes, and colocated replicas."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil

from sim.placement.machine import Machine
from sim.placement.plan import Group, Plan, instances_for
from sim.placement.question import Question

COLOCATED, DISAGGREGATED, NEAR = "colocated", "disaggregated", "node units"

Found = Sequence[Group]
"""Options that carry something, with a count of 1."""


def plans_of(question: Question, found: Found) -> list[Plan]:
    """Every combination of options, each with the numbers that the question asks for; cheapest first."""
    by_role = {
        (role, is_near): [group for group in found if group.role == role and group.option.is_near == is_near]
        for role in ("prefill", "decode", "mixed")
        for is_near in (False, True)
    }
    prefill, decode = by_role["prefill", False], by_role["decode", False]
    near = [
        (p, d)
        for p in [*prefill, *by_role["prefill", True]]
        for d in by_role["decode", True]
        if (p.machine.gpu, p.machine.num_nodes) == (d.machine.gpu, d.machine.num_nodes)
    ]
    plans = [
        *(_two_pools(question, p, d) for p in prefill for d in decode),
        *(unit for p, d in near if (unit := _unit(question, p, d))),
        *(_replicas(question, group) for group in by_role["mixed", False]),
    ]
    return ranked(question, (plan for plan in plans if plan is not None))


def ranked(question: Question, plans: Iterable[Plan]) -> list[Plan]:
    """Cheapest first; for the highest rate, the highest first."""
    return sorted(plans, key=lambda plan: (rank_of(question, plan), plan.num_gpus, -plan.carries))


def rank_of(question: Question, plan: Plan) -> float:
    """What plans are compared by, less is better: cost, or for the highest rate how far it is from there."""
    return cost_of(question, plan) if question.request_rate is not None else -plan.carries


def cost_of(question: Question, plan: Plan) -> float:
    """What the objective counts, of the whole plan."""
    return plan.units * sum(group.count * question.cost(group.machine) for group in plan.groups)


def best_of(plans: Iterable[Plan], kind: str) -> Plan | None:
    """The first of a kind: colocated, or disaggregated in any design."""
    return next((plan for plan in plans if (plan.design == COLOCATED) == (kind == COLOCATED)), None)


def excess(question: Question, plan: Plan) -> str:
    """Which limit of the question the plan breaks, or why it cannot hold, in words; empty when neither."""
    if plan.failure:
        return plan.failure
    for pool in question.pools:
        needed = plan.gpus_of(pool.gpu.name)
        if needed > pool.count:
            return f"needs {needed} {pool.gpu.name}, and there are {pool.count}"
        nodes, num_nodes = (
            plan.nodes_of(pool.gpu.name, question.gpus_per_node),
            ceil(pool.count / question.gpus_per_node),
        )
        if nodes > num_nodes:
            return f"takes {nodes} nodes of {question.gpus_per_node} {pool.gpu.name}, and there are {num_nodes}"
    if question.max_usd_per_hour is not None and plan.usd_per_hour > question.max_usd_per_hour:
        return f"costs ${plan.usd_per_hour:.2f} an hour, and ${question.max_usd_per_hour:g} is allowed"
    if question.max_watts is not None and plan.watts > question.max_watts:
        return f"may draw {plan.watts:,.0f} W, and {question.max_watts:,.0f} W is allowed"
    return ""


def _two_pools(question: Question, prefill: Group, decode: Group) -> Plan | None:
    """DistServe's Algorithm 1: as many of each as the rate needs. Splitwise's designs where kinds of GPUs differ."""
    plan = Plan(_pools_name(question, prefill.machine, decode.machine), (prefill, decode))
    rate = question.sized_for
    if rate is not None:
        return plan.with_counts(
            {"prefill": instances_for(rate, prefill.goodput), "decode": instances_for(rate, decode.goodput)}
        )
    return max(_within_limits(question, plan), key=lambda one: (one.carries, -cost_of(question, one)), default=None)


def _within_limits(question: Question, plan: Plan) -> Iterator[Plan]:
    """For each number of prefill instances, as many decode instances as they can feed or the limits allow."""
    prefill, decode = plan.groups
    num_prefill = 1
    while True:
        one = plan.with_counts({"prefill": num_prefill, "decode": 1})
        if excess(question, one):
            return
        for num_decode in range(instances_for(num_prefill * prefill.goodput, decode.goodput), 0, -1):
            one = plan.with_counts({"prefill": num_prefill, "decode": num_decode})
            if not excess(question, one):
                yield one
                break
        num_prefill += 1


def _unit(question: Question, prefill: Group, decode: Group) -> Plan | None:
    """DistServe's Algorithm 2: prefill and decode of the same layers on one node, replicated as a whole.

    Of the numbers of instances that the nodes of a unit hold, those that serve the rate at the least cost.
    """
    size = question.gpus_per_node * prefill.machine.num_nodes
    plan = Plan(NEAR, (prefill, decode), is_unit=True)
    units = []
    for num_prefill in range(1, size // prefill.machine.num_gpus + 1):
        free = size - num_prefill * prefill.machine.num_gpus
        for num_decode in range(1, free // decode.machine.num_gpus + 1):
            unit = plan.with_counts({"prefill": num_prefill, "decode": num_decode})
            units.append(_replicated(question, unit))
    best = ranked(question, (unit for unit in units if unit is not None))
    return best[0] if best else None


def _replicas(question: Question, group: Group) -> Plan | None:
    plan = Plan(COLOCATED, (group,))
    if question.sized_for is not None:
        return plan.with_counts({"mixed": instances_for(question.sized_for, group.goodput)})
    count = _most_copies(question, plan)
    return plan.with_counts({"mixed": count}) if count else None


def _replicated(question: Question, unit: Plan) -> Plan | None:
    """As many copies of a unit as the rate needs, or as the limits allow; None when they allow none."""
    each = replace(unit, units=1).carries
    if question.sized_for is not None:
        return replace(unit, units=instances_for(question.sized_for, each))
    copies = _most_copies(question, replace(unit, units=1))
    return replace(unit, units=copies) if copies else None


def _most_copies(question: Question, plan: Plan) -> int:
    """Of a whole plan, within the limits."""
    copies = 0
    while not excess(question, replace(plan, units=copies + 1)):
        copies += 1
    return copies


def _pools_name(question: Question, prefill: Machine, decode: Machine) -> str:
    """Splitwise's name for two kinds of GPUs or a capped one (AA, HH, HA, HHcap), else what DistServe calls it."""
    if len(question.pools) == 1 and decode.power_cap == 1:
        return DISAGGREGATED
    letters = (prefill.gpu.name[0] + decode.gpu.name[0]).upper()
    return f"{DISAGGREGATED} {letters}{'cap' if decode.power_cap != 1 else ''}"
