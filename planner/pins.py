"""Roles set by hand: they stand above the policy until they are released."""

from collections.abc import Mapping, Sequence

from cluster.errors import ConfigError
from cluster.load import LoadView
from cluster.role import Role
from planner.config import PlannerConfig
from planner.decision import How, RoleOrder
from planner.limits import least_of
from planner.moves import cheapest_to_move
from planner.observation import Observation

BY_HAND = "by_hand"
"""Cause of such orders."""


def orders_by_hand(observation: Observation, how: How) -> tuple[RoleOrder, ...]:
    """What it takes to give everybody the role set for it. Who is on its way elsewhere, or down, is waited for."""
    return tuple(
        RoleOrder(view.index, view.epoch, role, BY_HAND, "set by hand", how)
        for view in observation.instances
        for role in [observation.pins.get(view.index)]
        if role is not None and view.target is None and view.role is not role
    )


def pins_for(prefill: int, decode: int, views: Sequence[LoadView]) -> dict[int, Role]:
    """A role for everybody, so that there are so many of each; those with the least to finish change theirs.

    Raises ConfigError when the numbers are not those of the instances.
    """
    if prefill + decode != len(views):
        raise ConfigError(
            f"{prefill} prefill and {decode} decode instances are {prefill + decode}, and {len(views)} are alive; "
            f"make it {len(views)} in all"
        )
    pins = {view.index: heads_for(view) for view in views}
    for role, count in ((Role.PREFILL, prefill), (Role.DECODE, decode)):
        others = [view for view in views if pins[view.index] is not role]
        missing = count - sum(pin is role for pin in pins.values())
        for view in cheapest_to_move(others)[: max(0, missing)]:
            pins[view.index] = role
    return pins


def check_pins(pins: Mapping[int, Role], views: Sequence[LoadView], config: PlannerConfig) -> None:
    """Raises ConfigError when too few instances would be left in a role."""
    roles = [pins.get(view.index, heads_for(view)) for view in views]
    for role in (Role.PREFILL, Role.DECODE):
        least = least_of(role, config)
        if roles.count(role) < min(least, sum(heads_for(view) is role for view in views)):
            raise ConfigError(
                f"that would leave {roles.count(role)} {role} instances, and planner.min_{role} is {least}; "
                "leave one more in its role"
            )


def heads_for(view: LoadView) -> Role:
    """The role an instance has, or will have when its change is over."""
    return view.role if view.target is None else view.target
