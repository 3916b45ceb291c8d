"""Who is in the next step of an instance: queues, KV admission and preemption. Knows nothing of time."""

from collections import deque

from cluster.batch import Batch
from cluster.errors import InvariantError
from cluster.kv_memory import KvMemory
from cluster.request import Request, Status
from cluster.scheduling import BatchPolicy
from cluster.step import Chunk


class Scheduler:
    """Strict FCFS: a prompt that finds no room blocks those behind it.

    `policy` changes with the instance's role. `keeps_output` says whether sequences decode here, so that
    admission must think of their output too. `admitted` orders everybody who holds KV by admission, the
    newest last (used only when `preempts`).
    """

    __slots__ = (
        "admitted",
        "batches",
        "keeps_output",
        "max_batch",
        "memory",
        "num_preemptions",
        "policy",
        "preempts",
        "queued_tokens",
        "starved_steps",
        "waiting",
    )

    def __init__(
        self,
        policy: BatchPolicy,
        memory: KvMemory,
        batches: list[Batch],
        *,
        max_batch: int,
        preempts: bool,
        keeps_output: bool,
    ) -> None:
        self.policy = policy
        self.batches = batches
        self.memory = memory
        self.max_batch = max_batch
        self.preempts = preempts
        self.keeps_output = keeps_output
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

    def tokens_to_hold(self, request: Request) -> int:
        """KV tokens that admission asks for: what is to be computed, plus the output when it is reserved."""
        if self.keeps_output and not self.preempts:
            return request.prompt_tokens + request.output_tokens
        return request.target

    def has_room(self, request: Request) -> bool:
        """Whether the request's tokens fit, leaving each running sequence a block to grow into."""
        memory = self.memory
        if self.preempts:
            headroom = len(self.admitted) * memory.block_size
            return memory.used + memory.round_up(request.target) + headroom <= memory.capacity or not memory.used
        return memory.used + self.tokens_to_hold(request) <= memory.capacity

    def admit(self, request: Request) -> None:
        self.memory.reserve(request.request_id, self.tokens_to_hold(request))
        if self.preempts and self.keeps_output:
            self.admitted[request.request_id] = request

    def seat_ready(self, batch: Batch, now: float) -> None:
        """Let sequences whose KV is here join while there are seats."""
        ready = batch.ready
        while ready and batch.size + len(batch.prefilling) < self.max_batch:
            request = ready.popleft()
            request.enter(Status.DECODE, now)
            batch.join(request)

    def choose_chunks(self, batch: Batch, now: float) -> list[Chunk]:
        """Prompt tokens for the next step: started prompts first, then new ones in order of arrival."""
        policy = self.policy
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
            if not self.has_room(request):
                break
            waiting.popleft()
            self.queued_tokens -= request.target
            self.admit(request)
            request.enter(Status.PREFILL, now)
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
        policy = self.policy
        if not self.waiting or not policy.admits_while_decoding:
            return False
        left = policy.token_budget - (batch.size if policy.mixes else 0)
        return self.has_room(self.waiting[0]) if left > 0 else not batch.starving

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
            request.enter(Status.PREEMPTED, now)
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

    def release(self, request: Request, stored: int | None = None) -> None:
        """Free the request's KV; `stored` is its size now if it may have grown past what admission set aside."""
        self.memory.release(request.request_id, stored if self.preempts else None)
        self.admitted.pop(request.request_id, None)

    def check(self) -> None:
        """Integrity check for an idle instance: the books agree."""
        queued = sum(request.target for request in self.waiting)
        if queued != self.queued_tokens:
            raise InvariantError(f"{self.queued_tokens} prompt tokens counted as queued, {queued} are")
