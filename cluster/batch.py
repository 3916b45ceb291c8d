"""A batch of sequences that decode together, kept as aggregates.

Joining and leaving cost O(log B), an iteration O(1): the batch knows how many sequences it has, the sum
of their contexts and, in a heap, the iteration at which each ends. Nothing here walks the batch per token.
"""

from collections import deque
from heapq import heapify, heappop, heappush

from cluster.request import Request


class Batch:
    """The sequences of one micro-batch: an instance has one, a pipeline one for each stage.

    `prefilling` are started prompts in order of admission; `ready` have their KV here and join when a seat
    is free. `running` says whether a step of this batch is in flight. `iteration` counts decode iterations done. `context` is the sum over sequences of prompt plus generated
    tokens: the KV each reads (and, for its newest token, writes) in the next iteration.
    `newcomers` joined since the last iteration. `last_token_s` is when that iteration ended.
    """

    __slots__ = (
        "_ends",
        "_ticket",
        "block_need",
        "block_size",
        "context",
        "iteration",
        "last_token_s",
        "members",
        "newcomers",
        "prefilling",
        "ready",
        "running",
        "size",
        "starving",
    )

    def __init__(self, *, block_size: int = 1) -> None:
        self.running = False
        self.starving = False
        """Its decodes use up the token budget while a prompt has a seat."""
        self.prefilling: list[Request] = []
        self.ready: deque[Request] = deque()
        self.size = 0
        self.context = 0
        self.iteration = 0
        self.last_token_s = 0.0
        self.newcomers: list[Request] = []
        self.members: dict[int, Request] = {}
        self.block_size = block_size
        self.block_need = [0] * block_size
        """block_need[i % block_size] sequences start a new KV block in iteration i."""
        self._ends: list[tuple[int, int, Request]] = []
        self._ticket = 0

    def join(self, request: Request) -> None:
        """Add a sequence whose KV but that of its newest token is in place."""
        self._ticket += 1
        request.seat = self._ticket
        request.join_iteration = self.iteration
        heappush(self._ends, (self.iteration + request.output_tokens - request.generated, self._ticket, request))
        self.size += 1
        self.context += request.prompt_tokens + request.generated
        self.newcomers.append(request)
        self.members[request.request_id] = request
        if self.block_size > 1:
            self.block_need[self._block_phase(request)] += 1

    def iterations_left(self) -> int:
        """Iterations until the first sequence ends. The batch must not be empty."""
        ends, members = self._ends, self.members
        # Who was taken out early may be back with another ticket, or sit in another batch with the same one.
        while ends[0][1] != ends[0][2].seat or ends[0][2].request_id not in members:
            heappop(ends)
        return ends[0][0] - self.iteration

    def advance(self, iterations: int) -> list[Request]:
        """Run `iterations`, none past the first end, and take out the sequences that ended."""
        self.iteration = iteration = self.iteration + iterations
        self.context += iterations * self.size
        ends = self._ends
        ended: list[Request] = []
        while ends and ends[0][0] <= iteration:
            _, ticket, request = heappop(ends)
            if ticket == request.seat and request.request_id in self.members:
                self._leave(request)
                ended.append(request)
        return ended

    def holds(self, request: Request) -> bool:
        return request.request_id in self.members or request in self.ready or request in self.prefilling

    def remove(self, request: Request) -> None:
        """Take a sequence out before its end; its heap entry is skipped when it surfaces."""
        self._leave(request)
        if request in self.newcomers:
            self.newcomers.remove(request)
        else:
            request.last_token_s = self.last_token_s
        if len(self._ends) > 2 * self.size + 64:
            self._ends = [entry for entry in self._ends if entry[1] == entry[2].seat]
            heapify(self._ends)

    def _leave(self, request: Request) -> None:
        if self.block_size > 1:
            self.block_need[self._block_phase(request)] -= 1
        request.generated += self.iteration - request.join_iteration
        request.seat = 0
        self.size -= 1
        self.context -= request.prompt_tokens + request.generated
        del self.members[request.request_id]

    def _block_phase(self, request: Request) -> int:
        # Before its first iteration here a sequence stores prompt + generated - 1 tokens, so it opens a
        # block whenever prompt + generated - 1 + (i - join) is a multiple of the block size.
        stored = request.prompt_tokens + request.generated - 1
        return (request.join_iteration - stored) % self.block_size

    def blocks_for(self, iterations: int) -> int:
        """Blocks that the next `iterations` open."""
        size = self.block_size
        rounds, rest = divmod(iterations, size)
        start = self.iteration
        return rounds * self.size + sum(self.block_need[(start + i) % size] for i in range(rest))

    def iterations_within(self, blocks: int) -> int:
        """How many iterations `blocks` free blocks are enough for."""
        if not self.size:
            return 0
        size = self.block_size
        if size == 1:  # every sequence opens a block in every iteration, and `block_need` is not kept
            return blocks // self.size
        rounds, blocks = divmod(blocks, self.size)
        iterations = rounds * size
        start = self.iteration
        for i in range(size):
            blocks -= self.block_need[(start + i) % size]
            if blocks < 0:
                break
            iterations += 1
        return iterations
