"""The same requests at every rate, and exactly those that `simulate` would load."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cluster.errors import ConfigError
from scenario.loading import load_scenario
from sim.traffic import Traffic, at_rate
from workload.load import load_workload

CHAT = str(Path(__file__).parents[2] / "docs/examples/chat.csv")
TRACE = {"workload.phases": [], "workload.trace": CHAT, "workload.resample": 100}
SCENARIOS = {
    "one phase": load_scenario("steady-8b"),
    "even arrivals": load_scenario("steady-8b", {"workload.phases.0.arrivals": "constant"}),
    "phases": load_scenario("demo"),
    "trace": load_scenario("steady-8b", TRACE),
    "short ones of a window": load_scenario(
        "steady-8b", {**TRACE, "workload.max_total_tokens": 1000, "workload.start_s": 5}
    ),
}
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)


@each_scenario
@pytest.mark.parametrize(("rate", "count"), [(0.05, 40), (3.0, 250), (70.0, 1000)])
def test_equals_what_the_spec_loads(scenario, rate, count):
    ours = Traffic(scenario).trace(rate, count)
    loaded = load_workload(at_rate(scenario, rate, count).workload, seed=scenario.seed)
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert getattr(ours, name).tolist() == getattr(loaded, name).tolist()


@each_scenario
def test_rate_and_number(scenario):
    trace = Traffic(scenario).trace(5.0, 4000)
    assert trace.request_rate == pytest.approx(5.0, rel=0.06)
    assert len(trace) == pytest.approx(4000, rel=0.1)


@pytest.mark.parametrize("scenario", [SCENARIOS["one phase"], SCENARIOS["trace"]], ids=["phase", "trace"])
def test_another_rate_scales_the_gaps_and_more_requests_go_on_from_there(scenario):
    traffic = Traffic(scenario)
    slow, fast, more = traffic.trace(0.5, 300), traffic.trace(8.0, 300), traffic.trace(8.0, 900)
    count = len(slow)
    assert count == len(fast)
    np.testing.assert_allclose(slow.arrival_s * 0.5, fast.arrival_s * 8.0)
    np.testing.assert_allclose(more.arrival_s[:count], fast.arrival_s)
    assert slow.prompt_tokens.tolist() == fast.prompt_tokens.tolist() == more.prompt_tokens[:count].tolist()
    assert slow.output_tokens.tolist() == fast.output_tokens.tolist() == more.output_tokens[:count].tolist()


def test_phases_keep_their_proportions_and_come_again():
    scenario = SCENARIOS["phases"]
    spec = Traffic(scenario).spec(5.0, 2400)
    assert [phase.name for phase in spec.phases] == 3 * [phase.name for phase in scenario.workload.phases]
    rates = np.array([phase.request_rate for phase in spec.phases])
    assert rates.mean() == pytest.approx(5.0)
    assert rates[:4] / rates[0] == pytest.approx([1, 10.5 / 20, 16 / 20, 1])


def test_own_rate():
    assert Traffic(SCENARIOS["one phase"]).own_rate == 12
    assert Traffic(SCENARIOS["phases"]).own_rate == pytest.approx((20 + 10.5 + 16 + 20) / 4)
    trace = load_workload(replace(SCENARIOS["trace"].workload, resample=None), seed=0)
    assert Traffic(SCENARIOS["trace"]).own_rate == trace.request_rate
    rescaled = load_scenario("steady-8b", {"workload.request_rate": 3.0})
    assert Traffic(rescaled).own_rate == 3.0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"workload.start_s": 5}, "workload.start_s and end_s cut a part out of phases"),
        ({"workload.phases": []}, "workload has neither a trace nor phases"),
        ({"workload.phases.0.request_rate": 0}, "workload.phases give no request at all"),
    ],
)
def test_errors(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Traffic(load_scenario("steady-8b", changes))
