"""Studies that simulate: each as a whole is slow, so what they rest on is tested by itself."""

from functools import partial
from types import ModuleType

import numpy as np
import pytest

from sim.parallel import map_parallel
from sim.probe import Probe
from sim.studies import applications, clusters, distserve, phases, placement, sarathi, splits, splitwise
from sim.studies.finite_run import fall_for
from sim.studies.serving import CHAT, Task, apart, search, serving
from sim.studies.study import Verdict

HERE = partial(map_parallel, jobs=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [applications, clusters, distserve, phases, placement, sarathi, splits, splitwise],
    ids=lambda one: one.__name__,
)
def test_no_row_is_unexplained(module: ModuleType) -> None:
    study = module.run(HERE)
    assert study.holds
    assert len(study.claims) >= 5
    assert len({claim.statement for claim in study.claims}) == len(study.claims)
    assert all(claim.reason for claim in study.claims if claim.verdict in (Verdict.DIFFERS, Verdict.SAME_DIRECTION))
    assert all(figure["data"] for figure in study.figures.values())


def test_traffic_has_the_means_asked_for() -> None:
    scenario = serving(CHAT, model="llama-3-8b", gpu="h100-sxm", link="nvlink-h100", ttft_ms=500, tpot_ms=20)
    trace, too_long = Probe(scenario).requests(10.0, 20_000)
    assert not too_long.any()
    assert np.mean(trace.prompt_tokens) == pytest.approx(755, rel=0.02)
    assert np.mean(trace.output_tokens) == pytest.approx(200, rel=0.02)
    assert (scenario.slo.ttft_ms, scenario.slo.tpot_ms) == (500, 20)


def test_figure_1_at_the_tightest_target() -> None:
    """The lecture's 10.92 and 1.68 req/s, and the order of all."""
    scenario = phases.scenario_of(phases.TIGHT, 0)
    prefill = search(Task(scenario, "prefill")).request_rate
    decode = search(Task(scenario, "decode")).request_rate
    chunked = search(Task(scenario)).request_rate
    pair = search(Task(apart(scenario, 1, 1))).request_rate
    assert prefill == pytest.approx(10.92, rel=0.1)
    assert chunked == pytest.approx(1.68, rel=0.1)
    assert chunked < pair / 2 < decode / 2 * 1.01 < prefill


def test_what_fits_beside_opt_13b() -> None:
    claims = applications.memory_claims()
    assert [claim.verdict for claim in claims] == [Verdict.REPRODUCED] * 3
    assert claims[1].ours == "56"


def test_a_finite_run_of_an_overloaded_split_meets_a_loose_slo() -> None:
    trap = fall_for(applications.trapped())
    assert trap.naive > 1.5 * trap.sustained > 0
    assert trap.naive == pytest.approx(10.09, rel=0.3)


def test_clusters_of_machines_that_carry_so_much() -> None:
    """224 kW, that is 40 DGX-H100 of 5.6 kW, 57 capped ones or 70 DGX-A100 of 3.2 kW."""
    rates = {"prefill": (4.0, 1.0), "decode": (4.0, 3.0), "mixed": (1.0, 0.5)}
    goodputs = {
        (clusters.CHAT.name, option.label): rates[option.role][0 if "h100" in option.machine.gpu.name else 1]
        for option in clusters.all_options()
    }
    plans = clusters.plans_within(clusters.CHAT, goodputs, max_watts=clusters.power_budget_w())
    assert clusters.machine_counts(plans["HH"]) == (20, 20)
    assert clusters.machine_counts(plans["HHcap"]) == (23, 23)
    assert plans["HH"].carries == 80
    assert plans["colocated A100"].groups[0].count == clusters.NUM_A100
    # 22 x 5.6 kW and 30 x 3.2 kW carry min(88, 90); with 23 prompt machines there are 29 token machines, which carry 87.
    assert clusters.machine_counts(plans["HA"]) == (22, 30)


def test_a_decode_step_through_two_stages_takes_both() -> None:
    whole, stages = sarathi.decode_s("yi-34b", 4096), sarathi.decode_s("falcon-180b", 1024)
    assert whole == pytest.approx(0.0319, rel=0.02)
    assert stages == pytest.approx(2 * 0.0293 + 0.00012, rel=0.05)


def test_capacity_under_a_target_for_gaps_is_where_gaps_reach_it() -> None:
    task = sarathi.gap_task("mistral-7b", sarathi.SHAREGPT, "strict", ("chunked_prefill", 512))
    loose = sarathi.gap_task("mistral-7b", sarathi.SHAREGPT, "relaxed", ("chunked_prefill", 512))
    assert 5 * task.gap_s == pytest.approx(loose.gap_s)
    assert 0 < sarathi.capacity(task) <= sarathi.capacity(loose) * 1.03


def test_prefill_wants_little_tensor_parallelism() -> None:
    _, prefers, doubles = splits.blog_claims()
    assert prefers.verdict is Verdict.REPRODUCED
    assert (doubles.verdict, bool(doubles.reason)) == (Verdict.DIFFERS, True)


def test_opt_66b_on_two_gpus_leaves_6_gb() -> None:
    assert [claim.verdict for claim in placement.memory_claims()] == [Verdict.REPRODUCED] * 2


def test_tighter_slos_at_half_the_goodput() -> None:
    scenario = distserve.systems_of(distserve.APPLICATIONS[0], attainment=0.9)[distserve.CHUNKS]
    rate = search(Task(scenario)).request_rate
    assert distserve.tightest(distserve.ScaleTask(scenario, rate / 2)) < 1
    assert distserve.tightest(distserve.ScaleTask(scenario, 64 * rate)) == 0.0


def test_the_phases_of_bloom() -> None:
    assert splitwise.phase_claims()[0].ours == "6 tokens"
