"""Roles, and the table of a role change: drain, commit under a new epoch, serve again."""

from enum import StrEnum

from cluster.errors import InvariantError


class Role(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class Phase(StrEnum):
    """Where an instance stands in a role change."""

    SERVING = "serving"
    DRAINING = "draining"
    """No new work; accepted work and owed handoffs are finished."""
    SWITCHING = "switching"
    """Committed to the new role; becoming ready takes the modelled switch time."""


PHASES: dict[Phase, frozenset[Phase]] = {
    Phase.SERVING: frozenset({Phase.DRAINING}),
    Phase.DRAINING: frozenset({Phase.SWITCHING, Phase.SERVING}),  # SERVING again is a rollback
    Phase.SWITCHING: frozenset({Phase.SERVING}),
}


class RoleState:
    """Role, phase and epoch of one instance. The epoch counts committed role changes."""

    __slots__ = ("epoch", "phase", "role", "since_s", "target")

    def __init__(self, role: Role, now: float = 0.0, epoch: int = 0) -> None:
        self.role = role
        self.phase = Phase.SERVING
        self.epoch = epoch
        self.target: Role | None = None
        self.since_s = now

    def begin_drain(self, target: Role, now: float) -> None:
        if target is self.role:
            raise InvariantError(f"instance already has role {target}")
        self._enter(Phase.DRAINING, now)
        self.target = target

    def flip(self, target: Role, now: float) -> None:
        """Change the role at once, without draining; the epoch counts it like any other change."""
        if self.phase is not Phase.SERVING or target is self.role:
            raise InvariantError(f"a {self.phase} {self.role} instance cannot flip to {target}")
        self.role = target
        self.epoch += 1
        self.since_s = now

    def rollback(self, now: float) -> None:
        """Give up a drain and serve on in the old role."""
        self._enter(Phase.SERVING, now)
        self.target = None

    def commit(self, now: float) -> None:
        """Take the new role and epoch; messages of the old epoch are refused from here on."""
        if self.target is None:
            raise InvariantError("there is no role change to commit")
        self._enter(Phase.SWITCHING, now)
        self.role, self.target = self.target, None
        self.epoch += 1

    def serve(self, now: float) -> None:
        """The switch time is over."""
        self._enter(Phase.SERVING, now)

    def _enter(self, phase: Phase, now: float) -> None:
        if phase not in PHASES[self.phase]:
            raise InvariantError(f"a {self.phase} instance cannot become {phase}")
        self.phase = phase
        self.since_s = now
