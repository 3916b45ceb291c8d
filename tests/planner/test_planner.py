"""The planner's limits hold whatever a policy says, and a bad setting is one sentence."""

import pytest

from cluster.errors import ConfigError
from cluster.role import Phase, Role
from planner.config import ConditionalSettings, PlannerConfig, PredictorSettings, ReplanSettings, ThroughputSettings
from planner.decision import Decision, RoleOrder
from planner.limits import within_limits
from planner.observation import Observation
from planner.planner import POLICIES, Planner
from planner.tools import Tools
from tests.planner.views import cluster, view

P, D = Role.PREFILL, Role.DECODE


def order(instance: int, role: Role) -> RoleOrder:
    return RoleOrder(instance, 0, role, "test", "test")


@pytest.mark.parametrize(
    ("orders", "limits", "kept"),
    [
        ([], {}, []),
        ([(0, D)], {}, [0]),
        ([(0, D), (1, D)], {"max_changes_per_tick": 3}, [0, 1]),
        ([(0, D), (1, D)], {"max_changes_per_tick": 1}, [0]),
        ([(0, D), (1, D)], {"max_changes_per_tick": 3, "min_prefill": 2}, [0]),
        ([(0, D), (1, D), (2, D), (3, P)], {"max_changes_per_tick": 9}, [0, 1, 3]),
        ([(0, D), (3, P), (4, P)], {"max_changes_per_tick": 9, "min_decode": 2}, [0]),
        # What is not there, already in the role, or not serving is nobody's to move.
        ([(9, D), (0, P), (5, P)], {"max_changes_per_tick": 9}, []),
    ],
)
def test_limits(orders, limits, kept):
    """Three prefill instances, 0 to 2, two decode instances, 3 and 4, and 5, which is leaving decode."""
    calm = cluster([0, 0, 0], [0, 0])
    observation = Observation(0.0, (*calm.instances, view(5, D, phase=Phase.DRAINING)))
    config = PlannerConfig(policy="load", **limits)
    given = tuple(order(*one) for one in orders)
    assert [one.instance for one in within_limits(given, observation, config)] == kept


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({}, [1, 2, 3]),
        ({"max_changing": 2}, [1]),  # 5 is one already
        ({"max_changing": 1}, []),
        ({"min_stay_s": 10.0}, [2, 3]),  # 1 serves since 5 s ago, 2 for longer; 3 has always had its role
        ({"min_stay_s": 100.0}, [3]),
    ],
)
def test_limits_in_time(limits, kept):
    changed = {"epoch": 1}
    seen = Observation(
        100.0,
        (
            view(0, P),
            view(1, P, serving_since_s=95.0, **changed),
            view(2, P, serving_since_s=80.0, **changed),
            view(3, D, serving_since_s=0.0),
            view(4, D),
            view(5, D, phase=Phase.SWITCHING),
        ),
    )
    orders = (order(1, D), order(2, D), order(3, P))
    config = PlannerConfig(policy="load", max_changes_per_tick=9, **limits)
    assert [one.instance for one in within_limits(orders, seen, config)] == kept


def test_one_order_per_instance():
    config = PlannerConfig(max_changes_per_tick=9)
    assert within_limits((order(0, D), order(0, Role.MIXED)), cluster([0, 0, 0], [0]), config) == (order(0, D),)


def test_a_dry_run_only_says_what_would_be_done():
    config = PlannerConfig(policy="load", dry_run=True)
    planner = Planner(Tools(config))
    decisions = [planner.tick(cluster([90_000, 90_000], [0, 0], now_s=float(now))) for now in range(20, 23)]
    assert [one.orders for one in decisions] == [(), (), ()]
    assert decisions[1].reason.endswith("decode KV use stays at 0% without it (dry run)")
    assert (decisions[1].target_prefill, decisions[1].target_decode) == (3, 1)


def test_a_policy_that_fails_changes_nothing_and_is_told(monkeypatch):
    def failing(observation, tools, memory):
        if 1.0 < observation.now_s < 4.0:
            return observation.now_s / 0, None
        return Decision((order(0, D),), f"memory is {memory}", 1, 2), memory + 1

    monkeypatch.setitem(POLICIES, "failing", (failing, lambda: 0))
    planner = Planner(Tools(PlannerConfig(policy="failing")))
    decisions = [planner.tick(cluster([0, 0], [0], now_s=float(now))) for now in range(1, 6)]
    assert [len(one.orders) for one in decisions] == [1, 0, 0, 1, 1]
    assert decisions[1].reason.startswith("the policy failed: ZeroDivisionError in ")
    assert decisions[3].reason == "memory is 1"
    (notice,) = planner.notices()
    assert notice.startswith(
        "the planner's policy failed at 2 ticks, which changed nothing; first at 2.0 s: ZeroDivision"
    )
    assert Planner(Tools(PlannerConfig())).notices() == []


def test_static_never_moves_anybody():
    planner = Planner(Tools(PlannerConfig()))
    decision = planner.tick(cluster([10**9, 0], [100_000]))
    assert (decision.orders, decision.reason) == ((), "static")
    assert (decision.target_prefill, decision.target_decode) == (2, 1)


def test_an_observation_knows_how_old_it_is():
    assert Observation(2.5, (view(0, P, now_s=2.5), view(1, D, now_s=0.5))).staleness_s == 2.0
    assert cluster([0], [0], now_s=2.5).staleness_s == 0.0
    assert Observation(1.0, ()).staleness_s == 0.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"policy": "loud"},
            "planner.policy is 'loud'; did you mean load?",
        ),
        ({"interval_s": 0.0}, "planner.interval_s is 0.0; it must be at least 0.001"),
        ({"drain_timeout_s": -1.0}, "planner.drain_timeout_s is -1.0; it must be above 0"),
        ({"min_prefill": 0}, "planner.min_prefill is 0; it must be at least 1"),
        ({"min_decode": 0}, "planner.min_decode is 0; it must be at least 1"),
        ({"max_changes_per_tick": 0}, "planner.max_changes_per_tick is 0; it must be at least 1"),
        ({"max_changing": 0}, "planner.max_changing is 0; it must be at least 1"),
        ({"min_stay_s": -1.0}, "planner.min_stay_s is -1.0; it must not be negative"),
        ({"switch_time_s": -0.1}, "planner.switch_time_s is -0.1; it must not be negative"),
        (
            {"window_s": 4.0},
            "planner.predictor.interval_s is 5, and demand is kept for planner.window_s 4 only; lower the one or raise "
            "the other",
        ),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(ConfigError) as error:
        Planner(Tools(PlannerConfig(**fields)))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("settings", "fields", "message"),
    [
        (
            PredictorSettings,
            {"name": "prophet"},
            "planner.predictor.name is 'prophet'; use arima, average, holt, kalman, last",
        ),
        (PredictorSettings, {"interval_s": 0.0}, "planner.predictor.interval_s is 0.0; it must be above 0"),
        (PredictorSettings, {"window": 0}, "planner.predictor.window is 0; it must be at least 1"),
        (PredictorSettings, {"steps_ahead": 0}, "planner.predictor.steps_ahead is 0; it must be at least 1"),
        (ThroughputSettings, {"margin": 1.0}, "planner.throughput.margin is 1.0; it must be in [0, 1)"),
        (ThroughputSettings, {"cooldown_s": -1.0}, "planner.throughput.cooldown_s is -1.0; it must not be negative"),
        (ReplanSettings, {"drift": 0.0}, "planner.replan.drift is 0.0; it must be above 0"),
        (ReplanSettings, {"num_requests": 0}, "planner.replan.num_requests is 0; it must be at least 1"),
        (ReplanSettings, {"min_interval_s": -1.0}, "planner.replan.min_interval_s is -1.0; it must not be negative"),
        (ConditionalSettings, {"local_tokens": -1}, "planner.conditional.local_tokens is -1; it must not be negative"),
    ],
)
def test_bad_settings_of_a_policy(settings, fields, message):
    with pytest.raises(ConfigError) as error:
        settings(**fields)
    assert str(error.value) == message
