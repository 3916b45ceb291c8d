"""What a planner answers: orders to change roles, each with its reason, and what it would like to have."""

from dataclasses import dataclass

from cluster.role import Role


@dataclass(frozen=True, slots=True)
class RoleOrder:
    """Move one instance to `role`. `epoch` is the instance's as observed: a changed instance refuses the order."""

    instance: int
    epoch: int
    role: Role
    cause: str
    """One stable word for the kind of reason, used as a metric label."""
    reason: str
    immediate: bool = False
    """Flip at once and finish old work on the side, instead of draining first."""


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` explains doing nothing, too. Targets are the serving counts the planner aims at."""

    orders: tuple[RoleOrder, ...]
    reason: str
    target_prefill: int
    target_decode: int
