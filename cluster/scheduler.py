"""Who is in the next step of an instance: queues, KV admission and preemption. Knows nothing of time."""

from collections import deque

from cluster.batch import Batch
from cluster.errors import InvariantError
from cluster.kv_memory import KvMemory
from cluster.request import DECODE, PREEMPTED, PREFILL, Request
from cluster.scheduling import BatchPolicy
from cluster.step import Chunk


class Scheduler:
    """Strict FCFS: a prompt that finds no room blocks those behind it.

    `alone` is the policy of steps without decodes, `beside` that of steps whose batch decodes; both change with
    the instance's role. `admitted` orders everybody who decodes here, or will, by admission, the newest last
    (used only when `preempts`).
    """

    __slots__ = (
        "admitted",
        "alone",
        "batches",
        "beside",
        "max_batch",
        "memory",
        "num_preemptions",
        "preempts",
        "queued_tokens",
        "starved_steps",
        "waiting",
    )

    def __init__(
        self,
        memory: KvMemory,
        batches: list[Batch],
        *,
        alone: BatchPolicy,
        beside: BatchPolicy,
        max_batch: int,
        preempts: bool,
    ) -> None:
        self.alone = alone
        self.beside = beside
        self.batches = batches
        self.memory = memory
        self.max_batch = max_batch
        self.preempts = preempts
        self.waiting: deque[Request] = deque()
        self.queued_tokens = 0
        """Prompt tokens of waiting requests."""
        self.admitted: dict[int, Request] = {}
        self.num_preemptions = 0
        self.starved_steps = 0
        """Iterations whose decodes left no token of the budget to a prompt that had a seat."""

    def enqueue(self, request: Request) -> None:
        self.waiting.append(request)
        self.queued_tokens += request.target

    def withdraw(self, request: Request) -> None:
        """Take a waiting request out of line."""
        self.waiting.remove(request)
        self.queued_tokens -= request.target

    def has_room(self, request: Request, *, stays: bool) -> bool:
        """Whether the KV that admission sets aside fits.

        That is what is to be computed, and the output too when the request `stays` to decode here and output
        is reserved. Without reservation each sequence that decodes here keeps a block free to grow into.
        """
        memory = self.memory
        if not self.preempts:
            tokens = request.prompt_tokens + request.output_tokens if stays else request.target
            return memory.used + tokens <= memory.capacity
        headroom = len(self.admitted) * memory.block_size
        if stays and not memory.used:
            return True
        return memory.used + memory.round_up(request.target) + headroom <= memory.capacity

    def admit(self, request: Request, *, stays: bool) -> None:
        """Set its KV aside; see `has_room`."""
        if self.preempts:
            self.memory.reserve(request.request_id, request.target)
            if stays:
                self.admitted[request.request_id] = request
        else:
            tokens = request.prompt_tokens + request.output_tokens if stays else request.target
            self.memory.reserve(request.request_id, tokens)

    @property
    def owes_room(self) -> bool:
        """Whether somebody who was preempted here waits to come back: they go before any handoff."""
        return bool(self.waiting) and self.waiting[0].status is PREEMPTED

    def seat_ready(self, batch: Batch, now: float) -> None:
        """Let sequences whose KV is here join while there are seats."""
        ready = batch.ready
        while ready and batch.size + len(batch.prefilling) < self.max_batch:
            request = ready.popleft()
            request.enter(DECODE, now)
            batch.join(request)

    def choose_chunks(self, batch: Batch, now: float) -> list[Chunk]:
        """Prompt tokens for the next step: started prompts first, then new ones in order of arrival."""
        policy = self.beside if batch.size else self.alone
        if batch.size and not policy.admits_while_decoding:
            return []
        left = policy.token_budget - (batch.size if policy.mixes else 0)
        chunks: list[Chunk] = []
        for request in batch.prefilling:
            if left <= 0:
                break
            tokens = int(min(request.target - request.computed, left))
            left -= tokens
            chunks.append((request, tokens))
        waiting = self.waiting
        seats = self.max_batch - batch.size - len(batch.prefilling)
        while waiting and left > 0 and seats > 0:
            request = waiting[0]
            tokens = request.target
            if tokens > left:
                if policy.chunks:
                    tokens = int(left)
                elif chunks:
                    break
            stays = not request.hands_over
            if not self.has_room(request, stays=stays):
                break
            waiting.popleft()
            self.queued_tokens -= request.target
            self.admit(request, stays=stays)
            request.enter(PREFILL, now)
            batch.prefilling.append(request)
            chunks.append((request, tokens))
            left -= tokens
            seats -= 1
        batch.starving = not chunks and left <= 0 and (bool(batch.prefilling) or (bool(waiting) and seats > 0))
        return chunks

    def could_join(self, batch: Batch) -> bool:
        """Whether cutting this batch's decode run now would let anybody in, or begin to starve a prompt."""
        seats = self.max_batch - batch.size - len(batch.prefilling)
        if seats <= 0:
            return False
        if batch.ready:
            return True
        policy = self.beside
        if not self.waiting or not policy.admits_while_decoding:
            return False
        left = policy.token_budget - (batch.size if policy.mixes else 0)
        first = self.waiting[0]
        return self.has_room(first, stays=not first.hands_over) if left > 0 else not batch.starving

    def iterations_with_room(self, batch: Batch) -> int:
        """Iterations until running sequences fill the free blocks (under preempt_recompute)."""
        memory = self.memory
        return batch.iterations_within(memory.free // memory.block_size)

    def make_room(self, batch: Batch, now: float) -> list[Request]:
        """Preempt, newest first, until every sequence of `batch` has room for one more token.

        Sequences in a step in flight (another micro-batch) or on their way here cannot yield; when only
        such are left the batch still lacks room, and waits.
        """
        preempted: list[Request] = []
        while batch.size and not self.iterations_with_room(batch):
            for request in reversed(self.admitted.values()):
                owner = next((other for other in self.batches if other.holds(request)), None)
                if owner is not None and not owner.running:
                    break
            else:
                break
            self.evict(request, owner)
            request.num_preemptions += 1
            self.num_preemptions += 1
            request.enter(PREEMPTED, now)
            request.target = request.prompt_tokens + request.generated
            request.computed = 0
            self.waiting.appendleft(request)
            self.queued_tokens += request.target
            preempted.append(request)
        return preempted

    def evict(self, request: Request, batch: Batch) -> None:
        """Take a request out of a batch that is not in a running step, and free its KV."""
        if request.seat:
            batch.remove(request)
            self.release(request, stored=request.prompt_tokens + request.generated - 1)
        elif request in batch.ready:
            batch.ready.remove(request)
            self.release(request)
        else:
            batch.prefilling.remove(request)
            self.release(request)

    def stop_growth(self, request: Request) -> None:
        """Its `target` tokens of KV stay, to be released at the size they have reached, and nobody keeps a block free."""
        if self.preempts:
            self.memory.held[request.request_id] = self.memory.round_up(request.target)
            self.admitted.pop(request.request_id, None)

    def start_growth(self, request: Request) -> None:
        """The reverse of `stop_growth`: it decodes here again, as the newest."""
        if self.preempts:
            self.admitted[request.request_id] = request

    def release(self, request: Request, stored: int | None = None) -> None:
        """Free the request's KV; `stored` is its size now if it may have grown past what admission set aside."""
        self.memory.release(request.request_id, stored if self.preempts else None)
        self.admitted.pop(request.request_id, None)

    def check(self) -> None:
        """Integrity check for an idle instance: the books agree."""
        queued = sum(request.target for request in self.waiting)
        if queued != self.queued_tokens:
            raise InvariantError(f"{self.queued_tokens} prompt tokens counted as queued, {queued} are")
