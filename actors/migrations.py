"""Decoding requests that leave draining instances to go on elsewhere, as the router arranges it: a few of each at a time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from actors.tracking import Tracker
from cluster.request import Request
from cluster.router import Router


@dataclass(slots=True)
class Exodus:
    """`stuck` are requests that cannot leave, because they do not decode at the moment."""

    under_way: int = 0
    stuck: set[int] = field(default_factory=set)


class Migrations:
    """`has_room(request, instance)` says whether KV can be taken in now; `at_once` bounds each instance's leavers.

    A request is booked at its target from the moment it is chosen, and no longer at its source.
    """

    def __init__(
        self, core: Router, tracker: Tracker, *, at_once: int, has_room: Callable[[Request, int], bool]
    ) -> None:
        self._core = core
        self._tracker = tracker
        self._at_once = at_once
        self._has_room = has_room
        self._exodus: dict[int, Exodus] = {}
        """By draining instance."""
        self._sources: dict[int, int] = {}
        """Where those come from who are chosen and have not arrived, by request."""

    def begin(self, source: int) -> None:
        """The requests of a draining instance may leave."""
        self._exodus[source] = Exodus()

    def end(self, source: int) -> None:
        """The instance has changed its role, or stays, or is dead; who is on the way arrives all the same."""
        self._exodus.pop(source, None)

    def choose(self, source: int) -> list[int]:
        """The next to leave, while somebody has room for them: to be ejected at the source."""
        exodus = self._exodus.get(source)
        if exodus is None:
            return []
        chosen: list[int] = []
        for tracked in self._tracker.decoding_at(source):
            request = tracked.request
            if exodus.under_way >= self._at_once:
                break
            if tracked.cancelled or request.request_id in self._sources or request.request_id in exodus.stuck:
                continue
            if self._core.route_migration(request, source, partial(self._has_room, request)) is None:
                break
            exodus.under_way += 1
            self._sources[request.request_id] = source
            chosen.append(request.request_id)
        return chosen

    def is_chosen(self, request_id: int) -> bool:
        return request_id in self._sources

    def over(self, request_id: int) -> int | None:
        """A request has arrived, or is lost on its way. Returns where it came from; None: it had not been chosen."""
        source = self._sources.pop(request_id, None)
        if source in self._exodus:
            self._exodus[source].under_way -= 1
        return source

    def undo(self, request: Request) -> int | None:
        """A request that was chosen has ended or stays where it is. Returns where that is; None: it was not chosen."""
        source = self.over(request.request_id)
        if source is not None:
            self._core.migration_undone(request, source)
        return source

    def stick(self, request: Request) -> None:
        """A request that was chosen cannot leave."""
        source = self.undo(request)
        if source in self._exodus:
            self._exodus[source].stuck.add(request.request_id)
