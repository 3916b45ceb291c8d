"""The table of a role change."""

from itertools import product

import pytest

from cluster.errors import InvariantError
from cluster.role import PHASES, Phase, Role, RoleState

MOVES = {
    Phase.DRAINING: lambda state: state.begin_drain(Role.DECODE, 1.0),
    Phase.SWITCHING: lambda state: state.commit(1.0),
    Phase.SERVING: lambda state: state.serve(1.0),
}


@pytest.mark.parametrize(("old", "new"), list(product(Phase, Phase)))
def test_only_moves_of_the_table(old, new):
    state = RoleState(Role.PREFILL)
    state.phase, state.target = old, Role.DECODE if old is Phase.DRAINING else None
    if new in PHASES[old]:
        MOVES[new](state)
        assert (state.phase, state.since_s) == (new, 1.0)
    else:
        with pytest.raises(InvariantError):
            MOVES[new](state)
        assert state.phase is old


def test_a_commit_takes_the_role_and_the_next_epoch():
    state = RoleState(Role.PREFILL, epoch=4)
    state.begin_drain(Role.DECODE, 1.0)
    assert (state.role, state.target, state.epoch) == (Role.PREFILL, Role.DECODE, 4)
    state.commit(2.0)
    assert (state.role, state.target, state.epoch) == (Role.DECODE, None, 5)


def test_a_rollback_keeps_role_and_epoch():
    state = RoleState(Role.PREFILL, epoch=4)
    state.begin_drain(Role.DECODE, 1.0)
    state.rollback(2.0)
    assert (state.role, state.target, state.epoch, state.phase) == (Role.PREFILL, None, 4, Phase.SERVING)


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda state: state.begin_drain(Role.PREFILL, 1.0), "instance already has role prefill"),
        (lambda state: state.commit(1.0), "there is no role change to commit"),
        (lambda state: state.rollback(1.0), "a serving instance cannot become serving"),
    ],
)
def test_misuse(misuse, message):
    with pytest.raises(InvariantError) as error:
        misuse(RoleState(Role.PREFILL))
    assert str(error.value) == message
