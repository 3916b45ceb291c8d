"""A request can be cancelled wherever it is: its KV is freed, it is reported once, and its neighbours live on."""

from typing import NamedTuple

import pytest

from cluster.request import Status
from cluster.role import Role
from tests.cluster.bench import Bench


class Case(NamedTuple):
    role: Role
    status: Status
    """Where the request is when it is cancelled."""
    abort_s: float
    gone_s: float
    engine: dict | None = None
    capacity: int = 100
    prompt: int = 10
    transfer_s: float = 0.0


# The request comes at 0.5 s, after a neighbour of 20 + 20 tokens at 0 s; steps take a second.
CASES = {
    "waits for the running step": Case(Role.MIXED, Status.QUEUED, 0.7, 0.7),
    "waits for room": Case(Role.MIXED, Status.QUEUED, 5.5, 5.5, capacity=50),
    "in its prefill": Case(Role.MIXED, Status.PREFILL, 1.5, 2.0, {"policy": "prefill_first"}),
    "between chunks, in a step": Case(Role.MIXED, Status.PREFILL, 6.5, 7.0, {"token_budget": 4}),
    "decodes": Case(Role.MIXED, Status.DECODE, 5.5, 6.0),
    "decodes, at a boundary": Case(Role.MIXED, Status.DECODE, 6.0, 6.0),
    "preempted": Case(
        Role.MIXED, Status.PREEMPTED, 12.5, 12.5, {"admission": "preempt_recompute", "block_size": 4}, capacity=48
    ),
    "waits for a prefill instance": Case(Role.PREFILL, Status.QUEUED, 0.7, 0.7),
    "in its prefill, for another to decode": Case(Role.PREFILL, Status.PREFILL, 1.5, 2.0),
    "its KV waits to be pulled": Case(Role.PREFILL, Status.HANDOFF, 2.5, 2.5),
    "its handoff waits for room": Case(Role.DECODE, Status.HANDOFF, 1.5, 1.5, capacity=50),
    "its KV is on the way": Case(Role.DECODE, Status.TRANSFER, 1.5, 1.5, transfer_s=3.0),
    "waits for a seat": Case(Role.DECODE, Status.READY, 1.5, 1.5, {"max_batch": 1}),
    "decodes after a handoff": Case(Role.DECODE, Status.DECODE, 5.5, 6.0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_abort(case):
    bench = Bench(case.role, capacity=case.capacity, **(case.engine or {}))
    if case.role is Role.DECODE:
        neighbour = bench.offer(0.0, 20, 20)
        request = bench.offer(0.5, case.prompt, 20, transfer_s=case.transfer_s)
    else:
        neighbour = bench.submit(0.0, 20, 20)
        request = bench.submit(0.5, case.prompt, 20)
    found = []

    def abort(runner, now):
        found.append(request.status)
        runner.abort(request, now)
        runner.abort(request, now)

    bench.at(case.abort_s, abort)
    bench.run()
    assert found == [case.status]
    assert bench.reported("Aborted") == [(case.gone_s, 1)]
    assert request.status is Status.ABORTED
    assert 1 not in bench.instance.memory.held

    if case.role is Role.PREFILL:
        assert bench.reported("PrefillDone") == [(1.0, 0)] + [(2.0, 1)] * (case.status is Status.HANDOFF)
        bench.runner.release(neighbour, 30.0)
    else:
        assert neighbour.generated == 20
    bench.at(50.0, abort)
    bench.run()
    assert bench.reported("Aborted") == [(case.gone_s, 1)], "a late message is ignored"
    assert_idle(bench)


def assert_idle(bench: Bench) -> None:
    instance = bench.instance
    instance.memory.check_empty()
    instance.scheduler.check()
    load = instance.load(99.0)
    assert load.num_waiting == load.num_prefilling == load.num_decoding == load.num_ready == 0
    assert load.num_outgoing == load.num_incoming == load.num_offers == load.queued_tokens == 0
    assert not instance.scheduler.admitted
    assert not instance.in_flight


def test_an_abort_cuts_the_run_and_makes_room():
    """The run would last to 20 s; it is cut at the next boundary, and the handoff in line gets the room."""
    bench = Bench(Role.DECODE, capacity=50)
    first = bench.offer(0.0, 20, 21)
    bench.offer(0.5, 20, 5)
    bench.at(4.5, lambda runner, now: runner.abort(first, now))
    bench.run()
    assert bench.reported("RoomReserved") == [(5.0, 1)]
    assert bench.finished() == {1: 9.0}
    assert_idle(bench)


@pytest.mark.parametrize("role", [Role.MIXED, Role.DECODE])
def test_a_request_that_ends_with_the_step_it_is_cancelled_in_has_finished(role):
    bench = Bench(role)
    request = (bench.submit if role is Role.MIXED else bench.offer)(0.0, 10, 3)
    later = bench.submit(10.0, 10, 9) if role is Role.MIXED else bench.offer(10.0, 10, 9)
    end = 3.0 if role is Role.MIXED else 2.0
    bench.at(end - 0.5, lambda runner, now: runner.abort(request, now))
    bench.at(end + 9.0, lambda runner, now: runner.plan(now))
    bench.run()
    assert bench.reported("Aborted") == []
    assert bench.finished()[0] == end
    assert later.generated == 9
    assert not bench.instance._aborting
    assert_idle(bench)
