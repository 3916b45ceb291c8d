"""The life cycle of a request is its table: every move in it, and no other."""

from itertools import product
from math import isnan, nan

import pytest

from cluster.errors import InvariantError
from cluster.handoff import TRANSITIONS as HANDOFF_MOVES
from cluster.handoff import Handoff, HandoffState
from cluster.request import ENDED, TRANSITIONS, Request, Status

GOOD_LIVES = [
    "QUEUED PREFILL FINISHED",
    "QUEUED PREFILL DECODE FINISHED",
    "QUEUED PREFILL HANDOFF TRANSFER READY DECODE FINISHED",
    "QUEUED PREFILL DECODE PREEMPTED PREFILL DECODE FINISHED",
    "QUEUED PREFILL HANDOFF TRANSFER READY PREEMPTED PREFILL DECODE FINISHED",
    "QUEUED PREFILL HANDOFF TRANSFER HANDOFF TRANSFER READY DECODE FINISHED",
    "QUEUED PREFILL HANDOFF TRANSFER QUEUED PREFILL HANDOFF TRANSFER READY DECODE QUEUED FAILED",
    "FINISHED",
    "REJECTED",
]


@pytest.mark.parametrize("life", GOOD_LIVES)
def test_lives(life):
    request = Request(0, 1.0, 10, 5)
    first: dict[Status, float] = {}
    for now, name in enumerate(life.split(), start=2):
        request.enter(Status[name], float(now))
        first.setdefault(Status[name], now)
    assert request.status in ENDED
    assert request.finished_s == first[request.status]
    assert {status: time for status, time in zip(Status, request.times, strict=True) if not isnan(time)} == {
        Status.ARRIVED: 1.0,
        **first,
    }


@pytest.mark.parametrize(("old", "new"), list(product(Status, Status)))
def test_only_moves_of_the_table(old, new):
    request = Request(3, 0.0, 1, 1)
    request.status = old
    if new in TRANSITIONS[old]:
        request.enter(new, 7.0)
        assert request.status is new
    else:
        with pytest.raises(InvariantError) as error:
            request.enter(new, 7.0)
        assert str(error.value) == f"request 3 cannot go from {old.name} to {new.name}"
        assert request.status is old


def test_the_table_closes():
    """Ends are final, an abort or a fault can come at any time before, and everything can be reached."""
    for status, moves in TRANSITIONS.items():
        assert moves == frozenset() if status in ENDED else moves >= {Status.ABORTED, Status.FAILED}
    assert set().union(*TRANSITIONS.values()) == set(Status) - {Status.ARRIVED}


@pytest.mark.parametrize(("old", "new"), list(product(HandoffState, HandoffState)))
def test_handoff_moves(old, new):
    handoff = Handoff(Request(3, 0.0, 1, 1), 0, 1, epoch=0, num_bytes=1)
    handoff.state = old
    if new in HANDOFF_MOVES[old]:
        handoff.enter(new)
        assert handoff.state is new
    else:
        with pytest.raises(InvariantError, match=f"^handoff of request 3 cannot go from {old.name} to {new.name}$"):
            handoff.enter(new)


def test_a_request_that_lives_has_no_end():
    assert Request(0, 1.0, 10, 5).finished_s is nan
