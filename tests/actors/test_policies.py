"""What policies need beside load reports, live: demand, and tools that simulate."""

from dataclasses import replace

import pytest

from actors.demand import DemandBook
from actors.replay import replay
from cluster.request import Request, Status
from metrics.records import Column, Records
from metrics.slo import SloSpec
from planner.config import PlannerConfig
from scenario.loading import load_scenario
from scenario.requests import requests_of
from sim.run import tools_of
from tests.reference.cases import scenario_of


def phase(rate: float, prompt: int, output: int) -> dict[str, object]:
    lengths = {"prompt": {"mean": prompt, "maximum": 2 * prompt}, "output": {"mean": output, "maximum": 2 * output}}
    return {"name": f"{prompt} to {output}", "duration_s": 3, "request_rate": rate, **lengths}


@pytest.mark.ray
def test_a_policy_that_simulates(ray_address: str) -> None:
    """Its tools travel to the planner's process."""
    scenario = load_scenario(
        "demo",
        {
            "workload.phases": [phase(10, 600, 20), phase(24, 150, 150)],
            "live.kv_bytes_scale": 0.001,
            "live.metrics_port": 0,
            "planner.policy": "replan",
            "planner.interval_s": 0.5,
            "planner.replan": {"min_requests": 10, "min_interval_s": 1.0, "num_requests": 100},
        },
    )
    trace, too_long, _ = requests_of(scenario)
    result = replay(
        scenario,
        trace,
        too_long,
        address=ray_address,
        tools=tools_of(scenario),
    )
    assert result.records[:, Column.REQUEST_ID].tolist() == list(range(result.num_requests))
    assert (result.records[:, Column.STATUS] == Status.FINISHED).all()
    assert any("the first look at demand" in words for _, words in result.planner_words)
    assert not any("failed" in words for _, words in result.planner_words)


def ended(number: int, status: Status, at_s: float) -> Request:
    """A request of 100 + `number` tokens with its first token after half a second."""
    request = Request(number, float(number), 100 + number, 10)
    for step in (Status.QUEUED, Status.PREFILL):
        request.enter(step, number + 0.1)
    request.first_token_s = number + 0.5
    if status is Status.FINISHED:
        request.enter(Status.DECODE, number + 0.5)
    request.enter(status, at_s)
    return request


def test_a_new_router_knows_the_demand_of_its_predecessor() -> None:
    """Not that nobody asks for anything."""
    scenario = replace(scenario_of(prefill=1, decode=1, slo=SloSpec(ttft_ms=1000)), planner=PlannerConfig(window_s=6.0))
    requests = [
        ended(0, Status.FINISHED, 1.0),
        ended(4, Status.FINISHED, 7.0),
        ended(5, Status.ABORTED, 5.5),
        ended(6, Status.FAILED, 6.6),
    ]
    live = Request(7, 7.0, 107, 10)
    first, second, records = DemandBook(scenario), DemandBook(scenario), Records()
    for request in (*requests, live):
        first.arrive(request)
    for request in sorted(requests, key=lambda one: one.finished_s):
        records.add(request)
        own = Records()
        own.add(request)
        first.end(own.table())
    second.recall(records.table(), [live])
    demand = first.view(8.0)
    assert second.view(8.0) == demand
    assert [one.prompt_tokens for one in demand.arrived] == [104, 105, 106, 107]
    assert (demand.num_ended, demand.num_good, demand.attainment) == (2, 1, 0.5)
    assert (demand.mean_ttft_s, demand.ended_prompt_tokens) == (0.5, 105)
