"""How long KV waits for somebody to pull it: those who want it renew its lease while they queue."""

from collections.abc import Callable, Iterable


class Leases:
    """Each lasts `length_s` seconds of the clock that `now` reads, from its grant or its last renewal."""

    def __init__(self, length_s: float, now: Callable[[], float]) -> None:
        self._length_s = length_s
        self._now = now
        self._until_s: dict[int, float] = {}

    def grant(self, request_id: int) -> None:
        self._until_s[request_id] = self._now() + self._length_s

    def renew(self, request_ids: Iterable[int]) -> None:
        """Extend leases; those that have ended stay ended."""
        for request_id in request_ids:
            if request_id in self._until_s:
                self.grant(request_id)

    def end(self, request_id: int) -> None:
        """Nobody waits any more; a second end is ignored."""
        self._until_s.pop(request_id, None)

    def expired(self) -> list[int]:
        now = self._now()
        return [request_id for request_id, until_s in self._until_s.items() if until_s < now]
