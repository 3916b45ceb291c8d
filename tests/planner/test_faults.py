"""What other planners are known to get wrong, over all policies."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.role import Phase, Role
from planner.demand import Demand
from planner.observation import Observation
from planner.planner import POLICIES, Planner
from tests.planner.engines import steady, tools_of
from tests.planner.views import cluster, view

P, D, M = Role.PREFILL, Role.DECODE, Role.MIXED
EVERY = pytest.mark.parametrize("policy", POLICIES)
MOVERS = [name for name in POLICIES if name not in ("static", "arrow", "conditional")]
"""Those that move instances at a tick; arrow and conditional have tests of their own for their routers."""
PLANNING = [name for name in MOVERS if name != "splitwise"]
"""Those that choose a split, and not who helps out."""


def busy_decode(now_s, prefill=2, decode=2, **counts):
    """Long outputs, and decode instances that are nearly full: whoever looks wants another decode instance."""
    demand = steady(12.0, 900, 200, now_s=now_s)
    seen = cluster([0] * prefill, [95_000] * decode, now_s, demand, oldest_wait_s=1.0, **counts)
    return replace(seen, instances=tuple(replace(one, num_decoding=95) for one in seen.instances))


def orders_of(policy, observations, **fields):
    planner = Planner(tools_of(policy, **fields))
    orders = [order for observation in observations for order in planner.tick(observation).orders]
    assert planner.failures == []
    return orders


@EVERY
@pytest.mark.parametrize("instances", [(2, 2), (1, 1), (7, 1)])
def test_no_traffic_is_zero_and_not_nan(policy, instances):
    """From the first tick of an empty run to long after it has begun, and after traffic has stopped."""
    planner = Planner(tools_of(policy))
    demands = [Demand(min(20.0, float(now))) for now in range(30)]
    demands += [steady(1.0, 500, 50, now_s=float(now)) for now in range(30, 50)]
    demands += [Demand(20.0) for now in range(50, 80)]
    for now, demand in enumerate(demands):
        decision = planner.tick(cluster(*([0] * count for count in instances), float(now), demand))
        assert decision.orders == ()
        assert (decision.target_prefill, decision.target_decode) == instances
        assert "nan" not in decision.reason
    assert planner.failures == []


CONSTANT = {
    # Demand; prompt tokens that wait and KV tokens in use, in all.
    "light": ((4.0, 900, 50), 0, 20_000),
    "decode": ((12.0, 900, 200), 500, 150_000),
    "prefill": ((60.0, 900, 20), 60_000, 20_000),
    "too much": ((40.0, 900, 400), 80_000, 300_000),
}


@pytest.mark.parametrize("policy", [name for name in PLANNING if name != "lookahead"])
@pytest.mark.parametrize("load", CONSTANT)
def test_a_constant_load_is_never_answered_by_a_move_and_its_reverse(policy, load):
    """Whatever the split, the same work is spread over it; changes take no time. (lookahead: in simulation.)"""
    demand, queued, kv = CONSTANT[load]
    num_moved = 0
    for prefill in range(1, 6):
        planner, moves = Planner(tools_of(policy)), []
        for now in range(1, 200):
            uses = [min(100_000, kv // (6 - prefill))] * (6 - prefill)
            seen = cluster([queued // prefill] * prefill, uses, float(now), steady(*demand, now_s=float(now)))
            for order in planner.tick(seen).orders:
                moves.append((now, order.role))
                prefill += 1 if order.role is P else -1
        assert len({role for _, role in moves}) <= 1
        assert all(now < 100 for now, _ in moves)
        num_moved += len(moves)
    assert num_moved or load == "light" or (policy, load) == ("load", "too much")


@pytest.mark.parametrize("policy", MOVERS)
def test_an_unfinished_change_is_waited_for_and_a_given_up_one_does_not_block(policy):
    """A change that never gets anywhere: no second one meanwhile, and another try after it was rolled back."""
    planner = Planner(tools_of(policy, window_s=20.0))

    def ticks(first, last, **changed):
        seen = [busy_decode(float(now)) for now in range(first, last)]
        if changed:
            first_view = [replace(one.instances[0], **changed) for one in seen]
            seen = [
                replace(one, instances=(view0, *one.instances[1:])) for one, view0 in zip(seen, first_view, strict=True)
            ]
        return [order.instance for one in seen for order in planner.tick(one).orders]

    def until_an_order(first):
        for now in range(first, first + 30):
            if ticks(now, now + 1):
                return now
        raise AssertionError("it never decides")

    decided = until_an_order(1)
    if policy != "splitwise":  # whose instances flip at once
        assert ticks(decided + 1, decided + 100, phase=Phase.DRAINING, target=D) == []
    until_an_order(decided + 100)


@pytest.mark.parametrize("policy", MOVERS)
def test_old_reports_are_not_acted_upon(policy):
    """What would call for a change is 30 s old, twice over the window: it may say nothing of now."""
    fresh = [busy_decode(float(now)) for now in range(1, 40)]
    assert orders_of(policy, fresh, window_s=15.0)
    stale = [replace(one, now_s=one.now_s + 30.0) for one in fresh]
    assert orders_of(policy, stale, window_s=15.0) == []
    decision = Planner(tools_of(policy, window_s=15.0)).tick(stale[0])
    assert decision.reason == "the oldest load report is 30.0 s old"


@pytest.mark.parametrize("policy", PLANNING)
@pytest.mark.parametrize(("split", "role"), [((0, 4), P), ((4, 0), D)])
def test_an_empty_role_gets_an_instance(policy, split, role):
    """All instances in one role serve nobody; how they came to be there does not matter."""
    prefill, decode = split
    demand = [steady(10.0, 900, 100, now_s=float(now)) for now in range(1, 40)]
    seen = [cluster([0] * prefill, [1_000] * decode, float(now), one) for now, one in enumerate(demand, start=1)]
    assert orders_of(policy, seen)[0].role is role


VIEWS = st.builds(
    view,
    index=st.just(0),
    role=st.sampled_from([P, P, D, D, M]),
    queued=st.sampled_from([0, 500, 10_000, 100_000]),
    kv=st.sampled_from([0, 10_000, 99_000]),
    offered=st.sampled_from([0, 50_000]),
    phase=st.sampled_from([Phase.SERVING] * 6 + [Phase.DRAINING, Phase.SWITCHING]),
    num_decoding=st.sampled_from([0, 10, 90]),
    context_tokens=st.sampled_from([0, 10_000, 90_000]),
    iteration_s=st.sampled_from([0.0, 0.02, 0.5]),
    oldest_wait_s=st.sampled_from([0.0, 3.0]),
)
LOADS = st.tuples(st.sampled_from([0.5, 5.0, 50.0]), st.sampled_from([1, 900, 7000]), st.sampled_from([0, 20, 800]))


@EVERY
@given(
    seen=st.lists(st.tuples(st.lists(VIEWS, max_size=6), st.none() | LOADS), min_size=1, max_size=8),
    least=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    most=st.integers(1, 4),
)
def test_whatever_is_seen(policy, seen, least, most):
    """No policy empties a role, moves who is moving, or goes beyond its limits; and none falls over."""
    planner = Planner(tools_of(policy, min_prefill=least[0], min_decode=least[1], max_changes_per_tick=most))
    for tick, (views, load) in enumerate(seen):
        now = 5.0 * (tick + 1)
        instances = tuple(replace(one, index=index, now_s=now) for index, one in enumerate(views))
        demand = Demand(min(20.0, now)) if load is None else steady(*load, now_s=now)
        observation = Observation(now, instances, demand)
        orders = planner.tick(observation).orders
        assert len(orders) <= most
        assert len({order.instance for order in orders}) == len(orders)
        for order in orders:
            assert instances[order.instance].phase is Phase.SERVING
            assert instances[order.instance].role is not order.role
        for role, minimum in zip((P, D), least, strict=True):
            left = len(observation.serving(role)) - sum(instances[order.instance].role is role for order in orders)
            assert left >= min(minimum, len(observation.serving(role)))
    assert planner.failures == []
