"""The `replan` policy: what counts as drift, and the search it then asks for."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.role import Role
from metrics.slo import SloSpec
from planner.config import PlannerConfig, ReplanSettings
from planner.demand import Arrived, Demand
from planner.history import Load
from planner.observation import Observation
from planner.planner import Planner
from planner.replan import ReplanMemory, replan_policy
from sim.split_search import SplitSearch
from tests.planner.engines import steady, tools_of
from tests.planner.views import view
from tests.reference.cases import scenario_of

P, D = Role.PREFILL, Role.DECODE
PLANNED = Load(10.0, 1000, 100)


def observe(prefill, decode, demand, now_s=100.0):
    roles = [P] * prefill + [D] * decode
    return Observation(now_s, tuple(view(index, role, now_s=now_s) for index, role in enumerate(roles)), demand)


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        ((10.0, 1000, 100), "10.0 req/s of 1,000 + 100 tokens: within 50% of what the split was planned for"),
        ((14.0, 1000, 100), "14.0 req/s of 1,000 + 100 tokens: within 50% of what the split was planned for"),
        ((20.0, 1000, 100), "demand has drifted by 100% to 20.0 req/s of 1,000 + 100 tokens; 1P3D is best for that"),
        ((10.0, 500, 100), "demand has drifted by 100% to 10.0 req/s of 500 + 100 tokens; 1P3D is best for that"),
        ((10.0, 1000, 160), "demand has drifted by 60% to 10.0 req/s of 1,000 + 160 tokens; 1P3D is best for that"),
        ((2.0, 1000, 100), "40 requests in 20 s are too few to judge"),
    ],
)
def test_drift(load, reason):
    seen = observe(2, 2, steady(*load, now_s=100.0))
    decision, memory = replan_policy(seen, tools_of("replan"), ReplanMemory(PLANNED, 0.0))
    assert decision.reason == reason
    if "drifted" in reason:
        assert [(order.instance, order.role, order.cause) for order in decision.orders] == [(0, D, "decode_plan")]
        assert (decision.target_prefill, decision.target_decode) == (1, 3)
        assert memory == ReplanMemory(Load(*load), 100.0, (1, 3), reason)
    else:
        assert (decision.orders, memory.wants) == ((), None)


def test_searches_keep_their_distance():
    seen = observe(2, 2, steady(20.0, 1000, 100, now_s=100.0))
    for searched_s, moves in ((80.0, 1), (81.0, 0)):
        decision, _ = replan_policy(seen, tools_of("replan"), ReplanMemory(PLANNED, searched_s))
        assert len(decision.orders) == moves


def test_it_goes_on_until_the_split_is_there_and_then_rests():
    planner, prefill, asked = Planner(tools_of("replan", replan=ReplanSettings(min_interval_s=0.0))), 4, []
    for now in range(1, 60):
        decision = planner.tick(observe(prefill, 8 - prefill, steady(25.0, 900, 100, now_s=float(now)), float(now)))
        prefill -= len(decision.orders)
        asked += [(now, order.role) for order in decision.orders]
    assert asked == [(2, D), (3, D), (4, D)]


def test_a_lost_instance_is_not_waited_for():
    """It wanted 1P3D of four; with three left, of which one computes prompts, there is nowhere to go."""
    memory = ReplanMemory(PLANNED, 90.0, (1, 3), "drift")
    decision, memory = replan_policy(observe(2, 1, steady(10.0, 1000, 100, now_s=100.0)), tools_of("replan"), memory)
    assert (decision.orders, memory.wants) == ((), None)


def search(**planner):
    scenario = scenario_of(prefill=2, decode=2, planner=PlannerConfig(policy="replan", **planner))
    return SplitSearch(replace(scenario, slo=SloSpec(ttft_ms=300, tpot_ms=12)))


def demand_of(rate, prompt, output):
    rng = np.random.default_rng(0)
    return Demand(
        10.0, tuple(Arrived(one / rate, prompt + int(rng.integers(20)), output) for one in range(int(10 * rate)))
    )


@pytest.mark.parametrize(
    ("demand", "limits", "split"),
    [
        (demand_of(30.0, 4000, 10), {}, (3, 1)),
        (demand_of(60.0, 100, 400), {}, (1, 3)),
        (demand_of(60.0, 100, 400), {"min_prefill": 2}, (2, 2)),
        (demand_of(30.0, 4000, 10), {"min_decode": 2}, (2, 2)),
    ],
)
def test_the_search_finds_where_the_work_is(demand, limits, split):
    found = search(**limits)
    assert found(demand, 4) == split == found(demand, 4)
