"""What an instance reports: immutable, one type per fact."""

from typing import NamedTuple

from cluster.handoff import Handoff
from cluster.request import Request


class FirstToken(NamedTuple):
    """A mixed instance delivered a first token; the request decodes on here."""

    request: Request


class PrefillStarted(NamedTuple):
    """A prefill instance began the step that will complete this prompt (told only when KV is pushed)."""

    request: Request
    end_s: float
    """When that step ends."""


class PrefillDone(NamedTuple):
    """A prefill instance delivered a token; the KV waits here for a decode instance."""

    request: Request


class Ejected(NamedTuple):
    """A decoding request has left the batch, to decode on elsewhere; its KV waits here to be pulled."""

    request: Request


class Finished(NamedTuple):
    """The last token is out and the KV of this instance is free."""

    request: Request


class Aborted(NamedTuple):
    """A cancelled request has left the step it was in, and its KV is free."""

    request: Request


class RoomReserved(NamedTuple):
    """A handoff that had to wait now has room at decode; its transfer may start."""

    handoff: Handoff


class RoleCommitted(NamedTuple):
    """The instance is drained and has taken its new role and epoch."""


class RoleServed(NamedTuple):
    """The instance serves (again), in the role it has now."""


Event = (
    FirstToken | PrefillStarted | PrefillDone | Ejected | Finished | Aborted | RoomReserved | RoleCommitted | RoleServed
)
