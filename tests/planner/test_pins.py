"""Roles set by hand: what it takes, what stands above the policy, and what is refused."""

from dataclasses import replace

import pytest

from cluster.errors import ConfigError
from cluster.role import Phase, Role
from planner.config import PlannerConfig
from planner.pins import check_pins, pins_for
from planner.planner import POLICIES, Planner
from tests.planner.engines import tools_of
from tests.planner.test_faults import busy_decode
from tests.planner.views import cluster, view

P, D, M = Role.PREFILL, Role.DECODE, Role.MIXED
VIEWS = cluster([0, 9_000], [500, 200, 300]).instances


@pytest.mark.parametrize(
    ("split", "pins"),
    [
        ((2, 3), [P, P, D, D, D]),
        ((3, 2), [P, P, D, P, D]),
        ((4, 1), [P, P, D, P, P]),
        ((1, 4), [D, P, D, D, D]),
    ],
)
def test_a_split_moves_those_with_the_least_to_finish(split, pins):
    assert pins_for(*split, VIEWS) == dict(enumerate(pins))


def test_who_is_on_its_way_counts_where_it_is_going():
    views = (*VIEWS[:4], view(4, D, phase=Phase.DRAINING, target=P))
    assert pins_for(3, 2, views) == {0: P, 1: P, 2: D, 3: D, 4: P}


def test_a_split_is_of_all():
    with pytest.raises(
        ConfigError, match=r"^3 prefill and 1 decode instances are 4, and 5 are alive; make it 5 in all$"
    ):
        pins_for(3, 1, VIEWS)


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({0: D, 2: P}, None),
        ({2: P, 3: P}, None),
        (
            {2: P, 3: P, 4: M},
            "that would leave 0 decode instances, and planner.min_decode is 1; leave one more in its role",
        ),
        ({0: M}, "that would leave 1 prefill instances, and planner.min_prefill is 2; leave one more in its role"),
    ],
)
def test_a_role_keeps_its_minimum(pins, message):
    config = PlannerConfig(min_prefill=1 if message is None or "decode" in message else 2)
    if message is None:
        check_pins(pins, VIEWS, config)
    else:
        with pytest.raises(ConfigError) as error:
            check_pins(pins, VIEWS, config)
        assert str(error.value) == message


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_set_by_hand_is_done_and_stays(policy):
    """Decode needs help, and both prefill instances that could give it are held; 3 is to help them instead."""
    planner = Planner(tools_of(policy))
    orders = []
    for now in range(1, 60):
        seen = replace(busy_decode(float(now)), pins={0: P, 1: P, 3: P})
        orders += planner.tick(seen).orders
    assert {(one.instance, one.role, one.cause) for one in orders} <= {(3, P, "by_hand"), (2, M, "mix")}
    assert (orders[0].instance, orders[0].role, orders[0].reason) == (3, P, "set by hand")
    assert planner.failures == []


def test_a_free_instance_is_taken_in_place_of_a_held_one():
    planner, given = Planner(tools_of("load")), []
    for now in range(1, 10):
        given += planner.tick(replace(busy_decode(float(now)), pins={0: P})).orders
    assert given[0].instance == 1


def test_a_change_by_hand_waits_for_one_that_is_under_way():
    planner = Planner(tools_of("static"))
    seen = replace(busy_decode(1.0), pins={0: D})
    draining = replace(seen.instances[0], phase=Phase.DRAINING, target=D)
    assert planner.tick(replace(seen, instances=(draining, *seen.instances[1:]))).orders == ()
    assert [one.instance for one in planner.tick(seen).orders] == [0]
    assert planner.tick(replace(seen, pins={})).orders == ()
