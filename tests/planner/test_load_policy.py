"""The `load` policy: what it sees, what it decides, and why."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.role import Phase, Role
from planner.config import LoadThresholds, PlannerConfig
from planner.load import LoadMemory, load_policy
from planner.observation import Observation
from planner.planner import Planner
from planner.tools import Tools
from tests.planner.views import cluster, view

CONFIG = PlannerConfig(
    policy="load",
    load=LoadThresholds(
        prefill_queue_high=10_000,
        prefill_queue_low=2_000,
        kv_use_high=0.30,
        kv_use_low=0.20,
        votes=2,
        cooldown_s=10.0,
    ),
)
P, D = Role.PREFILL, Role.DECODE

# Queued tokens of prefill instances, KV tokens of decode instances (of 100 000 each); who moves where, and why.
TABLE = [
    ([0, 0], [0, 0], None, "in balance: 0 tokens queued per prefill instance, decode KV use 0%"),
    (
        [10_000, 10_000],
        [30_000, 30_000],
        None,
        "in balance: 10,000 tokens queued per prefill instance, decode KV use 30%",
    ),
    (
        [15_000, 9_000],
        [9_000, 8_000, 1_000],
        (4, P, "prefill_queue"),
        "12,000 tokens queued per prefill instance; decode KV use stays at 9% without it",
    ),
    (
        [15_000, 9_000],
        [21_000, 20_000],
        None,
        "12,000 tokens queued per prefill instance, but decode cannot spare one (KV use would be 41%)",
    ),
    (
        [15_000, 9_000],
        [0],
        None,
        "12,000 tokens queued per prefill instance, but decode has no more than planner.min_decode",
    ),
    (
        [500, 400, 300],
        [50_000, 30_000],
        (2, D, "decode_kv"),
        "decode KV use 40%; prefill queue stays at 600 tokens without it",
    ),
    (
        [3_000, 3_000],
        [50_000, 30_000],
        None,
        "decode KV use 40%, but prefill cannot spare one (its queue would be 6,000 tokens)",
    ),
    ([0], [90_000, 90_000], None, "decode KV use 90%, but prefill has no more than planner.min_prefill"),
    (
        [20_000, 20_000],
        [50_000, 50_000],
        None,
        "both roles are over: 20,000 tokens queued per prefill instance, decode KV use 50%",
    ),
]


@pytest.mark.parametrize(("queues", "uses", "move", "reason"), TABLE)
def test_decisions(queues, uses, move, reason):
    """As it decides once the votes are in."""
    asks = P if sum(queues) > 10_000 * len(queues) else D
    decision, memory = load_policy(cluster(queues, uses), Tools(CONFIG), LoadMemory(asks=asks, votes=1))
    assert decision.reason == reason
    counts = (len(queues), len(uses))
    if move is None:
        assert decision.orders == ()
        assert (decision.target_prefill, decision.target_decode) == counts
    else:
        [order] = decision.orders
        assert (order.instance, order.role, order.cause, order.reason) == (*move, reason)
        step = 1 if order.role is P else -1
        assert (decision.target_prefill, decision.target_decode) == (counts[0] + step, counts[1] - step)
        assert memory.changing


def test_nobody_has_a_role():
    decision, _ = load_policy(cluster([], [0]), Tools(CONFIG), LoadMemory(asks=P, votes=1))
    assert decision.reason == "no instance prefills, but decode has no more than planner.min_decode"


def test_handoffs_that_wait_for_room_count_as_use():
    waiting = Observation(0.0, (view(0, P), view(1, P), view(2, D, kv=20_000, offered=15_000)))
    decision, _ = load_policy(waiting, Tools(CONFIG), LoadMemory(asks=D, votes=1))
    assert [order.role for order in decision.orders] == [D]


def test_mixed_instances_alone_are_left_alone():
    observation = Observation(0.0, (view(0, Role.MIXED, queued=90_000), view(1, Role.MIXED)))
    decision, _ = load_policy(observation, Tools(PlannerConfig()), LoadMemory())
    assert (decision.orders, decision.reason) == ((), "only mixed instances serve, and they share all work")


def test_an_order_names_the_epoch_it_was_made_for():
    seen = Observation(0.0, (view(0, P, epoch=3), view(1, P, epoch=5, queued=1), view(2, D, kv=90_000)))
    decision, _ = load_policy(seen, Tools(CONFIG), LoadMemory(asks=D, votes=1))
    assert [(order.instance, order.epoch) for order in decision.orders] == [(0, 3)]


def decide(observations: list[Observation]) -> list[str]:
    """The reason of each tick, and `P` or `D` for an order."""
    planner = Planner(Tools(CONFIG))
    answers = []
    for observation in observations:
        decision = planner.tick(observation)
        answers.append("".join(order.role.value[0].upper() for order in decision.orders) or decision.reason)
    return answers


PREFILL_ASKS = ([30_000, 10_000], [0, 0])
DECODE_ASKS = ([0, 0], [40_000, 40_000])


def test_votes_must_come_in_a_row():
    states = [PREFILL_ASKS, DECODE_ASKS, PREFILL_ASKS, ([0, 0], [0, 0]), PREFILL_ASKS, PREFILL_ASKS]
    assert decide([cluster(*state, now_s=now) for now, state in enumerate(states)]) == [
        "20,000 tokens queued per prefill instance (vote 1 of 2)",
        "decode KV use 40% (vote 1 of 2)",
        "20,000 tokens queued per prefill instance (vote 1 of 2)",
        "in balance: 0 tokens queued per prefill instance, decode KV use 0%",
        "20,000 tokens queued per prefill instance (vote 1 of 2)",
        "P",
    ]


def test_nothing_starts_during_a_change_nor_soon_after():
    def during(now_s: float) -> Observation:
        calm = cluster(*PREFILL_ASKS, now_s=now_s)
        return replace(calm, instances=(*calm.instances, view(4, D, phase=Phase.DRAINING, now_s=now_s)))

    late = [cluster(*PREFILL_ASKS, now_s=now) for now in (4.0, 5.0, 13.0, 14.0)]
    assert decide([cluster(*PREFILL_ASKS), cluster(*PREFILL_ASKS, now_s=1.0), during(2.0), during(3.0), *late]) == [
        "20,000 tokens queued per prefill instance (vote 1 of 2)",
        "P",
        "a role change is under way",
        "a role change is under way",
        "20,000 tokens queued per prefill instance (vote 1 of 2)",
        "20,000 tokens queued per prefill instance, but the last change is too recent",
        "20,000 tokens queued per prefill instance, but the last change is too recent",
        "P",
    ]


QUEUES = st.lists(st.integers(0, 40_000), min_size=1, max_size=6)
USES = st.lists(st.integers(0, 100_000), min_size=1, max_size=6)
MEMORIES = st.builds(
    LoadMemory,
    asks=st.sampled_from([None, P, D]),
    votes=st.integers(0, 3),
    settled_s=st.sampled_from([float("-inf"), 0.0, 95.0]),
    changing=st.booleans(),
)


@given(QUEUES, USES, MEMORIES, st.integers(1, 3), st.integers(1, 3))
def test_what_always_holds(queues, uses, memory, min_prefill, min_decode):
    config = replace(CONFIG, min_prefill=min_prefill, min_decode=min_decode)
    observation = cluster(queues, uses, now_s=100.0)
    decision, after = load_policy(observation, Tools(config), memory)
    assert (decision, after) == load_policy(observation, Tools(config), memory), "the same in, the same out"
    assert decision.reason
    for order in decision.orders:
        giver = observation.instances[order.instance]
        assert giver.role is not order.role
        if order.role is P:
            assert len(uses) > min_decode
            assert sum(uses) / (len(uses) - 1) <= 20_000
            assert giver.kv_used_tokens == min(uses)
        else:
            assert len(queues) > min_prefill
            assert sum(queues) / (len(queues) - 1) <= 2_000
            assert giver.queued_tokens == min(queues)
    assert len(decision.orders) <= 1


@given(st.integers(0, 400_000), st.integers(0, 400_000), st.integers(2, 5), st.integers(2, 5))
def test_a_constant_load_is_never_answered_by_a_move_and_its_reverse(queued, kv, num_prefill, num_decode):
    """Whatever the split, the same work is spread over it; changes take no time here."""
    planner = Planner(Tools(CONFIG))
    moves = []
    for now in range(100):
        split = cluster([queued // num_prefill] * num_prefill, [kv // num_decode] * num_decode, now_s=float(now))
        for order in planner.tick(split).orders:
            moves.append(order.role)
            num_prefill += 1 if order.role is P else -1
            num_decode -= 1 if order.role is P else -1
    assert len(set(moves)) <= 1
    assert len(moves) <= 4
