"""An instance changes its role: drain, commit under the next epoch, serve; or roll back."""

import pytest

from cluster.errors import InvariantError
from cluster.handoff import HandoffState
from cluster.role import Phase, Role
from tests.cluster.bench import Bench


def drain(bench: Bench, now: float, role: Role, epoch: int = 0) -> list:
    """Order a role change at `now`; gives what the instance answers, once it has."""
    answers: list = []
    bench.at(now, lambda runner, now: answers.append(runner.begin_drain(role, epoch, now)))
    return answers


def state_of(bench: Bench) -> tuple[Role, Phase, int]:
    state = bench.instance.state
    return state.role, state.phase, state.epoch


def test_a_prefill_instance_finishes_its_work_and_the_handoffs_it_owes():
    bench = Bench(Role.PREFILL, switch_time_s=0.5)
    first = bench.submit(0.0, 50, 5)
    second = bench.submit(0.0, 60, 5)
    answers = drain(bench, 0.5, Role.DECODE)
    bench.run(until=5.0)
    assert answers == [[]]
    assert bench.reported("PrefillDone") == [(1.0, 0), (2.0, 1)], "accepted work is finished"
    assert state_of(bench) == (Role.PREFILL, Phase.DRAINING, 0)
    bench.at(5.0, lambda runner, now: runner.release(second, now))
    bench.at(6.0, lambda runner, now: runner.release(first, now))
    bench.run(until=6.25)
    assert bench.reported("RoleCommitted") == [(6.0, None)]
    assert state_of(bench) == (Role.DECODE, Phase.SWITCHING, 1)
    bench.run()
    assert bench.reported("RoleServed") == [(6.5, None)]
    assert state_of(bench) == (Role.DECODE, Phase.SERVING, 1)

    bench.offer(7.0, 10, 3)
    bench.run()
    assert bench.finished() == {2: 9.0}


def test_a_decode_instance_turns_away_who_has_no_room_yet_and_finishes_the_rest():
    bench = Bench(Role.DECODE, capacity=60)
    bench.offer(0.0, 20, 10)
    bench.offer(0.5, 20, 10, transfer_s=3.0)
    third = bench.offer(0.5, 20, 10)
    answers = drain(bench, 1.5, Role.PREFILL)
    bench.run()
    [[turned_away]] = answers
    assert (turned_away.request, turned_away.state) == (third, HandoffState.OFFERED)
    assert bench.finished() == {0: 9.0, 1: 13.0}
    assert bench.reported("RoleCommitted") == bench.reported("RoleServed") == [(13.0, None)]
    bench.submit(20.0, 10, 5)
    bench.run()
    assert bench.reported("PrefillDone") == [(21.0, 3)]


def test_an_idle_instance_commits_at_once():
    bench = Bench(Role.MIXED, policy="decode_first")
    drain(bench, 1.0, Role.PREFILL)
    bench.run()
    assert bench.events == [(1.0, "RoleCommitted", None), (1.0, "RoleServed", None)]
    scheduler = bench.instance.scheduler
    assert (scheduler.alone.name, scheduler.beside.name) == ("prefill", "chunked_prefill")


@pytest.mark.parametrize(
    ("before", "epoch", "role"),
    [
        ("nothing", 1, Role.DECODE),  # an epoch that is not yet
        ("a change", 0, Role.MIXED),  # one that is over
        ("a drain", 0, Role.MIXED),  # one that is being left
    ],
)
def test_orders_for_another_epoch_are_refused(before, epoch, role):
    bench = Bench(Role.PREFILL)
    if before == "a drain":
        bench.submit(0.0, 50, 5)
    if before != "nothing":
        drain(bench, 0.5, Role.DECODE)
    answers = drain(bench, 5.0, role, epoch)
    bench.run(until=6.0)
    assert answers == [None]
    assert bench.instance.state.target is (Role.DECODE if before == "a drain" else None)
    assert bench.instance.role is (Role.DECODE if before == "a change" else Role.PREFILL)


def test_a_drain_that_takes_too_long_is_rolled_back():
    bench = Bench(Role.DECODE, drain_timeout_s=4.0)
    bench.offer(0.0, 20, 30)
    drain(bench, 1.0, Role.PREFILL)
    bench.run(until=10.0)
    assert bench.events == [(5.0, "RoleServed", None)]
    assert state_of(bench) == (Role.DECODE, Phase.SERVING, 0)
    bench.offer(10.0, 20, 3)
    bench.run()
    assert bench.finished() == {0: 29.0, 1: 12.0}, "it serves on"


def test_the_timeout_of_one_drain_does_not_end_another():
    bench = Bench(Role.DECODE, drain_timeout_s=4.0)
    drain(bench, 1.0, Role.PREFILL)
    bench.submit(2.0, 20, 5)
    drain(bench, 2.5, Role.DECODE, epoch=1)
    bench.run(until=6.0)
    assert state_of(bench) == (Role.PREFILL, Phase.DRAINING, 1), "the first would have timed out at 5 s"
    bench.run(until=7.0)
    assert state_of(bench) == (Role.PREFILL, Phase.SERVING, 1)


def test_any_role_finishes_any_work():
    decode, prefill = Bench(Role.DECODE), Bench(Role.PREFILL)
    decode.submit(0.0, 10, 3)
    decode.run()
    assert decode.events == [(1.0, "FirstToken", 0), (3.0, "Finished", 0)]
    prefill.offer(0.0, 10, 3)
    prefill.run()
    assert prefill.events[-1] == (2.0, "Finished", 0)
    assert (decode.instance.memory.used, prefill.instance.memory.used) == (0, 0)


def test_a_flip_waits_for_nobody():
    """A decode instance becomes prefill at 1.5 s: its sequence decodes on, and a new prompt rides along."""
    bench = Bench(Role.DECODE, token_budget=100)
    bench.offer(0.0, 10, 6)
    bench.at(1.5, lambda runner, now: runner.flip(Role.PREFILL, 0, now))
    prompt = bench.submit(2.5, 50, 5)
    bench.run()
    state = bench.instance.state
    assert (state.role, state.epoch, state.phase) == (Role.PREFILL, 1, Phase.SERVING)
    assert bench.events == [
        (1.5, "RoleCommitted", None),
        (1.5, "RoleServed", None),
        (4.0, "PrefillDone", prompt.request_id),
        (5.0, "Finished", 0),
    ]
    assert bench.instance.memory.held == {prompt.request_id: 50}


def test_a_flip_of_another_epoch_is_refused():
    bench = Bench(Role.DECODE)
    assert bench.runner.flip(Role.PREFILL, 1, 0.0) is None
    assert bench.runner.flip(Role.DECODE, 0, 0.0) is None
    assert bench.instance.role is Role.DECODE


def test_a_commit_finds_nothing_left():
    bench = Bench(Role.PREFILL)
    bench.submit(0.0, 50, 5)
    bench.at(0.5, lambda runner, now: runner.instance.commit_role(now))
    with pytest.raises(InvariantError, match=r"^50 KV tokens leaked by requests \[0\]$"):
        bench.run()
