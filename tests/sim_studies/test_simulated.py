"""Studies that simulate: each as a whole is slow, so what they rest on is tested by itself."""

from functools import partial
from types import ModuleType

import numpy as np
import pytest

from sim.parallel import map_parallel
from sim.probe import Probe
from sim.studies import phases, placement, sarathi, splits, splitwise
from sim.studies.serving import CHAT, Task, apart, search, serving
from sim.studies.study import Verdict

HERE = partial(map_parallel, jobs=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [phases, placement, sarathi, splits, splitwise],
    ids=lambda one: one.__name__,
)
def test_no_row_is_unexplained(module: ModuleType) -> None:
    study = module.run(HERE)
    assert study.holds
    assert len(study.claims) >= 5
    assert len({claim.statement for claim in study.claims}) == len(study.claims)
    assert sum(claim.verdict is Verdict.DIFFERS for claim in study.claims) <= len(study.claims) // 2
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
    scenario = phases._scenario(phases.TIGHT, 0)
    prefill = search(Task(scenario, "prefill")).request_rate
    decode = search(Task(scenario, "decode")).request_rate
    chunked = search(Task(scenario)).request_rate
    pair = search(Task(apart(scenario, 1, 1))).request_rate
    assert prefill == pytest.approx(10.92, rel=0.1)
    assert chunked == pytest.approx(1.68, rel=0.1)
    assert chunked < pair / 2 < decode / 2 * 1.01 < prefill


def test_a_decode_step_through_two_stages_takes_both() -> None:
    whole, stages = sarathi._decode_s("yi-34b", 4096), sarathi._decode_s("falcon-180b", 1024)
    assert whole == pytest.approx(0.0319, rel=0.02)
    assert stages == pytest.approx(2 * 0.0293 + 0.00012, rel=0.05)


def test_capacity_under_a_target_for_gaps_is_where_gaps_reach_it() -> None:
    task = sarathi._task("mistral-7b", sarathi.SHAREGPT, "strict", ("chunked_prefill", 512))
    loose = sarathi._task("mistral-7b", sarathi.SHAREGPT, "relaxed", ("chunked_prefill", 512))
    assert 5 * task.gap_s == pytest.approx(loose.gap_s)
    assert 0 < sarathi.capacity(task) <= sarathi.capacity(loose) * 1.03


def test_prefill_wants_little_tensor_parallelism() -> None:
    _, prefers, doubles = splits._blog()
    assert prefers.verdict is Verdict.REPRODUCED
    assert (doubles.verdict, bool(doubles.reason)) == (Verdict.DIFFERS, True)


def test_opt_66b_on_two_gpus_leaves_6_gb() -> None:
    assert [claim.verdict for claim in placement._memory()] == [Verdict.REPRODUCED] * 2


def test_the_phases_of_bloom() -> None:
    assert splitwise._phases()[0].ours == "6 tokens"
