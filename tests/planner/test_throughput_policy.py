"""The `throughput` policies: capacities and splits computed by hand, and what stops them from moving."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.role import Phase, Role
from planner.config import PlannerConfig, PredictorSettings, ThroughputSettings
from planner.history import Load
from planner.observation import Observation
from planner.planner import Planner
from planner.throughput import (
    Corrections,
    decode_capacity,
    fit,
    observed_corrections,
    prefill_capacity,
    wanted,
)
from tests.planner.engines import ENGINE, steady, tools_of
from tests.planner.views import view

P, D = Role.PREFILL, Role.DECODE
CHAT = Load(12.0, 900, 200)
"""A prompt takes 10 ms + 90.9 ms in a step of its own; a batch decodes in 10 ms + 1.1 ms per sequence at context 1000."""


@pytest.mark.parametrize(
    ("prompt", "ttft_s", "capacity"),
    [
        (900, 0.5, 5 / 0.4645),  # 6 would take 555.4 ms
        (900, 0.2, 2 / 0.1918),
        (900, 0.05, 1 / 0.1009),  # too long even alone
        (900, inf, 256 / (0.010 + 256 * 0.0909)),
        (0, 0.5, inf),
    ],
)
def test_prefill_capacity(prompt, ttft_s, capacity):
    assert prefill_capacity(ENGINE, prompt, ttft_s) == pytest.approx(capacity)


@pytest.mark.parametrize(
    ("kv_tokens", "itl_s", "capacity"),
    [
        (100_000, 0.033, 20 / (200 * 0.032)),
        (10_000, 0.033, 10 / (200 * 0.021)),  # KV ends before the target does
        (100_000, 0.005, 1 / (200 * 0.0111)),  # too slow even alone
        (10**9, inf, 256 / (200 * (0.010 + 256 * 0.0011))),
    ],
)
def test_decode_capacity(kv_tokens, itl_s, capacity):
    engine = replace(ENGINE, kv_capacity_tokens=kv_tokens)
    assert decode_capacity(engine, 900, 200, itl_s) == pytest.approx(capacity)
    assert decode_capacity(engine, 900, 0, itl_s) == inf


@pytest.mark.parametrize(
    ("needed", "total", "split"),
    [
        ((2, 4), 4, (1, 3)),
        ((10, 1), 6, (5, 1)),
        ((1, 1), 8, (4, 4)),
        ((3, 1), 8, (6, 2)),
        ((1, 9), 4, (1, 3)),
        ((5, 1), 2, (1, 1)),
    ],
)
def test_fit(needed, total, split):
    assert fit(needed, PlannerConfig(), total) == split


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 5), st.integers(1, 5), st.integers(0, 40))
def test_fit_raises_no_role_that_it_has_to_shrink(prefill, decode, min_prefill, min_decode, spare):
    needed = max(prefill, min_prefill), max(decode, min_decode)
    total = min_prefill + min_decode + spare
    split = fit(needed, PlannerConfig(min_prefill=min_prefill, min_decode=min_decode), total)
    assert sum(split) == total
    assert split[0] >= min_prefill
    assert split[1] >= min_decode
    if total <= sum(needed):
        assert split <= needed or (split[0] <= needed[0] and split[1] <= needed[1])
    else:
        assert split[0] >= needed[0]
        assert split[1] >= needed[1]


@pytest.mark.parametrize(
    ("load", "split", "corrections", "wants"),
    [
        # 12 / 10.76 = 1.1 prefill and 12 / 3.125 = 3.8 decode instances.
        (CHAT, (2, 2), Corrections(), (1, 3)),
        (CHAT, (2, 4), Corrections(), None),
        (CHAT, (1, 3), Corrections(), None),
        # Iterations twice as long as expected: the target halves, 5 sequences at 15.5 ms, 7.44 decode instances.
        (CHAT, (3, 5), Corrections(), None),
        (CHAT, (3, 5), Corrections(itl=2.0), (2, 6)),
        # A TTFT of half of what was expected halves the prefill work, one of twice as much does nothing.
        (Load(30.0, 900, 20), (2, 3), Corrections(ttft=0.5), None),
        (Load(30.0, 900, 20), (2, 3), Corrections(ttft=2.0), (4, 1)),
        # Nothing asked for: anything carries it, as long as no role is empty.
        (Load(0.0, 0, 0), (3, 1), Corrections(), None),
        (Load(0.0, 0, 0), (0, 4), Corrections(), (2, 2)),
        (CHAT, (4, 0), Corrections(), (1, 3)),
    ],
)
def test_wanted(load, split, corrections, wants):
    assert wanted(load, split, tools_of("throughput"), corrections)[0] == wants


@pytest.mark.parametrize(("margin", "wants"), [(0.2, (1, 3)), (0.4, None)])
def test_a_change_that_hardly_helps_is_not_made(margin, wants):
    """From 3.84 / 2 to 3.84 / 3 is a third less."""
    tools = tools_of("throughput", throughput=ThroughputSettings(margin=margin))
    assert wanted(CHAT, (2, 2), tools, Corrections())[0] == wants


def decode_view(index, iteration_s, *, since_s=0.0, epoch=1):
    """Ten sequences at context 1000, which should take 21 ms."""
    return view(
        index, D, num_decoding=10, context_tokens=10_000, iteration_s=iteration_s, serving_since_s=since_s, epoch=epoch
    )


@pytest.mark.parametrize(
    ("views", "itl"),
    [
        ([decode_view(1, 0.042)], 2.0),
        ([decode_view(1, 0.042), decode_view(2, 0.021)], 1.5),
        ([decode_view(1, 0.021), decode_view(2, 0.5, since_s=98.0)], 1.0),  # just switched: still warming up
        ([decode_view(1, 0.5, since_s=98.0)], 1.0),
        ([decode_view(1, 0.042, since_s=98.0, epoch=0)], 2.0),  # has never switched
        ([view(1, D)], 1.0),  # idle
    ],
)
def test_iterations_of_an_instance_that_warms_up_do_not_count(views, itl):
    seen = Observation(100.0, tuple(views))
    assert observed_corrections(seen, tools_of("throughput_corrected")).itl == pytest.approx(itl)


def test_observed_ttft_is_over_that_of_the_same_prompts():
    demand = replace(steady(1.0, 5000, 10, now_s=20.0), mean_ttft_s=0.2018, ended_prompt_tokens=900)
    assert observed_corrections(Observation(20.0, (), demand), tools_of()).ttft == pytest.approx(2.0)


def observe(prefill, decode, demand, now_s):
    roles = [P] * prefill + [D] * decode
    return Observation(now_s, tuple(view(index, role, now_s=now_s) for index, role in enumerate(roles)), demand)


def test_it_moves_step_by_step_and_then_rests():
    """4P4D under 24 req/s, which takes 3P8D, goes to 2P6D, one per tick. Then comes a load that takes 6P2D: it is
    judged when the cooldown is over."""
    fields = {"predictor": PredictorSettings(name="last"), "throughput": ThroughputSettings(cooldown_s=10.0)}
    planner = Planner(tools_of("throughput", **fields))
    prefill, moves = 4, []
    for now in range(1, 40):
        load = (24.0, 900, 200) if now < 12 else (60.0, 900, 20)
        decision = planner.tick(observe(prefill, 8 - prefill, steady(*load, now_s=float(now)), float(now)))
        for order in decision.orders:
            moves.append((now, order.role))
            prefill += 1 if order.role is P else -1
    assert moves == [(5, D), (6, D), (20, P), (21, P), (22, P), (23, P)]


def test_nothing_is_decided_between_windows_or_during_a_change():
    planner = Planner(tools_of("throughput"))
    demand = steady(12.0, 900, 200, now_s=4.0)
    assert planner.tick(observe(2, 2, demand, 4.0)).reason == "demand has not been seen for long enough"
    demand = steady(12.0, 900, 200, now_s=5.0)
    seen = observe(2, 2, demand, 5.0)
    draining = replace(seen, instances=(*seen.instances, view(4, D, phase=Phase.DRAINING, now_s=5.0)))
    assert planner.tick(draining).reason == "a role change is under way"
    seen = observe(2, 2, steady(12.0, 900, 200, now_s=10.0), 10.0)
    decision = planner.tick(seen)
    assert decision.reason == "12.0 req/s of 900 + 200 tokens expected, which takes 2P4D"
    assert [(order.instance, order.role, order.cause) for order in decision.orders] == [(0, D, "decode_throughput")]
    assert (decision.target_prefill, decision.target_decode) == (1, 3)


def test_a_warm_start_is_the_past():
    """With 40 req/s before the run, an average does not believe in a quiet first window."""
    past = (Load(40.0, 900, 200),) * 5
    tools = tools_of("throughput", predictor=PredictorSettings(name="average"))
    seen = observe(2, 2, steady(10.0, 900, 200, now_s=5.0), 5.0)
    assert Planner(replace(tools, past=past)).tick(seen).reason.startswith("35.0 req/s")
    assert Planner(tools).tick(seen).reason.startswith("10.0 req/s")
