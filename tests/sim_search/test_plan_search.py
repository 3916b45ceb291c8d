"""`baton plan` as a whole, on a cluster small enough to be searched in seconds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.main import main
from cli.plan import question_of
from cluster.role import Role
from metrics.slo import meets
from sim.placement.bounds import upper_bound
from sim.placement.cache import ResultCache
from sim.placement.designs import cost_of, excess
from sim.placement.files import scenario_of
from sim.placement.search import PlanSearch
from sim.traffic import Traffic
from sim.variants import run_scenario

PHASE = "{duration_s: 60, request_rate: 50, prompt: {mean: 1500, maximum: 6000}, output: {mean: 20, maximum: 60}}"
WORDS = ["--set", f"workload.phases=[{PHASE}]", "--num-requests", "100", "--gpus-per-node", "2", "--budgets", "512"]
ASKED = [*WORDS, "--quiet", "--gpus", "h100-sxm:8"]


def serially(function, items, *, on_done=None):
    results = []
    for index, item in enumerate(items):
        results.append(function(item))
        if on_done is not None:
            on_done(index, results[-1])
    return results


def question(*words):
    """The question that the command line asks."""
    from cli.main import build_parser

    return question_of(build_parser("plan").parse_args(["plan", "steady-8b", *words]))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A cache for all searches of this file."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def answer(kept):
    """Llama-3-8B at 50 req/s on 8 H100s in nodes of two."""
    told = []
    search = PlanSearch(question(*ASKED), mapper=serially, cache=ResultCache(kept))
    found = search.run(lambda num_done, best: told.append((num_done, best)))
    assert [num_done for num_done, _ in told] == list(range(1, len(told) + 1))
    assert told[-1][1].startswith("best so far: ")
    again = PlanSearch(question(*ASKED), mapper=fails, cache=ResultCache(kept)).run(lambda num_done, best: None)
    assert again.plans == found.plans
    return found


def fails(function, items, *, on_done=None):
    assert list(items) == [], "everything should be in the cache"
    return []


def test_plans_are_ranked_and_within_the_limits(answer):
    costs = [cost_of(answer.question, plan) for plan in answer.plans]
    assert costs == sorted(costs)
    assert all(excess(answer.question, plan) == "" for plan in [*answer.plans, *answer.guesses])
    assert all(why == excess(answer.question, plan) != "" for plan, why in answer.beyond)
    assert {"colocated", "disaggregated"} <= {plan.design for plan in answer.plans}


def test_plans_that_held_hold_with_other_seeds(answer):
    slo = answer.question.scenario.slo
    for plan in answer.plans:
        assert plan.check.attainment >= slo.attainment
        assert plan.carries >= plan.check.request_rate == 52.5
        scenario = scenario_of(answer.question, plan)
        assert scenario.num_gpus * plan.units == plan.num_gpus
        result = run_scenario(replace(scenario, seed=4242))
        assert meets(result.records, slo).mean() >= slo.attainment


def test_no_evaluation_is_above_its_bound(answer):
    base = answer.question.scenario
    requests = Traffic(base).trace(1.0, 2000)
    for option, evaluation in answer.evaluated:
        if evaluation.request_rate is not None:
            bound, _ = upper_bound(option.scenario(base), Role(option.role), requests)
            assert evaluation.request_rate < 1.1 * bound
            assert evaluation.limit
        else:
            assert evaluation.reason


def test_json_report_and_a_scenario_that_runs(answer, kept, tmp_path, capsys):
    out = tmp_path / "plan"
    words = [*ASKED, "--jobs", "1", "--cache-dir", str(kept), "--out", str(out)]
    assert main(["plan", "steady-8b", *words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads((out / "plan.json").read_text()) == printed
    assert [plan["instances"] for plan in printed["plans"]] == [plan.counts for plan in answer.plans]
    best = printed["plans"][0]
    assert best["check"]["attainment"] >= 0.9
    assert sum(one["count"] * one["tp"] * one["pp"] for one in best["groups"]) * best["units"] == best["num_gpus"]
    assert printed["recommendation"].startswith("Recommended for 50 req/s: ")
    assert "Goodput of one instance, per GPU" in (out / "report.html").read_text()
    assert main(["simulate", str(out / "scenario.yaml"), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["attainment"] >= 0.9
    assert main(["plan", "steady-8b", *words]) == 0
    printed = capsys.readouterr().out
    assert (
        "llama-3-8b, 50 req/s and 5 % headroom for the fewest GPUs, 90 % of requests within TTFT 250 ms and TPOT 20 ms"
        in printed
    )
    assert "What is short first above the rate that a plan carries:" in printed
    assert {path.name for path in out.glob("*.yaml")} == {"scenario.yaml", "colocated.yaml", "disaggregated.yaml"}


def test_only_one_kind(answer, kept, capsys):
    words = [*ASKED, "--jobs", "1", "--cache-dir", str(kept), "--only", "disaggregated", "--json"]
    assert main(["plan", "steady-8b", *words]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {plan["design"] for plan in printed["plans"]} <= {"disaggregated", "node units"}
    assert printed["comparison"] == "Only disaggregated plans were searched."
    assert printed["plans"][0]["num_gpus"] == min(plan.num_gpus for plan in answer.plans if plan.design != "colocated")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--gpus h100", "--gpus h100 is not NAME:N; write for example h100-sxm:16"),
        ("--gpus h100:4", "there is no gpu named 'h100'; did you mean h100-sxm?"),
        ("--gpus h100-sxm:0", "h100-sxm:0 is no number of GPUs; give at least 1"),
        ("--gpus h100-sxm:4 h100-sxm:2", "gpu h100-sxm is given twice; give its whole number once"),
        ("--gpus-per-node 0", "gpus_per_node is 0; it must be at least 1"),
        ("--gpus l40s:8 --objective usd", "gpu l40s has no price_per_hour, which this objective or limit counts"),
        ("--headroom -1", "headroom is -1; it must be a share of the rate, like 0.05 for 5 % more"),
        ("--max-watts 0", "max_watts is 0; it must be above 0"),
        ("--objective rate --request-rate 5", "--request-rate is what the objective rate is to find"),
        (
            "--goodput ttft:1 tpot:1",
            "the largest, prefill on h100-sxm tp2: slo.ttft_ms is 1 ms, which no request meets",
        ),
        (
            "--set model=opt-175b",
            "opt-175b fits on no machine: h100-sxm tp1, tp2, tp1 pp2, no room for KV: opt-175b has 349",
        ),
        ("--max-usd-per-hour 4", "no plan for 50 req/s and 5 % headroom is within the limits: the least, "),
        ("--budgets 0", "engine.token_budget is 0; a step needs a budget of at least 1 token"),
        ("--out file.txt", "results cannot be written to file.txt"),
    ],
)
def test_errors(arguments, sentence, kept, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file.txt").write_text("mine")
    assert main(["plan", "steady-8b", *ASKED, "--jobs", "1", "--cache-dir", str(kept), *arguments.split()]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert sentence in output.err
