"""How a run went over time: roles, role changes and load samples, as both drivers record them."""

from array import array
from dataclasses import replace
from math import nan

from cluster.instance import Instance
from cluster.role import Phase, Role
from metrics.records import FloatArray, as_rows
from metrics.run import SAMPLE_FIELDS, RoleChange, RoleSpan


class History:
    """Told of every role event; asked for the spans, changes and samples at the end."""

    def __init__(self, instances: list[Instance], now: float = 0.0) -> None:
        self._instances = instances
        self.spans: list[RoleSpan] = []
        self.changes: list[RoleChange] = []
        self._open: dict[int, tuple[Role, Phase, float]] = {
            instance.index: (instance.role, instance.state.phase, now) for instance in instances
        }
        self._pending: dict[int, RoleChange] = {}
        self._samples = [array("d") for _ in instances]

    def change_begins(self, instance: Instance, new_role: Role, reason: str, now: float) -> None:
        """Call before the instance starts to drain."""
        self._pending[instance.index] = RoleChange(instance.index, instance.role, new_role, reason, now, nan, nan)
        self._switch_span(instance.index, instance.role, Phase.DRAINING, now)

    def change_commits(self, instance: Instance, now: float) -> None:
        self._pending[instance.index] = replace(self._pending[instance.index], drained_s=now)
        self._note(instance, now)

    def change_serves(self, instance: Instance, now: float) -> None:
        """The instance serves: in its new role, or in its old one after a rollback (then the times stay nan)."""
        change = self._pending.pop(instance.index)
        self.changes.append(change if instance.role != change.new_role else replace(change, served_s=now))
        self._note(instance, now)

    def _note(self, instance: Instance, now: float) -> None:
        self._switch_span(instance.index, instance.role, instance.state.phase, now)

    def _switch_span(self, index: int, role: Role, phase: Phase, now: float) -> None:
        old_role, old_phase, since = self._open[index]
        if now > since:
            self.spans.append(RoleSpan(index, old_role, old_phase, since, now))
        self._open[index] = (role, phase, now)

    def sample(self, now: float) -> None:
        for instance, values in zip(self._instances, self._samples, strict=True):
            scheduler = instance.scheduler
            decoding = 0
            for batch in instance.batches:
                decoding += batch.size
            values.extend(
                (
                    now,
                    scheduler.queued_tokens,
                    len(scheduler.waiting),
                    decoding,
                    instance.memory.used,
                    instance.num_outgoing,
                )
            )

    def samples(self) -> list[FloatArray]:
        return [as_rows(values, len(SAMPLE_FIELDS)) for values in self._samples]

    def end(self, now: float) -> None:
        """Close what is open; changes still under way keep nan for what they did not reach."""
        for instance in self._instances:
            self._note(instance, now)
        self.changes.extend(self._pending.values())
        self._pending.clear()
        self.changes.sort(key=lambda change: change.decided_s)
        self.spans.sort(key=lambda span: (span.instance, span.start_s))
