"""Prefill alone and decode alone: what a half of a cluster gives, and what it cannot give more of."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from cluster.role import Role
from metrics.records import Column
from metrics.slo import SloSpec
from scenario.build import build_cost, kv_capacity
from scenario.loading import load_scenario
from scenario.spec import HandoffConfig
from sim.placement.bounds import upper_bound
from sim.placement.halves import decode_alone, first_tokens_only, prefill_alone
from sim.probe import Probe
from sim.queueing import simulated_ttft_s, single_ttft_s
from sim.traffic import Traffic
from tests.sim_search.placements import one_size


@pytest.mark.parametrize("load", [0.3, 0.6, 0.85])
def test_prefill_alone_is_an_m_d_1_queue(load):
    """The engine itself, against the formula, with prompts of one length and no batching."""
    scenario = prefill_alone(one_size())
    service_s = build_cost(scenario, Role.PREFILL).step_s(1000, 1, 500_000.0, 1000)
    probe = Probe(scenario, trim=first_tokens_only)
    records = probe.simulate(load / service_s, 15_000).records
    ttft_s = records[:, Column.FIRST_TOKEN_S] - records[:, Column.ARRIVAL_S]
    spread = simulated_ttft_s([service_s], load / service_s, 15_000, np.random.default_rng(0)).error
    assert abs(ttft_s.mean() - single_ttft_s(service_s, load / service_s)) < 4 * spread
    assert (records[:, Column.GENERATED_TOKENS] == 1).all()


def test_prefill_alone_gives_the_first_tokens_of_the_whole():
    """While KV leaves quickly, decode does not matter to TTFT."""
    whole = load_scenario("steady-8b", {"instances": {"prefill": 2, "decode": 2}})
    half = Probe(prefill_alone(whole, 2), trim=first_tokens_only).simulate(30.0, 800).records
    both = Probe(whole).simulate(30.0, 800).records
    assert half[:, Column.FIRST_TOKEN_S].tolist() == both[:, Column.FIRST_TOKEN_S].tolist()


def test_decode_alone_gets_requests_as_they_arrive_with_their_kv_still_to_move():
    scenario = decode_alone(one_size())
    records = Probe(scenario).simulate(0.01, 30).records
    assert records[:, Column.FIRST_TOKEN_S] == pytest.approx(records[:, Column.ARRIVAL_S], abs=1e-9)
    transfer_s = scenario.link.transfer_s(1000 * scenario.model.kv_bytes_per_token)
    run = build_cost(scenario, Role.DECODE).decode_run(1, 1001)
    stay_s = records[:, Column.FINISHED_S] - records[:, Column.ARRIVAL_S]
    assert stay_s == pytest.approx(transfer_s + run.duration_s(49), rel=1e-9)


def test_halves_are_judged_on_what_they_have_a_part_in():
    whole = replace(one_size(), slo=SloSpec(ttft_ms=1, tpot_ms=2, e2e_ms=3))
    assert prefill_alone(whole).slo == SloSpec(ttft_ms=1, e2e_ms=3)
    assert decode_alone(whole).slo == SloSpec(tpot_ms=2, e2e_ms=3)
    layerwise = replace(whole, handoff=HandoffConfig(initiative="push", mode="layerwise"))
    assert decode_alone(layerwise).link.name == "ideal"


def test_first_tokens_only():
    trace = Traffic(load_scenario("steady-8b")).trace(1.0, 50)
    assert first_tokens_only(trace).output_tokens.tolist() == [1] * len(trace)
    assert first_tokens_only(replace(trace, output_tokens=0 * trace.output_tokens)).output_tokens.tolist() == [0] * len(
        trace
    )


def test_seat_bound_by_hand():
    """1000 + 50 tokens held for 49 iterations of at least 6.3 ms."""
    scenario = one_size(link="ideal")
    iteration_s = build_cost(scenario, Role.DECODE).decode_run(1, 0).first_s
    requests = Traffic(scenario).trace(1.0, 100)
    by_memory = kv_capacity(scenario, Role.DECODE) / (1050 * 49 * iteration_s)
    bound, cause = upper_bound(scenario, Role.DECODE, requests)
    assert (bound, cause) == (pytest.approx(min(by_memory, 256 / 49 / iteration_s)), "KV memory and seats")
    assert upper_bound(scenario, Role.PREFILL, requests)[0] == inf
    tight = load_scenario("steady-8b", {"engine.max_batch": 2})
    few, _ = upper_bound(tight, Role.DECODE, Traffic(tight).trace(1.0, 100))
    assert few < upper_bound(load_scenario("steady-8b"), Role.DECODE, Traffic(tight).trace(1.0, 100))[0]


def test_link_bound_by_hand():
    """1000 tokens of 131,072 B over 2.5 GB/s."""
    scenario = one_size(link="ethernet-25")
    requests = Traffic(scenario).trace(1.0, 100)
    assert upper_bound(scenario, Role.DECODE, requests) == (pytest.approx(2.5e9 / 131_072_000), "the link")


@pytest.mark.parametrize("max_batch", [1, 8])
def test_no_run_decodes_more_than_the_bound(max_batch):
    scenario = one_size(**{"engine.max_batch": max_batch, "slo": {}})
    probe = Probe(decode_alone(scenario))
    result = probe.simulate(50.0, 150)
    bound, _ = upper_bound(scenario, Role.DECODE, Traffic(scenario).trace(1.0, 150))
    assert 0.5 * bound < len(result.records) / result.duration_s <= bound
