"""A batch kept as sums, against one that keeps a list of sequences and counts them token by token."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.batch import Batch
from cluster.request import Request


class NaiveSequence:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.generated = request.generated
        self.iterations = 0

    @property
    def stored(self) -> int:
        """KV tokens in memory before the next iteration: all but the newest token's."""
        return self.request.prompt_tokens + self.generated - 1


class BatchMachine(RuleBasedStateMachine):
    @initialize(block_size=st.integers(1, 7))
    def begin(self, block_size: int) -> None:
        self.batch = Batch(block_size=block_size)
        self.other = Batch(block_size=block_size)
        self.block_size = block_size
        self.sequences: list[NaiveSequence] = []
        self.outside: list[Request] = []
        self.elsewhere: list[Request] = []
        self.count = 0

    @rule(prompt=st.integers(1, 40), output=st.integers(2, 30))
    def join_new(self, prompt: int, output: int) -> None:
        request = Request(self.count, 0.0, prompt, output)
        self.count += 1
        request.generated = 1
        self._join(request)

    @precondition(lambda self: self.outside)
    @rule()
    def join_again(self) -> None:
        self._join(self.outside.pop())

    @precondition(lambda self: self.outside)
    @rule()
    def join_another_batch(self) -> None:
        """Its ticket there may be one that it once had here."""
        self.elsewhere.append(self.outside.pop())
        self.other.join(self.elsewhere[-1])

    @precondition(lambda self: self.elsewhere)
    @rule()
    def leave_the_other_batch(self) -> None:
        self.outside.append(self.elsewhere.pop())
        self.other.remove(self.outside[-1])

    def _join(self, request: Request) -> None:
        self.batch.join(request)
        self.sequences.append(NaiveSequence(request))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        naive = self.sequences.pop(data.draw(st.integers(0, len(self.sequences) - 1)))
        self.batch.remove(naive.request)
        assert naive.request.generated == naive.generated
        self.outside.append(naive.request)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def advance(self, data: st.DataObject) -> None:
        iterations = data.draw(st.integers(1, self.batch.iterations_left()))
        ended = self.batch.advance(iterations)
        self.batch.newcomers.clear()
        for naive in self.sequences:
            naive.generated += iterations
        expected = [one.request for one in self.sequences if one.generated == one.request.output_tokens]
        assert ended == expected
        assert all(request.generated == request.output_tokens for request in ended)
        self.sequences = [one for one in self.sequences if one.request not in expected]

    @invariant()
    def sums_agree(self) -> None:
        batch = self.batch
        assert batch.size == len(self.sequences) == len(batch.members)
        assert batch.context == sum(one.request.prompt_tokens + one.generated for one in self.sequences)
        assert all(batch.holds(one.request) for one in self.sequences)
        assert not any(batch.holds(request) for request in self.outside + self.elsewhere)
        if self.sequences:
            left = min(one.request.output_tokens - one.generated for one in self.sequences)
            assert batch.iterations_left() == left

    @invariant()
    def blocks_agree(self) -> None:
        opened = [self._blocks_opened(iterations) for iterations in range(3 * self.block_size)]
        assert [self.batch.blocks_for(iterations) for iterations in range(len(opened))] == opened
        if self.sequences:
            for blocks in range(opened[-1]):
                enough_for = max(iterations for iterations, needed in enumerate(opened) if needed <= blocks)
                assert self.batch.iterations_within(blocks) == enough_for

    def _blocks_opened(self, iterations: int) -> int:
        """Every iteration stores one token a sequence, in a new block when the last one is full."""
        return sum((one.stored + done) % self.block_size == 0 for one in self.sequences for done in range(iterations))


TestBatch = BatchMachine.TestCase
