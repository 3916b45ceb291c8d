"""What instances have done, as they tell it bit by bit: for the results of a run, whoever dies before its end."""

from collections.abc import Iterable
from itertools import zip_longest

import numpy as np

from actors.messages import Deeds, TransferTimes
from metrics.records import FloatArray
from metrics.samples import SAMPLE_FIELDS


class DeedsBook:
    """All deeds that were told, each counted once: what is whole takes the place of what came before it."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, int], list[Deeds]] = {}

    def add(self, news: Iterable[Deeds]) -> None:
        for deeds in news:
            told = self._told.setdefault((deeds.instance, deeds.incarnation), [])
            if deeds.whole:
                told.clear()
            told.append(deeds)

    def told(self, instance: int | None = None) -> list[Deeds]:
        """Of one instance or of all, an incarnation after the other."""
        keys = sorted(key for key in self._told if instance in (None, key[0]))
        return [deeds for key in keys for deeds in self._told[key]]

    def step_rows(self, instance: int) -> list[FloatArray]:
        """Per micro-batch."""
        logs = zip_longest(*(deeds.step_rows for deeds in self.told(instance)))
        return [np.concatenate([rows for rows in log if rows is not None]) for log in logs]

    def samples(self, instance: int) -> FloatArray:
        return np.concatenate([np.empty((0, len(SAMPLE_FIELDS))), *(deeds.samples for deeds in self.told(instance))])

    def transfers(self) -> list[TransferTimes]:
        return [times for deeds in self.told() for times in deeds.transfers]

    def lateness_s(self) -> FloatArray:
        return np.concatenate([np.empty(0), *(deeds.lateness_s for deeds in self.told())])
