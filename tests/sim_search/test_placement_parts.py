"""What a plan is made of: machines, arithmetic, halves of a cluster, bounds and kept results."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from cluster.model import ModelSpec
from cluster.role import Role
from metrics.records import Column
from metrics.slo import SloSpec
from scenario.build import build_cost, kv_capacity
from scenario.loading import load_scenario, load_spec
from scenario.spec import HandoffConfig
from sim.placement.answer import Answer
from sim.placement.bounds import upper_bound
from sim.placement.cache import ResultCache
from sim.placement.designs import COLOCATED, DISAGGREGATED, NEAR, excess, plans_of
from sim.placement.fitting import FitTask, fit
from sim.placement.halves import decode_alone, first_tokens_only, prefill_alone
from sim.placement.machine import GpuPool, Machine, segments, shapes
from sim.placement.option import Option
from sim.placement.plan import Check, Group, Plan, instances_for
from sim.placement.question import Question
from sim.placement.words import who_wins
from sim.probe import Probe
from sim.queueing import simulated_ttft_s, single_ttft_s
from sim.sustain import Sampling
from sim.traffic import Traffic
from sim.unloaded import unloaded

GPUS = {name: load_spec(GpuSpec, name) for name in ("a100-80gb", "h100-sxm", "l40s")}
LINKS = {name: load_spec(LinkSpec, gpu.link) for name, gpu in GPUS.items()}


def pool(name, count):
    return GpuPool(GPUS[name], LINKS[name], count)


def machine(tp=1, pp=1, gpu="h100-sxm", **more):
    return Machine(GPUS[gpu], LINKS[gpu], tp, pp, **more)


def group(role, goodput, count=1, is_near=False, **shape):
    policy = {"policy": "chunked_prefill", "token_budget": 512} if role == "mixed" else {}
    return Group(Option(role, machine(**shape), is_near=is_near, **policy), count, goodput)


def question(**changes):
    base = {"scenario": load_scenario("demo"), "pools": (pool("h100-sxm", 64),), "request_rate": 10.0, "headroom": 0.0}
    return Question(**{**base, **changes})


# Machines.


def test_shapes_of_opt_66b_on_nodes_of_8_a100():
    """72 heads; 131.4 GB of weights against 72 GB a GPU."""
    fitting, unfit = shapes(load_spec(ModelSpec, "opt-66b"), pool("a100-80gb", 32), 8)
    found = [(one.tp, one.pp) for one in fitting]
    assert found[:5] == [(2, 1), (3, 1), (4, 1), (6, 1), (8, 1)]
    assert set(found[5:]) == {(tp, pp) for tp in (1, 2, 3, 4) for pp in range(2, 9) if tp * pp <= 8}
    assert [one.what for one in unfit] == ["a100-80gb tp5, tp7", "a100-80gb tp1"]
    assert unfit[1].reason.startswith("no room for KV: opt-66b has 131.4 GB of weights, and a GPU 72.0 GB")


def test_segments_only_where_two_instances_do_not_fit_on_a_node():
    """OPT-175B: 349 GB; on two nodes of 8 a prefill and a decode instance fit beside each other, on one not."""
    opt_175b, opt_66b = load_spec(ModelSpec, "opt-175b"), load_spec(ModelSpec, "opt-66b")
    assert segments(opt_66b, pool("a100-80gb", 32), 8) == []
    assert segments(opt_175b, pool("a100-80gb", 8), 8) == []
    found = [(one.tp, one.pp, one.num_nodes) for one in segments(opt_175b, pool("a100-80gb", 32), 8)]
    assert found == [(3, 2, 2), (4, 2, 2), (6, 2, 2), (2, 3, 3), (3, 3, 3), (4, 3, 3), (6, 3, 3)]


# Arithmetic.


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e3))
def test_enough_instances_and_none_too_many(rate, goodput):
    count = instances_for(rate, goodput)
    assert count * goodput >= rate * (1 - 1e-8)
    assert count == 1 or (count - 1) * goodput < rate


@pytest.mark.parametrize(("rate", "apart", "together"), [(5, 12, 8), (30, 24, 24), (200, 128, 144)])
def test_exercise_6(rate, apart, together):
    """Prefill 7.7 req/s on 4 GPUs, decode 86 on 8, colocated 11.4 on 8."""
    found = [group("prefill", 7.7, tp=4), group("decode", 86.0, tp=8), group("mixed", 11.4, tp=8)]
    plans = {plan.design: plan for plan in plans_of(question(request_rate=float(rate)), found)}
    assert plans[DISAGGREGATED].num_gpus == apart
    assert plans[COLOCATED].num_gpus == together
    assert plans[DISAGGREGATED].goodput_per_gpu == pytest.approx(1 / (4 / 7.7 + 8 / 86))
    assert plans[COLOCATED].goodput_per_gpu == pytest.approx(1.425)
    assert plans[DISAGGREGATED].rounding_loss(rate) == pytest.approx(apart / (rate * (4 / 7.7 + 8 / 86)) - 1)


def test_a_unit_has_the_numbers_that_serve_at_least_cost():
    """Nodes of 8: 3 x tp2 prefill and one decode carry 9 of the 18 req/s; with fewer, a unit carries less per GPU."""
    found = [group("prefill", 3.0, tp=2), group("decode", 9.0, tp=2, is_near=True)]
    (unit,) = [plan for plan in plans_of(question(request_rate=18.0), found) if plan.design == NEAR]
    assert (unit.counts, unit.num_gpus, unit.carries) == ("2 x (3P tp2 + 1D tp2)", 16, 18.0)
    assert unit.nodes_of("h100-sxm", 8) == 2


@pytest.mark.parametrize(
    ("plan", "nodes"),
    [
        (Plan("", (group("prefill", 1, 2, tp=4), group("decode", 1, 1, tp=8))), 2),
        (Plan("", (group("prefill", 1, 2, tp=6), group("decode", 1, 2, tp=2))), 3),
        (Plan("", (group("mixed", 1, 5, tp=2),)), 2),
        (Plan("", (group("prefill", 1, 1, tp=2), group("decode", 1, 1, tp=2)), units=3, is_unit=True), 2),
        (Plan("", (group("prefill", 1, 1, tp=3, pp=3, num_nodes=3),), units=3, is_unit=True), 6),
    ],
)
def test_nodes(plan, nodes):
    """Instances fill nodes in order, as the scenario's placement does."""
    assert plan.nodes_of("h100-sxm", 8) == nodes
    assert plan.nodes_of("a100-80gb", 8) == 0


def test_highest_rate_within_watts():
    """10 kW are 14 H100s of 700 W: 4P2D of tp2 carry 8 req/s, and a fifth prefill instance would not help."""
    found = [group("prefill", 2.0, tp=2), group("decode", 4.0, tp=2)]
    asked = question(objective="rate", request_rate=None, max_watts=10_000)
    (plan,) = plans_of(asked, found)
    assert (plan.counts, plan.carries, plan.watts) == ("4P tp2 + 2D tp2", 8.0, 8400)


def test_limits_in_words():
    plan = Plan("", (group("mixed", 1.0, 3, tp=4),))
    for changes, sentence in (
        ({}, ""),
        ({"pools": (pool("h100-sxm", 8),)}, "needs 12 h100-sxm, and there are 8"),
        ({"pools": (pool("h100-sxm", 12),), "gpus_per_node": 6}, "takes 3 nodes of 6 h100-sxm, and there are 2"),
        ({"max_usd_per_hour": 50}, "costs $57.00 an hour, and $50 is allowed"),
        ({"max_watts": 8000}, "may draw 8,400 W, and 8,000 W is allowed"),
    ):
        assert excess(question(**changes), plan) == sentence


def test_splitwise_names_and_caps():
    """Prompt machines H100, token machines A100 or capped H100."""
    found = [
        group("prefill", 5.0, tp=4),
        group("decode", 20.0, tp=4),
        group("decode", 20.0, tp=4, power_cap=0.7),
        group("decode", 15.0, tp=4, gpu="a100-80gb"),
    ]
    asked = question(pools=(pool("h100-sxm", 64), pool("a100-80gb", 64)), objective="watts")
    plans = {plan.design: plan for plan in plans_of(asked, found)}
    assert {name: plan.watts for name, plan in plans.items()} == {
        "disaggregated HH": 8400.0,
        "disaggregated HHcap": 7560.0,
        "disaggregated HA": 7200.0,
    }
    assert plans["disaggregated HA"].counts == "2P h100-sxm tp4 + 1D a100-80gb tp4"
    assert plans["disaggregated HHcap"].counts == "2P tp4 + 1D tp4 cap 70 %"
    scenario = plans["disaggregated HA"].scenario(asked.scenario, 8)
    assert scenario.hardware_of(Role.DECODE).gpu.name == "a100-80gb"
    assert scenario.gpus_per_node is None
    capped = plans["disaggregated HHcap"].scenario(asked.scenario, 8)
    assert [capped.hardware_of(role).power_cap for role in (Role.PREFILL, Role.DECODE)] == [1.0, 0.7]


def test_a_unit_of_segments_is_joined_by_two_links():
    """KV from stage to stage over NVLink, activations from node to node over the link between them."""
    near = [group(role, 5.0, is_near=True, tp=3, pp=3, num_nodes=3) for role in ("prefill", "decode")]
    (unit,) = [plan for plan in plans_of(question(request_rate=4.0), near) if plan.is_unit]
    scenario = unit.scenario(load_scenario("demo", {"link": "ethernet-25"}), 8)
    assert (scenario.link.name, scenario.gpu_link.name, scenario.stage_link.name) == (
        "nvlink-h100",
        "nvlink-h100",
        "ethernet-25",
    )
    assert unit.counts == "1 x (1P tp3 pp3 + 1D tp3 pp3 over 3 nodes)"


@pytest.mark.parametrize(
    ("apart", "together", "sentence"),
    [
        (10.0, 5.0, "Disaggregation wins: 8 GPUs against 16, 50 % less."),
        (4.0, 10.0, "Colocation wins: 8 GPUs against 24, 67 % less."),
        (5.0, 5.0, "A tie: disaggregated or colocated, 16 GPUs."),
    ],
)
def test_who_wins(apart, together, sentence):
    found = [group("prefill", apart, tp=4), group("decode", apart, tp=4), group("mixed", together, tp=8)]
    asked = question()
    held = [replace(plan, check=Check(10.0, 0.95, 2)) for plan in plans_of(asked, found)]
    assert who_wins(Answer(asked, held, [], [], [], [])) == sentence
    one_kind = [plan for plan in held if plan.design == COLOCATED]
    assert who_wins(Answer(asked, one_kind, [], [], [], [])) == "No disaggregated plan held."


# Halves.

FIXED = {"prompt": {"mean": 1000, "kind": "fixed"}, "output": {"mean": 50, "kind": "fixed"}}


def one_size(**changes):
    phase = {"duration_s": 60, "request_rate": 1, **FIXED}
    base = {"workload.phases": [phase], "instances": {"prefill": 1, "decode": 1}, "engine.prefill_batch_tokens": 1}
    return load_scenario("steady-8b", {**base, **changes})


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


# Bounds.


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


# Kept results.


def content(scenario, **more):
    return {"scenario": {"workload": {"trace": scenario}}, **more}


def test_results_are_kept_by_content(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("one")
    cache = ResultCache(tmp_path / "kept", str(trace))
    cache.put(content("a.csv", rate=1.0), {"found": 2.5})
    again = ResultCache(tmp_path / "kept", str(trace))
    assert again.get(content("moved/a.csv", rate=1.0)) == {"found": 2.5}
    assert again.get(content("a.csv", rate=1.5)) is None
    trace.write_text("two")
    assert ResultCache(tmp_path / "kept", str(trace)).get(content("a.csv", rate=1.0)) is None
    (file,) = (tmp_path / "kept").rglob("*.json")
    file.write_text("{")
    trace.write_text("one")
    assert ResultCache(tmp_path / "kept", str(trace)).get(content("a.csv", rate=1.0)) is None
    assert ResultCache(None).get(content("a.csv")) is None


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        ConfigError, match=r"results cannot be kept in .*file/kept: Not a directory; choose another folder"
    ):
        ResultCache(tmp_path / "file" / "kept")


def test_numbers_that_did_not_hold_are_not_tried_again():
    """Two prefill instances hold the rate, and one does not: growing from one to two must not start a circle."""
    scenario = one_size(slo={"ttft_ms": 100, "tpot_ms": 50}, link="ideal")
    service_s = build_cost(scenario, Role.PREFILL).step_s(1000, 1, 500_000.0, 1000)
    asked = question(
        scenario=scenario, pools=(pool("h100-sxm", 8),), request_rate=1.2 / service_s, sampling=Sampling(200, 400)
    )
    plan = Plan(DISAGGREGATED, (group("prefill", 60.0), group("decode", 90.0)))

    def fitted(plan):
        return fit(FitTask(plan, asked)).applied(plan)

    more = fitted(plan)
    assert (more.counts, more.check, more.too_small) == ("2P tp1 + 1D tp1", None, {(1, 1)})
    assert fitted(more).counts == "2P tp1 + 1D tp1"
    assert fitted(more).check is not None
    assert fitted(plan.with_counts({"prefill": 4, "decode": 2})).counts == "2P tp1 + 1D tp1"
    told = replace(plan, too_small=frozenset({(3, 1)}))
    assert fitted(told.with_counts({"prefill": 4, "decode": 1})).counts == "4P tp1 + 1D tp1"
    assert [
        told.with_counts({"prefill": p, "decode": d}).is_too_small for p, d in ((2, 1), (3, 1), (4, 1), (2, 2))
    ] == [
        True,
        True,
        False,
        False,
    ]


def test_a_plan_whose_slos_the_whole_cannot_meet_is_set_aside():
    """Prefill alone and decode alone are fast enough; together the E2E target is out of reach."""
    scenario = one_size(slo={"e2e_ms": 315}, link="ideal")
    plan = Plan(DISAGGREGATED, (group("prefill", 20.0), group("decode", 50.0)))
    asked = Question(
        scenario=scenario, pools=(pool("h100-sxm", 8),), request_rate=1.0, headroom=0.0, sampling=Sampling(50, 50)
    )
    halves = ((prefill_alone, first_tokens_only), (decode_alone, None))
    assert all(unloaded(Probe(half(scenario), trim=trim)).attainment == 1 for half, trim in halves)
    made = fit(FitTask(plan, asked)).applied(plan)
    assert made.check is None
    assert made.counts_by_role == {"prefill": 1, "decode": 1}
    assert excess(asked, made).startswith("slo.e2e_ms is 315 ms, which no request meets even when each has the cluster")
