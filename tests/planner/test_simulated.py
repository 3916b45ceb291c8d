"""Every policy in a running cluster: nobody is lost, books balance, and a constant load is left in peace."""

from dataclasses import replace
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.request import Status
from cluster.role import Role
from metrics.records import Column
from metrics.slo import SloSpec
from planner.config import (
    ConditionalSettings,
    LookaheadSettings,
    PlannerConfig,
    PredictorSettings,
    ReplanSettings,
    ThroughputSettings,
)
from planner.planner import POLICIES
from scenario.build import smallest_kv_capacity
from scenario.loading import load_scenario
from scenario.spec import RouterConfig
from sim.run import simulate, tools_of
from sim.simulator import Simulator
from sim.variants import run_scenario
from tests.reference.cases import scenario_of
from tests.sim.test_invariants import check_causality, check_requests, check_steps, shifting_runs
from workload.spec import Lengths, Phase
from workload.synthetic import generate

MEASURED = [name for name in POLICIES if name != "lookahead"]


@pytest.mark.parametrize(
    ("policy", "how"), [*((name, "drain") for name in POLICIES), ("throughput", "migrate"), ("replan", "migrate")]
)
def test_the_demo_loses_nothing(policy, how):
    result = run_scenario(load_scenario("demo", {"planner.policy": policy, "planner.how": how}))
    records = result.records
    assert (records[:, Column.STATUS] == Status.FINISHED).all()
    assert (records[:, Column.GENERATED_TOKENS] == records[:, Column.OUTPUT_TOKENS]).all()
    assert len(records) == result.num_requests
    assert result.notices == []
    if policy in ("static", "conditional"):
        assert not result.role_changes
    else:
        assert result.role_changes


def test_drains_that_take_too_long_are_rolled_back_and_tried_again():
    """At 50 ms, nobody gets rid of its decodes in time; prefill instances do."""
    changes = {"planner.policy": "load", "planner.how": "drain", "planner.drain_timeout_s": 0.05}
    result = run_scenario(load_scenario("demo", changes))
    given_up = [change for change in result.role_changes if isnan(change.served_s)]
    assert {change.old_role for change in given_up} == {Role.DECODE}
    assert len(given_up) > 1
    assert (result.records[:, Column.STATUS] == Status.FINISHED).all()
    for change in given_up:
        spans = [span for span in result.role_spans if span.instance == change.instance]
        draining = next(span for span in spans if span.start_s == change.decided_s)
        assert (draining.phase, draining.role) == ("draining", Role.DECODE)
        assert draining.end_s - draining.start_s == pytest.approx(0.05)
        assert next(span.role for span in spans if span.start_s == draining.end_s) == Role.DECODE


def test_demand_that_vanishes_in_the_middle_of_a_change():
    """Traffic ends at 8 s, the last request before the instance is ready: it still gets there, and nobody else moves."""
    phase = Phase(duration_s=8.0, request_rate=26.0, prompt=Lengths(mean=3000), output=Lengths(mean=5))
    planner = PlannerConfig(policy="throughput", switch_time_s=30.0, predictor=PredictorSettings(name="last"))
    scenario = scenario_of(prefill=1, decode=3, slo=SloSpec(ttft_ms=500, tpot_ms=15), planner=planner)
    result = simulate(scenario, generate([phase], np.random.default_rng(1)))
    (change,) = result.role_changes
    assert change.decided_s < 8.0
    assert change.served_s == pytest.approx(change.drained_s + 30.0)
    assert (result.records[:, Column.STATUS] == Status.FINISHED).all()
    assert result.records[:, Column.FINISHED_S].max() < change.served_s


@pytest.mark.parametrize("policy", ["load", "arrow"])
def test_a_dry_run_changes_nothing(policy):
    result = run_scenario(load_scenario("demo", {"planner.policy": policy, "planner.dry_run": True}))
    assert result.role_changes == []
    assert any(reason.endswith("(dry run)") for _, reason in result.planner_words) is (policy == "load")


def test_a_run_goes_on_under_a_policy_that_fails(monkeypatch):
    monkeypatch.setitem(POLICIES, "load", (lambda observation, tools, memory: None.orders, lambda: None))
    result = run_scenario(load_scenario("demo", {"planner.policy": "load"}))
    assert (result.records[:, Column.STATUS] == Status.FINISHED).all()
    assert "AttributeError" in result.notices[0]


@st.composite
def planners(draw: st.DrawFn) -> PlannerConfig:
    """Planners that change their mind far too readily."""
    return PlannerConfig(
        policy=draw(st.sampled_from(MEASURED)),
        interval_s=draw(st.sampled_from([0.05, 0.3])),
        window_s=1.0,
        max_changes_per_tick=draw(st.sampled_from([1, 3])),
        switch_time_s=draw(st.sampled_from([0.0, 0.2])),
        drain_timeout_s=draw(st.sampled_from([0.1, 100.0])),
        how=draw(st.sampled_from(["drain", "migrate"])),
        predictor=PredictorSettings(name=draw(st.sampled_from(["last", "holt"])), interval_s=0.3),
        throughput=ThroughputSettings(margin=0.0, cooldown_s=0.0, warm_up_s=0.0),
        replan=ReplanSettings(drift=0.1, min_requests=2, min_interval_s=0.3, num_requests=5),
        conditional=ConditionalSettings(local_tokens=draw(st.sampled_from([None, 0, 100, 100_000]))),
        lookahead=LookaheadSettings(horizon_s=0.5, margin=0.0, strain=0.01, cooldown_s=0.0),
    )


@given(shifting_runs(), planners(), st.sampled_from([(20, 1), (200, 4), (2000, 30)]))
def test_shifting_load(run, planner, targets):
    scenario, trace = run
    if planner.policy in ("arrow", "conditional"):
        scenario = replace(scenario, router=RouterConfig())
    slo = SloSpec(ttft_ms=targets[0], tpot_ms=targets[1])
    scenario = replace(scenario, planner=planner, slo=slo)
    limit = smallest_kv_capacity(scenario)
    too_long = trace.prompt_tokens + trace.output_tokens > limit
    simulator = Simulator(scenario, trace, too_long, tools=tools_of(scenario))
    result = simulator.run()
    check_requests(result.records, trace, limit)
    check_causality(result.records)
    check_steps(result)
    for books in (simulator._router.prompts, simulator._router.handoffs):
        assert set(books.booked.values()) <= {0}
    for time in {span.start_s for span in result.role_spans}:
        now = [span for span in result.role_spans if span.start_s <= time < span.end_s and span.phase == "serving"]
        if planner.policy != "splitwise":
            assert {Role.PREFILL, Role.DECODE} <= {span.role for span in now}


STEADY = {"prompts": (1, (26.0, 3000, 20)), "outputs": (3, (25.0, 200, 800))}
"""The split to begin with, far from the best, as its prefill instances of 4; rate, ISL and OSL."""
SETTLING = ["throughput", "throughput_corrected", "replan", "conditional", "lookahead"]
"""load has a test of its own. What splitwise and arrow do at a constant load depends on who is idle when."""


@pytest.mark.parametrize("policy", SETTLING)
@pytest.mark.parametrize("load", STEADY)
def test_a_constant_load_settles(policy, load):
    """No change in the second half."""
    prefill, (rate, prompt, output) = STEADY[load]
    lengths = {"prompt": Lengths(mean=prompt), "output": Lengths(mean=output, maximum=2000)}
    trace = generate([Phase(duration_s=100.0, request_rate=rate, **lengths)], np.random.default_rng(1))
    scenario = scenario_of(
        prefill=prefill,
        decode=4 - prefill,
        slo=SloSpec(ttft_ms=500, tpot_ms=15),
        planner=PlannerConfig(policy=policy, how="migrate"),
    )
    result = simulate(scenario, trace)
    assert (result.records[:, Column.STATUS] == Status.FINISHED).all()
    assert [change for change in result.role_changes if 50 < change.decided_s < 100] == []
    if policy not in ("conditional", "lookahead"):
        assert result.role_changes
