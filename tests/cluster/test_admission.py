"""KV memory as a limit: what waits, what is preempted, and that nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.cost import Roofline
from cluster.request import Status
from cluster.role import Role
from tests.cluster.bench import Bench
from tests.reference.cases import H100, LLAMA_8B


def test_reserve_output_sets_prompt_and_output_aside():
    """The second needs 31 of the 30 tokens left, so it waits for the first to end; the third may not overtake it."""
    bench = Bench(capacity=60, policy="mixed_batch")
    bench.submit(0.0, 20, 10)
    bench.submit(0.5, 21, 10)
    bench.submit(0.5, 5, 2)
    bench.run(until=5.0)
    assert bench.instance.memory.held == {0: 30}
    bench.run()
    assert bench.finished() == {0: 10.0, 1: 20.0, 2: 12.0}
    assert all(one.num_preemptions == 0 for one in bench.requests)
    bench.instance.memory.check_empty()


def test_preempt_recompute_admits_on_the_prompt_and_preempts_the_newest():
    """Two of 4 + 9 tokens on three blocks of 4.

    First tokens are out at 1 and 2. Each sequence starts its second block at once (headroom for the one that runs is
    kept), and the older wants its third at the iteration that stores its 9th token.
    """
    bench = Bench(capacity=16, policy="prefill_first", admission="preempt_recompute", block_size=4)
    older = bench.submit(0.0, 4, 9)
    newer = bench.submit(0.5, 4, 9)
    bench.run(until=6.5)
    assert (older.num_preemptions, newer.num_preemptions) == (0, 1)
    assert newer.status is Status.PREEMPTED
    # 4 + 5 tokens are to be computed again before it goes on.
    assert newer.target == 9
    assert bench.instance.memory.used == 12
    bench.run()
    assert bench.steps == [(0, 1, 0, 4), (1, 2, 0, 4), (2, 6, 2, 0), (6, 10, 1, 0), (10, 11, 0, 9), (11, 14, 1, 0)]
    assert bench.finished() == {0: 10.0, 1: 14.0}
    assert bench.instance.scheduler.num_preemptions == 1
    bench.instance.memory.check_empty()


def test_a_started_prompt_leaves_each_running_sequence_a_block_to_grow_into():
    bench = Bench(capacity=16, policy="prefill_first", admission="preempt_recompute", block_size=4)
    bench.submit(0.0, 4, 3)
    bench.submit(0.5, 9, 1)
    bench.run()
    # 4 + 12 tokens would fit, but not the block that the first is about to open.
    assert bench.requests[1].times[Status.PREFILL] == 3.0


def test_kv_waits_in_prefill_memory_and_bounds_admission_there():
    bench = Bench(Role.PREFILL, capacity=100)
    first = bench.submit(0.0, 60, 5)
    bench.submit(0.0, 50, 5)
    bench.run(until=9.0)
    assert bench.reported("PrefillDone") == [(1.0, 0)]
    assert (bench.instance.memory.held, len(bench.instance.outgoing)) == ({0: 60}, 1)
    bench.at(9.5, lambda runner, now: runner.release(first, now))
    bench.run()
    assert bench.reported("PrefillDone") == [(1.0, 0), (10.5, 1)]


def test_decode_reserves_before_the_transfer_and_first_come_first_served():
    bench = Bench(Role.DECODE, capacity=60)
    for now, prompt, output in ((0.0, 20, 10), (1.0, 30, 10), (1.0, 5, 2)):
        bench.offer(now, prompt, output, transfer_s=2.0)
    bench.run(until=1.5)
    assert bench.instance.memory.held == {0: 30}
    assert bench.instance.load(1.5).num_offers == 2
    bench.run()
    # The first joins at 2 and has 9 tokens to go; then there is room for both others, whose KV takes 2 s more.
    # The second starts to decode the moment it comes, and the third joins it an iteration later.
    assert bench.reported("RoomReserved") == [(11.0, 1), (11.0, 2)]
    assert bench.finished() == {0: 11.0, 1: 22.0, 2: 15.0}


def test_room_that_a_pulled_prompt_leaves_goes_to_a_handoff_in_line():
    """A mixed instance holds KV that waits to be pulled, and no step of its own will end."""
    bench = Bench(Role.MIXED, capacity=60)
    leaving = bench.submit(0.0, 50, 5, hands_over=True)
    bench.offer(2.0, 10, 5)
    bench.at(7.0, lambda runner, now: runner.release(leaving, now))
    bench.run()
    assert bench.reported("RoomReserved") == [(7.0, 1)]
    assert bench.finished() == {1: 11.0}


def test_room_that_an_abort_leaves_is_counted_after_growth():
    """At 9.5 s the first has grown from 4 to 16 tokens: with the second gone there is no room for 16 and a spare block."""
    bench = Bench(Role.DECODE, capacity=32, admission="preempt_recompute", block_size=4)
    bench.offer(0.0, 4, 28)
    second = bench.offer(0.0, 16, 9, transfer_s=20.0)
    bench.offer(1.0, 16, 9)
    bench.at(9.5, lambda runner, now: runner.abort(second, now))
    bench.run()
    assert bench.reported("RoomReserved") == [(27.0, 2)]
    assert bench.finished() == {0: 27.0, 2: 35.0}


def test_who_was_preempted_goes_before_handoffs_in_line():
    """At 13 s there is room for the third, but not for the second, which lost its KV at 12 s."""
    bench = Bench(Role.DECODE, capacity=32, admission="preempt_recompute", block_size=4)
    first = bench.offer(0.0, 4, 20)
    second = bench.offer(0.0, 4, 20)
    third = bench.offer(13.0, 4, 2)
    bench.run(until=12.5)
    assert (first.status, second.status, second.target) == (Status.DECODE, Status.PREEMPTED, 16)
    bench.run()
    assert bench.steps[2:4] == [(12, 19, 1, 0), (19, 20, 0, 16)]
    assert third.times[Status.TRANSFER] == 20.0
    assert bench.finished() == {0: 19.0, 1: 27.0, 2: 22.0}


def test_a_seat_that_a_preemption_frees_is_taken_at_once():
    """The newer has the only seat when it is preempted for want of a block, and the older runs in its place."""
    bench = Bench(Role.DECODE, capacity=12, admission="preempt_recompute", block_size=4, max_batch=1)
    bench.offer(0.0, 4, 4, transfer_s=3.0)
    bench.offer(0.0, 4, 8)
    bench.run()
    assert bench.steps == [(0, 4, 1, 0), (4, 7, 1, 0), (7, 8, 0, 9), (8, 10, 1, 0)]
    assert bench.finished() == {0: 7.0, 1: 10.0}


@given(
    st.lists(st.tuples(st.floats(0.0, 0.2), st.integers(1, 100), st.integers(2, 60)), min_size=2, max_size=20),
    st.sampled_from(["prefill_first", "mixed_batch", "chunked_prefill", "decode_first"]),
    st.sampled_from(["reserve_output", "preempt_recompute"]),
)
def test_a_kv_shortage_delays_and_loses_none(work, policy, admission):
    def serve(capacity: int) -> Bench:
        bench = Bench(policy=policy, admission=admission, capacity=capacity, cost=Roofline(LLAMA_8B, H100))
        for row in work:
            bench.submit(*row)
        return bench.run()

    short, ample = serve(176), serve(100_000)
    for bench in (short, ample):
        assert [one.generated for one in bench.requests] == [output for *_, output in work]
        bench.instance.memory.check_empty()
        bench.instance.scheduler.check()
    assert ample.instance.scheduler.num_preemptions == 0
    assert max(short.finished().values()) >= max(ample.finished().values()) * (1 - 1e-12)


@pytest.mark.parametrize("role", [Role.MIXED, Role.DECODE])
def test_prefill_and_decode_tokens_make_the_output(role):
    """One token comes from prefill and the rest from decode, exactly."""
    bench = Bench(role)
    (bench.submit if role is Role.MIXED else bench.offer)(0.0, 10, 7)
    bench.run()
    decoded = sum(row.iterations * row.decodes for row in bench.instance.logs[0].rows())
    assert (bench.requests[0].generated, decoded) == (7, 6)
