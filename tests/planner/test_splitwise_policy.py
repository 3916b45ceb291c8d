"""The mixed pool borrows one machine at a time from the pool that can spare it, and sends it home when done."""

import pytest

from cluster.role import Role
from planner.config import PlannerConfig
from planner.decision import How
from planner.observation import Observation
from planner.splitwise import SplitwiseMemory, splitwise_policy
from planner.tools import Tools
from tests.planner.views import view

CONFIG = PlannerConfig(policy="splitwise")
BORROWED = SplitwiseMemory(homes=((3, Role.DECODE),))


NOBODY = SplitwiseMemory()


def tick(*views, memory=NOBODY):
    return splitwise_policy(Observation(1.0, views), Tools(CONFIG), memory)


def pools(prompt_queue=0, kv_used=0, **third):
    """Two prompt machines and two token machines; `third` changes the last one."""
    return (
        view(0, Role.PREFILL, queued=prompt_queue),
        view(1, Role.PREFILL, queued=prompt_queue + 1),
        view(2, Role.DECODE, kv=kv_used + 1),
        view(3, **{"role": Role.DECODE, "kv": kv_used, **third}),
    )


@pytest.mark.parametrize(
    ("views", "instance", "cause"),
    [
        (pools(prompt_queue=9000), 3, "prompt_queue"),
        (pools(kv_used=95_000), 0, "token_kv"),
    ],
)
def test_borrows_the_least_loaded_of_the_other_pool(views, instance, cause):
    decision, memory = tick(*views)
    (order,) = decision.orders
    assert (order.instance, order.role, order.cause, order.how) == (instance, Role.MIXED, cause, How.FLIP)
    assert memory.homes == ((instance, views[instance].role),)


@pytest.mark.parametrize(
    "views",
    [
        pools(),  # nothing to do
        pools(prompt_queue=8000, kv_used=80_000),  # both below
        (view(0, Role.PREFILL, queued=9000), view(1, Role.PREFILL), view(2, Role.DECODE), view(3, Role.DECODE)),
        (view(0, Role.PREFILL, queued=9000), view(2, Role.DECODE)),  # nobody to spare
    ],
)
def test_leaves_the_pools_alone(views):
    decision, memory = tick(*views)
    assert (decision.orders, memory) == ((), NOBODY)


@pytest.mark.parametrize(
    ("guest_work", "goes_home"),
    [({}, True), ({"num_prefilling": 1}, False), ({"num_waiting": 1}, False), ({"num_decoding": 9}, True)],
)
def test_a_token_machine_goes_home_when_its_prompts_are_done(guest_work, goes_home):
    decision, memory = tick(*pools(role=Role.MIXED, **guest_work), memory=BORROWED)
    assert [(order.instance, order.role) for order in decision.orders] == [(3, Role.DECODE)] * goes_home
    assert memory == (NOBODY if goes_home else BORROWED)
