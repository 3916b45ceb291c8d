"""After all that can happen to a request, the live router has nobody on its books."""

from typing import Any

import pytest

from actors.chaos import Chaos
from actors.faults import Fault
from cluster.request import Status
from metrics.records import Column
from scenario.loading import load_scenario
from scenario.requests import requests_of
from sim.run import tools_of
from tests.actors.in_process import InProcess, replay_in_process

PHASE = {
    "duration_s": 16,
    "request_rate": 14,
    "prompt": {"mean": 1500, "maximum": 6000},
    "output": {"mean": 200, "maximum": 400},
}
LAYERWISE = {"handoff": {"initiative": "push", "mode": "layerwise"}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"router.pairs": True},
        LAYERWISE,
        {**LAYERWISE, "router.pairs": True, "instances.mixed": 1},
        {"engine.admission": "preempt_recompute", "tp": 2},
    ],
)
def test_cancelled_and_migrating(changes: dict[str, Any]) -> None:
    scenario = load_scenario(
        "demo", {"workload.phases": [PHASE], "planner.policy": "static", "live.kv_bytes_scale": 0, **changes}
    )
    trace, too_long, _ = requests_of(scenario)
    faults = [Fault("cancel" if number % 2 else "change-role", 0.51 + 0.3 * number) for number in range(50)]
    tools = tools_of(scenario)
    deployment = InProcess(scenario, tools)
    result = replay_in_process(scenario, trace, too_long, tools=tools, disturb=Chaos(faults).run, deployment=deployment)
    status = result.records[:, Column.STATUS]
    assert ((status == Status.FINISHED) | (status == Status.ABORTED)).all()
    assert (status == Status.ABORTED).sum() >= 20
    core = deployment.router_actor._core
    assert set(core.prompts.booked.values()) == set(core.handoffs.booked.values()) == {0}
