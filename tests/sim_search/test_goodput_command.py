"""`baton goodput`, and the searches behind it, on whole scenarios."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.main import main
from metrics.records import Column
from metrics.slo import SloSpec
from scenario.loading import load_scenario
from sim.capacity import capacity_of
from sim.probe import Probe
from sim.sustain import Sampling

CHAT = str(Path(__file__).parents[2] / "docs/examples/chat.csv")
FEW = Sampling(200, 800)
FIXED = {"prompt": {"mean": 1000, "kind": "fixed"}, "output": {"mean": 100, "kind": "fixed"}}
"""One prompt takes a step of its own: 21.05 ms on an H100 for llama-3-8b."""


def one_size(**changes):
    phase = {"duration_s": 60, "request_rate": 1, "arrivals": "constant", **FIXED}
    base = {"workload.phases": [phase], "instances": {"prefill": 1, "decode": 1}, "engine.prefill_batch_tokens": 1}
    return load_scenario("steady-8b", {**base, **changes})


def prefill_time_s(scenario):
    first = Probe(scenario).simulate(1.0, 20).records[0]
    return first[Column.FIRST_TOKEN_S] - first[Column.PREFILL_START_S]


def test_even_arrivals_of_one_size_pass_up_to_the_service_rate():
    """One prefill instance without batching: a queue exists above 1 / D and not below."""
    scenario = one_size(slo={"ttft_ms": 200})
    result = capacity_of(Probe(scenario, sampling=FEW, drift_limit=0.01), relative_tolerance=0.01)
    prefill_s = prefill_time_s(scenario)
    assert result.goodput.status == "found"
    assert 0.98 < result.goodput.request_rate * prefill_s < 1.03
    assert result.limit.startswith("backlog: prompts queue ")
    assert result.limit.endswith("prefill instances compute 100 % of the time")


def test_rates_far_below_one_per_second():
    """A scarce request of 30,000 output tokens: decode is busy for minutes."""
    long = [{"duration_s": 60, "request_rate": 1, "prompt": {"mean": 100}, "output": {"mean": 7000, "kind": "fixed"}}]
    scenario = one_size(**{"workload.phases": long, "slo": {"e2e_ms": 60_000}, "engine.max_batch": 1})
    result = capacity_of(Probe(scenario, sampling=Sampling(100, 200)))
    assert result.goodput.status == "found"
    assert 0.001 < result.goodput.request_rate < 0.02
    assert result.limit.startswith("E2E: sequences wait ")
    assert result.limit.endswith(" s for a seat among the 1 of a batch")


@pytest.mark.parametrize("name", ["steady-8b", "colocated-8b"])
def test_the_rate_found_passes_and_a_little_more_fails(name):
    scenario = load_scenario(name)
    result = capacity_of(Probe(scenario, sampling=FEW, drift_limit=0.03), relative_tolerance=0.03).goodput
    probe = Probe(scenario, sampling=FEW, drift_limit=0.03)
    assert probe.at(result.request_rate).verdict == result.best.verdict.verdict
    assert result.best.verdict.passed
    assert not probe.at(result.request_rate * 1.06).passed


def test_a_loose_slo_gives_no_more_than_prefill_can_compute():
    """Summarisation with TTFT <= 15 s, judged by 400 requests: ten times the load is still `good` (section 5.1)."""
    scenario = one_size(slo={"ttft_ms": 15_000}, **{"workload.phases.0.arrivals": "poisson"})
    capacity = 1 / prefill_time_s(scenario)
    naive = Probe(replace(scenario, slo=SloSpec(ttft_ms=15_000)), sampling=Sampling(400, 400))
    overload = naive.simulate(2 * capacity, 400)
    assert (overload.records[:, Column.FIRST_TOKEN_S] - overload.records[:, Column.ARRIVAL_S] <= 15).all()
    result = capacity_of(Probe(scenario, sampling=Sampling(400, 3200))).goodput
    assert 0.9 * capacity < result.request_rate < 1.01 * capacity


def test_json_and_files(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["goodput", "steady-8b", "--trace", CHAT, "--num-requests", "100", "--tolerance", "0.1", "--target", "0.8"]
    assert main([*words, "--json", "--out", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads((out / "goodput.json").read_text()) == printed
    assert printed["slo"]["attainment"] == 0.8
    assert printed["goodput_per_gpu"] == printed["request_rate"] / 4
    assert printed["request_rate"] < printed["fails_at"] <= 1.1 * printed["request_rate"]
    best = next(trial for trial in printed["history"] if trial["request_rate"] == printed["request_rate"])
    assert main(["simulate", str(out / "scenario.yaml"), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["attainment"] == best["attainment"]


def test_table_in_words(capsys):
    assert main(["goodput", "steady-8b", "--num-requests", "100", "--tolerance", "0.5"]) == 0
    output = capsys.readouterr().out
    assert "Rates tried for steady-8b" in output
    assert "with 90 % of requests within TTFT 250 ms and TPOT 20 ms." in output
    assert "Limit: at " in output


def test_limits_of_the_search(capsys):
    words = ["goodput", "steady-8b", "--num-requests", "100", "--quiet"]
    assert main([*words, "--max-rate", "10"]) == 0
    assert "Goodput: at least 10 req/s" in capsys.readouterr().out
    assert main([*words, "--min-rate", "500"]) == 2
    assert "No rate passes: not even 500 req/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            "--goodput ttft:3 tpot:20",
            "slo.ttft_ms is 3 ms, which no request meets even when each has the cluster to itself: the prefill step of "
            "a prompt of ",
        ),
        (
            "--goodput tpot:4",
            "slo.tpot_ms is 4 ms, which no request meets even when each has the cluster to itself: a decode step of "
            "one sequence at ",
        ),
        ("--goodput e2e:700", "% of requests meet even when each has the cluster to itself: a request of "),
        ("--goodput tpot:6.5 --set link=ethernet-25", "and its KV transfer adds "),
        ("--min-rate 5 --max-rate 2", "the lowest rate 5 is above the highest 2; exchange them"),
        ("--tolerance 0", "the tolerance is 0.0; it must be between 1e-6 and 1"),
        ("--num-requests 0", "workload.num_requests is 0; it must be at least 1"),
        ("--target 2", "slo.attainment is 2.0; it must be in (0, 1]"),
        ("--set max_context=300", "of the requests are longer than the 300 tokens that llama-3-8b serves here"),
    ],
)
def test_errors(arguments, sentence, capsys):
    assert main(["goodput", "steady-8b", *arguments.split()]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert sentence in output.err
