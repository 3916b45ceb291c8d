"""How roles went over time: spans of one role and phase, and role changes, as both drivers tell them."""

from dataclasses import replace
from math import nan

from cluster.role import Phase, Role
from metrics.run import RoleChange, RoleSpan

DOWN = "down"
"""Phase of an instance that has died and is not back yet."""


class RoleHistory:
    """Told of every role event; asked for the spans and changes at the end. Instances go by their index."""

    def __init__(self, roles: list[Role], now: float = 0.0) -> None:
        self.spans: list[RoleSpan] = []
        self.changes: list[RoleChange] = []
        self._open: dict[int, tuple[Role, str, float]] = {
            index: (role, Phase.SERVING, now) for index, role in enumerate(roles)
        }
        self._pending: dict[int, RoleChange] = {}

    def role_of(self, index: int) -> Role:
        """The role it plays, or played when it went down."""
        return self._open[index][0]

    def is_changing(self, index: int) -> bool:
        return index in self._pending

    def change_begins(self, index: int, new_role: Role, reason: str, now: float) -> None:
        """An instance starts to drain."""
        role = self.role_of(index)
        self._pending[index] = RoleChange(index, role, new_role, reason, now, nan, nan)
        self._note(index, role, Phase.DRAINING, now)

    def change_refused(self, index: int, now: float) -> None:
        """It serves on: the order came too late."""
        change = self._pending.pop(index, None)
        if change is not None:
            self._note(index, Role(change.old_role), Phase.SERVING, now)

    def change_commits(self, index: int, role: Role, now: float) -> None:
        """It is drained, and becoming ready in its new role."""
        self._pending[index] = replace(self._pending[index], drained_s=now)
        self._note(index, role, Phase.SWITCHING, now)

    def serves(self, index: int, role: Role, now: float) -> None:
        """It serves: in its new role, or again in its old one after a rollback or a death (the times stay nan)."""
        change = self._pending.pop(index, None)
        if change is not None:
            self.changes.append(change if role != change.new_role else replace(change, served_s=now))
        self._note(index, role, Phase.SERVING, now)

    def dies(self, index: int, now: float) -> None:
        self._note(index, self.role_of(index), DOWN, now)

    def _note(self, index: int, role: Role, phase: str, now: float) -> None:
        old_role, old_phase, since = self._open[index]
        if now > since:
            self.spans.append(RoleSpan(index, old_role, old_phase, since, now))
        self._open[index] = (role, phase, max(now, since))

    def end(self, now: float) -> None:
        """Close what is open; changes still under way keep nan for what they did not reach."""
        for index, (role, phase, _) in self._open.items():
            self._note(index, role, phase, now)
        self.changes.extend(self._pending.values())
        self._pending.clear()
        self.changes.sort(key=lambda change: change.decided_s)
        self.spans.sort(key=lambda span: (span.instance, span.start_s))
