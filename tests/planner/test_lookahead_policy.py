"""When `lookahead` looks, how far, and what it takes to move."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cluster.role import Role
from planner.decision import RoleOrder
from planner.lookahead import LookaheadMemory, lookahead_policy
from planner.observation import Observation
from planner.tools import Outlook
from tests.planner.engines import steady, tools_of
from tests.planner.views import cluster

QUIET = replace(steady(2.0, 500, 50, now_s=20.0), num_ended=40, num_good=40)
LONG_PROMPTS = steady(20.0, 1000, 5, now_s=20.0)
"""20,000 prompt tokens a second: more than two instances compute."""


class Futures:
    """A rollout that promises what it is told to, and remembers what it was asked."""

    def __init__(self, staying: Sequence[tuple[int, int]], changed: Sequence[tuple[int, int]]) -> None:
        self._promises = {False: staying, True: changed}
        self.asked: list[tuple[tuple[RoleOrder, ...], float, int]] = []

    def __call__(self, observation: Observation, orders: tuple[RoleOrder, ...], horizon_s: float, seed: int) -> Outlook:
        self.asked.append((orders, horizon_s, seed))
        return Outlook(*self._promises[bool(orders)][seed - round(observation.now_s * 1000)])


def tick(observation: Observation, futures: Futures, **lookahead: float):
    tools = tools_of("lookahead")
    settings = replace(tools.config.lookahead, **lookahead)
    tools = replace(tools, rollout=futures, config=replace(tools.config, lookahead=settings))
    return lookahead_policy(observation, tools, LookaheadMemory())


@pytest.mark.parametrize(
    ("staying", "changed", "moves"),
    [
        pytest.param([(60, 40), (120, 80)], [(95, 5), (190, 10)], True, id="better twice"),
        pytest.param([(60, 40), (120, 80)], [(61, 39), (190, 10)], False, id="not better at first"),
        pytest.param([(60, 40), (120, 80)], [(95, 5), (100, 100)], False, id="the first look was luck"),
        pytest.param([(300, 700)], [(340, 660)], True, id="flooded: the least strain wins"),
        pytest.param([(600, 400)], [(630, 370)], False, id="within two standard errors"),
    ],
)
def test_what_it_takes_to_move(staying, changed, moves):
    observation = cluster([40_000, 40_000], [0, 0], now_s=20.0, demand=LONG_PROMPTS)
    decision, memory = tick(observation, Futures(staying, changed))
    assert [order.role for order in decision.orders] == ([Role.PREFILL] if moves else [])
    assert memory.changing == moves


@pytest.mark.parametrize(
    ("attainment", "longest_wait_s", "looks"), [(1.0, 0.0, False), (0.9, 0.0, True), (1.0, 0.4, True)]
)
def test_it_looks_when_requests_wait_or_go_bad(attainment, longest_wait_s, looks):
    demand = replace(QUIET, num_good=round(attainment * QUIET.num_ended))
    observation = cluster([0, 0], [0, 0], now_s=20.0, demand=demand, oldest_wait_s=longest_wait_s)
    futures = Futures([(10, 0)], [(10, 0)])
    decision, _ = tick(observation, futures)
    assert decision.orders == ()
    assert bool(futures.asked) == looks


def test_no_more_requests_are_followed_than_a_tick_has_time_for():
    observation = cluster([40_000, 40_000], [0, 0], now_s=20.0, demand=LONG_PROMPTS, num_waiting=50)
    futures = Futures([(60, 40), (60, 40)], [(95, 5), (95, 5)])
    tick(observation, futures, max_followed=2_000, horizon_s=100.0)
    followed = [200 + 20.0 * horizon_s for _, horizon_s, _ in futures.asked]
    assert sum(followed) == pytest.approx(2_000)
    assert len(followed) == 2 + 2


def test_one_change_to_each_role_is_tried_before_more_of_a_kind():
    observation = cluster([40_000] * 3, [0] * 3, now_s=20.0, demand=LONG_PROMPTS, oldest_wait_s=0.4)
    futures = Futures([(60, 40)], [(60, 40)])
    tick(observation, futures)
    roles = [orders[0].role for orders, _, _ in futures.asked if orders]
    assert roles == [Role.PREFILL, Role.DECODE, Role.PREFILL, Role.DECODE]
