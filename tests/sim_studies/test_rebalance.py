"""Planners on one footing: what the comparison is made of, and its main claim on the demo."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cluster.errors import WorldError
from metrics.run import RoleSpan
from planner.demand import Demand
from planner.observation import Observation
from planner.tools import Outlook
from scenario.loading import load_scenario
from sim.parallel import map_parallel
from sim.studies import rebalance
from sim.studies.rebalance_cases import TRACES_VARIABLE, Case, of_azure, of_phases
from sim.studies.rebalance_roles import roles_figure
from sim.studies.rebalance_run import MisledRollout
from sim.studies.rebalance_ways import assignments, policies

ROWS = "\n".join(f"2023-11-16 18:00:{second:02}.0000000,{100 + second},10" for second in range(60))


@pytest.fixture(scope="module")
def demo() -> Case:
    return of_phases("a", "demo", "demo")


def test_stretches_are_the_phases_and_lose_no_request(demo: Case) -> None:
    parts = demo.stretches()
    assert [part.span_s for part in parts] == [40.0] * 4
    assert sum(len(part.trace) for part in parts) == len(demo.trace)
    assert all(0 <= part.trace.arrival_s[0] < part.trace.arrival_s[-1] < 40.0 for part in parts)
    prompts = np.concatenate([part.trace.prompt_tokens for part in parts])
    assert np.array_equal(prompts, demo.trace.prompt_tokens)


def test_azure_traces_in_turns_and_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("azure_llm_2023_conv.csv", "azure_llm_2023_code.csv"):
        (tmp_path / name).write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{ROWS}\n")
    monkeypatch.setenv(TRACES_VARIABLE, str(tmp_path))
    in_turns, mixed = of_azure()
    assert len(in_turns.ends_s) == 6
    assert in_turns.span_s == mixed.span_s == 450.0
    for case in (in_turns, mixed):
        assert np.all(np.diff(case.trace.arrival_s) >= 0)
    assert len(mixed.trace) == 120
    monkeypatch.setenv(TRACES_VARIABLE, str(tmp_path / "elsewhere"))
    with pytest.raises(WorldError, match=f"{TRACES_VARIABLE}: there is no .*elsewhere"):
        of_azure()
    monkeypatch.delenv(TRACES_VARIABLE)
    assert of_azure() == []


def test_ways_keep_the_number_of_instances(demo: Case) -> None:
    ways = assignments(demo.scenario)
    assert list(ways) == ["1P3D", "2P2D", "3P1D", "4M", "1P1D2M"]
    assert {way.instances.total for way in (*ways.values(), *policies(demo.scenario).values())} == {4}
    assert len(assignments(load_scenario("alternating-8x70b"))) == 7 + 1 + 5 + 3 + 1


def test_a_misled_rollout_sees_more_arrivals_and_the_same_lengths() -> None:
    seen: list[Demand] = []

    def rollout(observation: Observation, *_: object) -> Outlook:
        seen.append(observation.demand)
        return Outlook(1, 0)

    demand = Demand(window_s=20.0)
    MisledRollout(rollout, 4.0)(Observation(30.0, (), demand), (), 10.0, 1)
    assert seen == [replace(demand, window_s=5.0)]


def test_a_lane_per_run_and_a_bar_per_instance() -> None:
    spans = [
        RoleSpan(0, "prefill", "serving", 0.0, 10.0),
        RoleSpan(1, "decode", "serving", 0.0, 4.0),
        RoleSpan(1, "decode", "draining", 4.0, 6.0),
        RoleSpan(1, "prefill", "serving", 6.0, 10.0),
    ]
    drawn = roles_figure({"first": spans, "second": spans[:1]}, 2, xaxis={})
    bars = {bar["name"]: bar for bar in drawn["data"]}
    assert set(bars) == {"prefill", "decode", "draining or switching"}
    assert bars["draining or switching"]["x"] == [4.0, 6.0, None]
    assert len(bars["prefill"]["x"]) == 9
    assert drawn["layout"]["yaxis"]["ticktext"] == ["first", "second"]


@pytest.mark.slow
def test_lookahead_comes_close_to_the_clairvoyant_on_the_demo(demo: Case) -> None:
    (results,) = rebalance.compare([demo], partial(map_parallel, jobs=2))
    ours = results.planned[rebalance.OURS]
    assert ours.goodput >= 0.95 * results.clairvoyant
    assert ours.good > max(one.good for name, one in results.planned.items() if not name.startswith("lookahead"))
    assert ours.good > 1.2 * results.best_split.good
