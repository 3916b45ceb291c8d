"""Plans simulated as wholes: numbers of instances that did not hold, and plans that cannot."""

from dataclasses import replace

from cluster.role import Role
from scenario.build import build_cost
from sim.placement.designs import DISAGGREGATED, excess
from sim.placement.fitting import FitTask, fit
from sim.placement.halves import decode_alone, first_tokens_only, prefill_alone
from sim.placement.plan import Plan
from sim.placement.question import Question
from sim.probe import Probe
from sim.sustain import Sampling
from sim.unloaded import unloaded
from tests.sim_search.placements import group, one_size, pool, question


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
