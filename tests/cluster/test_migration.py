"""A decoding request stops at an iteration boundary and goes on elsewhere, like one that was prefilled here."""

import pytest

from cluster.request import Status
from cluster.role import Role
from tests.cluster.bench import Bench


def test_it_leaves_at_the_next_iteration_boundary():
    bench = Bench(Role.DECODE)
    one, other = bench.offer(0.0, 10, 6), bench.offer(0.0, 20, 6)
    bench.at(1.5, lambda runner, now: runner.eject(one, now))
    bench.run()
    assert bench.events == [(2.0, "Ejected", one.request_id), (6.0, "Finished", other.request_id)]
    assert (one.status, one.generated, one.last_token_s) == (Status.HANDOFF, 3, 2.0)
    assert one.target == 12, "the prompt and all tokens but the newest have KV"
    assert bench.instance.memory.held == {one.request_id: 16}


def test_it_goes_on_after_its_tokens_and_frees_both_sides():
    source, target = Bench(Role.DECODE), Bench(Role.DECODE)
    request = source.offer(0.0, 10, 6)
    source.at(1.5, lambda runner, now: runner.eject(request, now))
    source.run()
    source.runner.release(request, 2.5)
    target.hand_in(2.5, request)
    target.run()
    assert target.events == [(5.5, "Finished", request.request_id)]
    assert request.generated == 6
    assert target.instance.extra_gaps == [1.5], "from its token at 2.0 to the next at 3.5"
    assert (source.instance.memory.used, target.instance.memory.used) == (0, 0)


def test_who_has_finished_or_prefills_is_left_alone():
    bench = Bench(Role.MIXED)
    prompt = bench.submit(0.0, 50, 3)
    bench.at(0.5, lambda runner, now: runner.eject(prompt, now))
    bench.at(9.0, lambda runner, now: runner.eject(prompt, now))
    bench.run()
    assert [event for _, event, _ in bench.events] == ["FirstToken", "Finished"]


def test_who_finishes_in_the_running_step_does_not_leave():
    bench = Bench(Role.DECODE)
    request = bench.offer(0.0, 10, 2)
    bench.at(0.5, lambda runner, now: runner.eject(request, now))
    bench.run()
    assert bench.events == [(1.0, "Finished", request.request_id)]


def test_an_instance_drains_by_ejecting():
    bench = Bench(Role.DECODE)
    request = bench.offer(0.0, 10, 60)
    bench.at(1.5, lambda runner, now: runner.begin_drain(Role.PREFILL, 0, now))
    bench.at(1.5, lambda runner, now: runner.eject(request, now))
    bench.at(3.0, lambda runner, now: runner.release(request, now))
    bench.run()
    assert bench.events[-2:] == [(3.0, "RoleCommitted", None), (3.0, "RoleServed", None)]


def test_what_it_has_grown_to_is_freed_when_it_is_pulled():
    """4 tokens at admission, 12 blocks of one token after 8 iterations; the neighbour then has all to itself."""
    bench = Bench(Role.DECODE, capacity=40, admission="preempt_recompute", block_size=1)
    one, _ = bench.offer(0.0, 4, 20), bench.offer(0.0, 4, 30)
    bench.at(7.5, lambda runner, now: runner.eject(one, now))
    bench.run(until=8.2)
    assert (one.target, bench.instance.memory.held[one.request_id]) == (12, 12)
    bench.at(9.0, lambda runner, now: runner.release(one, now))
    bench.run()
    assert bench.finished() == {1: 30.0}
    bench.instance.memory.check_empty()


@pytest.mark.parametrize("admission", ["reserve_output", "preempt_recompute"])
def test_who_was_to_leave_may_stay(admission):
    """Ejected at 2 s, taken back at 4 s: the two seconds are a gap, and nothing is lost or held twice."""
    bench = Bench(Role.DECODE, admission=admission)
    request = bench.offer(0.0, 10, 6)
    bench.at(1.5, lambda runner, now: runner.eject(request, now))
    bench.at(4.0, lambda runner, now: runner.take_back(request, now))
    bench.run()
    assert bench.finished() == {0: 7.0}
    assert bench.instance.extra_gaps == [3.0]
    assert not bench.instance.outgoing
    bench.instance.memory.check_empty()
