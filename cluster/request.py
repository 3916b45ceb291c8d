"""A request: its life cycle as a table, and a timeline with one write-once entry per state."""

from enum import IntEnum
from math import nan

from cluster.errors import InvariantError


class Status(IntEnum):
    """Where a request is. The values index `Request.times`."""

    ARRIVED = 0
    QUEUED = 1
    """At an instance, prompt not started."""
    PREFILL = 2
    """Some of the prompt is computed or in the running step."""
    HANDOFF = 3
    """First token out; KV waits in prefill memory for a decode instance with room."""
    TRANSFER = 4
    """Room reserved at decode; KV on its way."""
    READY = 5
    """KV at decode, waiting to join the batch."""
    DECODE = 6
    PREEMPTED = 7
    """Evicted; prompt and generated tokens will be recomputed."""
    FINISHED = 8
    REJECTED = 9
    """Never started: too long for the context or the KV pool."""
    ABORTED = 10
    """Cancelled by its client."""
    FAILED = 11
    """Given up after a fault, with a reason."""


ARRIVED, QUEUED, PREFILL, HANDOFF, TRANSFER, READY, DECODE, PREEMPTED, FINISHED, REJECTED, ABORTED, FAILED = Status
"""By themselves: finding a member in its Enum costs Python 3.11 as much as a call, and every step finds some."""

ENDED = frozenset({FINISHED, REJECTED, ABORTED, FAILED})

# A request for no tokens finishes on arrival. A fault sends a request back to HANDOFF (its KV survives at prefill) or QUEUED (recompute).
TRANSITIONS: dict[Status, frozenset[Status]] = {
    ARRIVED: frozenset({QUEUED, FINISHED, REJECTED, ABORTED, FAILED}),
    QUEUED: frozenset({QUEUED, PREFILL, ABORTED, FAILED}),
    PREFILL: frozenset({HANDOFF, DECODE, FINISHED, PREEMPTED, QUEUED, ABORTED, FAILED}),
    HANDOFF: frozenset({TRANSFER, READY, QUEUED, ABORTED, FAILED}),
    TRANSFER: frozenset({READY, HANDOFF, QUEUED, ABORTED, FAILED}),
    READY: frozenset({DECODE, PREEMPTED, HANDOFF, QUEUED, ABORTED, FAILED}),
    DECODE: frozenset({FINISHED, PREEMPTED, HANDOFF, QUEUED, ABORTED, FAILED}),
    PREEMPTED: frozenset({PREFILL, QUEUED, ABORTED, FAILED}),
    FINISHED: frozenset(),
    REJECTED: frozenset(),
    ABORTED: frozenset(),
    FAILED: frozenset(),
}


class Request:
    """One prompt and the tokens it wants; owned by one instance at a time.

    Times are seconds from the start of the run. `times[status]` is when the request first entered that
    status (nan before); only a retry after a fault or a preemption enters a status twice, and the first
    entry is kept.
    """

    __slots__ = (
        "arrival_s",
        "computed",
        "decode_instance",
        "first_token_s",
        "generated",
        "hands_over",
        "join_iteration",
        "last_token_s",
        "num_preemptions",
        "output_tokens",
        "prefill_instance",
        "prompt_tokens",
        "request_id",
        "seat",
        "second_token_s",
        "status",
        "target",
        "text",
        "times",
    )

    def __init__(self, request_id: int, arrival_s: float, prompt_tokens: int, output_tokens: int) -> None:
        self.request_id = request_id
        self.arrival_s = arrival_s
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.status = ARRIVED
        self.times = [arrival_s, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan]
        self.target = prompt_tokens
        """Tokens to compute before the next token comes out: the prompt, plus generated tokens after a preemption."""
        self.computed = 0
        """Tokens of `target` computed so far."""
        self.generated = 0
        """Tokens delivered; while the request sits in a decode batch, as of when it joined."""
        self.first_token_s = nan
        self.second_token_s = nan
        self.last_token_s = nan
        """Last token before the request joined its decode batch."""
        self.join_iteration = 0
        self.seat = 0
        """Ticket of the request's place in a decode batch; 0 when it has none."""
        self.hands_over = False
        """Whether the KV leaves the instance that computes the prompt, to be decoded elsewhere."""
        self.prefill_instance = -1
        self.decode_instance = -1
        self.num_preemptions = 0
        self.text = b""
        """What it has generated, where a model really computes."""

    def enter(self, status: Status, now: float) -> None:
        """Move to `status` at `now`; raises InvariantError for a move the table does not allow."""
        if status not in TRANSITIONS[self.status]:
            raise InvariantError(f"request {self.request_id} cannot go from {self.status.name} to {status.name}")
        self.status = status
        times = self.times
        if times[status] != times[status]:
            times[status] = now

    def follow(self, newer: "Request") -> None:
        """Become what a later copy from elsewhere is, but for where this one is to decode."""
        for name in self.__slots__:
            if name != "decode_instance":
                setattr(self, name, getattr(newer, name))

    @property
    def max_tokens(self) -> int:
        """Prompt plus output: what `reserve_output` admission sets aside."""
        return self.prompt_tokens + self.output_tokens

    @property
    def finished_s(self) -> float:
        """When the request ended, however it ended; nan while it lives."""
        return self.times[self.status] if self.status in ENDED else nan

    def __repr__(self) -> str:
        return f"Request({self.request_id}, {self.status.name}, {self.prompt_tokens}+{self.output_tokens} tokens)"
