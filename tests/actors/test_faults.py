"""Which faults, when, and the account of what each of them cost."""

import pytest

from actors.faults import KINDS, Fault, each_fault, outcomes, parse_fault, possible_kinds, random_faults
from actors.messages import Toll
from cluster.errors import ConfigError
from cluster.role import Role


def test_parse() -> None:
    fault = parse_fault("hang@12.5")
    assert (fault.kind, fault.at_s) == ("hang", 12.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hung@3", "unknown kind 'hung'; use one of kill-prefill-queued, "),
        ("hang", "does not say when; write KIND@SECONDS, for example hang@10"),
        ("hang@soon", "does not say when"),
        ("hang@-1", "does not say when"),
        ("hang@inf", "does not say when"),
    ],
)
def test_what_cannot_be_parsed(text, message) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_fault(text)


def test_each_kind_once() -> None:
    assert [(fault.kind, fault.at_s) for fault in each_fault(["slow", "hang"], 4.0)] == [("slow", 4.0), ("hang", 8.0)]


def test_random_faults_are_seeded_and_as_dense_as_asked_for() -> None:
    faults = random_faults(["slow", "hang"], 10.0, 10_000.0, seed=1)
    assert faults == random_faults(["slow", "hang"], 10.0, 10_000.0, seed=1)
    assert faults != random_faults(["slow", "hang"], 10.0, 10_000.0, seed=2)
    assert {fault.kind for fault in faults} == {"slow", "hang"}
    assert 900 < len(faults) < 1100
    assert all(0 < fault.at_s < 10_000 for fault in faults)


@pytest.mark.parametrize(
    ("roles", "num_nodes", "missing"),
    [
        ([Role.PREFILL, Role.DECODE], 1, {"kill-mixed", "kill-node"}),
        ([Role.PREFILL, Role.DECODE, Role.MIXED], 2, set()),
        (
            [Role.MIXED],
            2,
            {name for name, kind in KINDS.items() if kind.role in (Role.PREFILL, Role.DECODE)},
        ),
    ],
)
def test_kinds_that_are_possible(roles, num_nodes, missing) -> None:
    assert set(KINDS) - set(possible_kinds(roles, num_nodes)) == missing


def test_outcomes() -> None:
    """Costs lie between a fault and the next, times are wall seconds, and what never happened has no time."""
    faults = [
        Fault("kill-decode-running", 5.0, "instance-2", 5.5, 6.0, 8.0, before=Toll(1, 0, 10)),
        Fault("cancel", 9.0, "prompt", 9.0, 9.0, 9.1, cancelled=3, before=Toll(5, 2, 500)),
        Fault("hang", 20.0),
    ]
    death, leaving, never = outcomes(faults, Toll(6, 2, 520, failed=1), time_scale=2.0)
    assert (death["detection_s"], death["recovery_s"]) == (1.0, 5.0)
    assert (death["disturbed"], death["resumed"], death["recomputed_tokens"], death["failed"]) == (4, 2, 490, 0)
    assert (leaving["disturbed"], leaving["cancelled"], leaving["failed"]) == (3, 3, 1)
    assert (never["injected_s"], never["detection_s"], never["disturbed"]) == (None, None, 0)
