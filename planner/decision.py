"""What a planner answers: orders to change roles, each with its reason, and what it would like to have."""

from dataclasses import dataclass
from enum import StrEnum

from cluster.role import Role


class How(StrEnum):
    """What becomes of the work that an instance has when it is to change its role."""

    DRAIN = "drain"
    """It finishes all of it, then changes."""
    MIGRATE = "migrate"
    """Prompts that wait and requests that decode go on elsewhere as far as there is room; it finishes the rest."""
    FLIP = "flip"
    """It changes at once, and finishes old work on the side."""


@dataclass(frozen=True, slots=True)
class RoleOrder:
    """Move one instance to `role`. `epoch` is the instance's as observed: a changed instance refuses the order."""

    instance: int
    epoch: int
    role: Role
    cause: str
    """One stable word for the kind of reason, used as a metric label."""
    reason: str
    how: How = How.DRAIN


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` explains doing nothing, too. Targets are the serving counts the planner aims at."""

    orders: tuple[RoleOrder, ...]
    reason: str
    target_prefill: int
    target_decode: int
