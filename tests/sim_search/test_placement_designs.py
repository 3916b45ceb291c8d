"""What plans are made of machines: shapes, whole numbers, nodes, limits, names, and who wins."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.model import ModelSpec
from cluster.role import Role
from scenario.loading import load_scenario, load_spec
from sim.placement.answer import Answer
from sim.placement.designs import COLOCATED, DISAGGREGATED, NEAR, excess, plans_of
from sim.placement.evaluation import Evaluation
from sim.placement.machine import segments, shapes
from sim.placement.plan import Check, Plan, instances_for
from sim.placement.words import who_wins
from tests.sim_search.placements import group, pool, question


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
    apart = next(plan for plan in held if plan.design == DISAGGREGATED)
    unable = (group("decode", 1.0, tp=8).option, Evaluation(None, "too slow"))
    for found, reason in (
        (Answer(asked, one_kind, [], [], [], []), ""),
        (Answer(asked, one_kind, [], [], [unable], []), ": decode on h100-sxm tp8: too slow"),
        (Answer(asked, one_kind, [], [(apart, "is large")], [], []), f": the least, {apart.counts}, is large"),
        (
            Answer(asked, one_kind, [apart], [], [], []),
            f": the best by its instances, {apart.counts} with {apart.num_gpus} GPUs, is no match",
        ),
    ):
        assert who_wins(found) == f"No disaggregated plan held{reason}."
