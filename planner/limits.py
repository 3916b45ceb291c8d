"""Limits that hold whatever a policy says."""

from cluster.load import LoadView
from cluster.role import Role
from planner.config import PlannerConfig
from planner.decision import RoleOrder
from planner.observation import Observation


def least_of(role: Role, config: PlannerConfig) -> int:
    """Instances that must be left in a role."""
    return {Role.PREFILL: config.min_prefill, Role.DECODE: config.min_decode}.get(role, 0)


def within_limits(
    orders: tuple[RoleOrder, ...], observation: Observation, config: PlannerConfig
) -> tuple[RoleOrder, ...]:
    """The orders that keep every role at its minimum, and the changes per tick and at once at their maximum.

    They are judged in order, each with those before it carried out. A role that was set by hand, and one that was
    taken too lately, is not changed.
    """
    serving = {role: len(observation.serving(role)) for role in Role}
    views = {view.index: view for view in observation.instances}
    at_once = len(observation.instances) if config.max_changing is None else config.max_changing
    most = min(config.max_changes_per_tick, at_once - len(observation.changing()))
    kept: list[RoleOrder] = []
    for order in orders:
        view = views.get(order.instance)
        if view is None or view not in observation.serving(view.role) or view.role is order.role:
            continue
        if any(order.instance == other.instance for other in kept):
            continue
        if (
            len(kept) < most
            and serving[view.role] > least_of(view.role, config)
            and _may(order, view, observation, config)
        ):
            serving[view.role] -= 1
            kept.append(order)
    return tuple(kept)


def _may(order: RoleOrder, view: LoadView, observation: Observation, config: PlannerConfig) -> bool:
    by_hand = observation.pins.get(view.index)
    if by_hand is not None:
        return by_hand is order.role
    return not view.epoch or observation.now_s - view.serving_since_s >= config.min_stay_s
