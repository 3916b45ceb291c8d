"""The handoff of one request's KV from prefill to decode: life cycle and epoch."""

from enum import IntEnum

from cluster.errors import InvariantError
from cluster.request import TRANSFER, Request


class HandoffState(IntEnum):
    OFFERED = 0
    """KV waits at the source; the target has no room yet."""
    RESERVED = 1
    """The target has set room aside."""
    MOVING = 2
    """Bytes are on the link; layer by layer they may leave before the prompt is complete."""
    DONE = 3
    FAILED = 4
    """Lost, corrupt, refused or cancelled; the request is retried or ends."""


OFFERED, RESERVED, MOVING, DONE, _FAILED = HandoffState
TRANSITIONS: dict[HandoffState, frozenset[HandoffState]] = {
    OFFERED: frozenset({RESERVED, _FAILED}),
    RESERVED: frozenset({MOVING, _FAILED}),
    MOVING: frozenset({DONE, _FAILED}),
    DONE: frozenset(),
    _FAILED: frozenset(),
}


class Handoff:
    """`epoch` is the target's when the router chose it: a target that has switched roles since refuses it.

    The source keeps the KV until the pull has ended.
    """

    __slots__ = ("epoch", "num_bytes", "request", "source", "state", "target")

    def __init__(self, request: Request, source: int, target: int, epoch: int, num_bytes: int) -> None:
        self.request = request
        self.source = source
        self.target = target
        self.epoch = epoch
        self.num_bytes = num_bytes
        self.state = OFFERED

    def enter(self, state: HandoffState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantError(
                f"handoff of request {self.request.request_id} cannot go from {self.state.name} to {state.name}"
            )
        self.state = state

    def begin(self, now: float) -> None:
        """The prompt is computed and room is reserved: from now on the request waits for its KV to arrive."""
        self.request.enter(TRANSFER, now)
        if self.state is not MOVING:
            self.enter(MOVING)
