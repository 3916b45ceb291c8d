"""How a run went over time: roles, role changes and load samples, as both drivers record them."""

from array import array
from math import nan

import numpy as np

from cluster.instance import Instance
from cluster.role import Phase, Role
from metrics.records import FloatArray
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

    def change_begins(self, instance: Instance, reason: str, now: float) -> None:
        state = instance.state
        assert state.target is not None
        self._pending[instance.index] = RoleChange(instance.index, state.role, state.target, reason, now, nan, nan)
        self._note(instance, now)

    def change_commits(self, instance: Instance, now: float) -> None:
        change = self._pending[instance.index]
        self._pending[instance.index] = RoleChange(
            change.instance, change.old_role, change.new_role, change.reason, change.decided_s, now, nan
        )
        self._note(instance, now)

    def change_serves(self, instance: Instance, now: float) -> None:
        change = self._pending.pop(instance.index)
        self.changes.append(
            RoleChange(
                change.instance,
                change.old_role,
                change.new_role,
                change.reason,
                change.decided_s,
                change.drained_s,
                now,
            )
        )
        self._note(instance, now)

    def change_rolls_back(self, instance: Instance, now: float) -> None:
        """The change is kept, without the times it did not reach."""
        self.changes.append(self._pending.pop(instance.index))
        self._note(instance, now)

    def _note(self, instance: Instance, now: float) -> None:
        role, phase, since = self._open[instance.index]
        if now > since:
            self.spans.append(RoleSpan(instance.index, role, phase, since, now))
        self._open[instance.index] = (instance.role, instance.state.phase, now)

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
        return [np.array(values).reshape(-1, len(SAMPLE_FIELDS)) for values in self._samples]

    def end(self, now: float) -> None:
        """Close what is open; changes still under way keep nan for what they did not reach."""
        for instance in self._instances:
            self._note(instance, now)
        self.changes.extend(self._pending.values())
        self._pending.clear()
        self.changes.sort(key=lambda change: change.decided_s)
        self.spans.sort(key=lambda span: (span.instance, span.start_s))
