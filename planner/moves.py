"""Which instance to move when a role gives one to another."""

from collections.abc import Sequence

from cluster.load import LoadView
from cluster.role import Role
from planner.decision import How, RoleOrder
from planner.observation import Observation


def cheapest_to_move(views: Sequence[LoadView]) -> list[LoadView]:
    """Those with the least to finish or to hand over first."""
    return sorted(views, key=lambda view: (view.kv_used_tokens + view.queued_tokens, view.index))


def move(
    views: Sequence[LoadView], count: int, role: Role, cause: str, reason: str, how: How = How.MIGRATE
) -> tuple[RoleOrder, ...]:
    """Orders that send the `count` cheapest of `views` to `role`."""
    chosen = cheapest_to_move(views)[:count]
    return tuple(RoleOrder(view.index, view.epoch, role, cause, reason, how) for view in chosen)


def towards(
    split: tuple[int, int], observation: Observation, at_most: int, cause: str, reason: str, how: How
) -> tuple[RoleOrder, ...]:
    """Orders for the first steps from the split that is to (prefill, decode) instances, with the cheapest to move."""
    missing = split[0] - len(observation.serving(Role.PREFILL))
    giver, role = (Role.DECODE, Role.PREFILL) if missing > 0 else (Role.PREFILL, Role.DECODE)
    return move(observation.movable(giver), min(abs(missing), at_most), role, cause, reason, how)
