"""On a clock that jumps, where messages take no time, the live actors do exactly what the simulator does."""

from typing import Any

import numpy as np
import pytest

from actors.chaos import Chaos
from actors.faults import Fault
from cluster.request import Status
from metrics.records import Column
from metrics.run import RunResult
from scenario.loading import load_scenario
from scenario.requests import requests_of
from sim.run import simulate, tools_of
from tests.actors.in_process import replay_in_process


def phase(duration_s: float, request_rate: float, prompt: int, output: int) -> dict[str, Any]:
    lengths = {"prompt": {"mean": prompt, "maximum": 4 * prompt}, "output": {"mean": output, "maximum": 4 * output}}
    return {"name": f"{prompt} to {output}", "duration_s": duration_s, "request_rate": request_rate, **lengths}


SHIFT = [phase(8, 12, 3000, 20), phase(10, 30, 200, 400), phase(6, 14, 3000, 20)]
CHANGES_EARLY = {
    "workload.phases": SHIFT,
    "planner.interval_s": 0.5,
    "planner.load": {"prefill_queue_high": 4000, "kv_use_high": 0.04, "kv_use_low": 0.04, "cooldown_s": 1.0},
}
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "colocated": ("demo", {"planner.policy": "static", "instances": {"prefill": 0, "decode": 0, "mixed": 4}}, 0),
    "2P2D": ("demo", {"planner.policy": "static"}, 0),
    "pairs": ("demo", {"planner.policy": "static", "router.pairs": True, "instances.mixed": 1}, 0),
    "push": ("demo", {"planner.policy": "static", "handoff.initiative": "push"}, 0),
    "layerwise": ("demo", {"planner.policy": "static", "handoff": {"initiative": "push", "mode": "layerwise"}}, 0),
    "layerwise, migrating": (
        "demo",
        {**CHANGES_EARLY, "planner.how": "migrate", "handoff": {"initiative": "push", "mode": "layerwise"}},
        4,
    ),
    "preempting": ("demo", {"planner.policy": "static", "engine.admission": "preempt_recompute", "tp": 2}, 0),
    "draining": ("demo", CHANGES_EARLY, 2),
    "migrating": ("demo", {**CHANGES_EARLY, "planner.how": "migrate"}, 4),
    "splitwise": ("demo", {"workload.phases": SHIFT, "planner.policy": "splitwise", "router.pairs": True}, 0),
    "throughput": ("demo", {"workload.phases": SHIFT, "planner.policy": "throughput"}, 1),
    "throughput_corrected": ("demo", {"workload.phases": SHIFT, "planner.policy": "throughput_corrected"}, 1),
    "replan": (
        "demo",
        {
            "workload.phases": SHIFT,
            "planner.policy": "replan",
            "planner.replan": {"min_interval_s": 4.0, "min_requests": 100, "num_requests": 100},
        },
        1,
    ),
    "conditional": ("demo", {"workload.phases": SHIFT, "planner.policy": "conditional"}, 0),
    "arrow": ("demo", {"workload.phases": SHIFT, "planner.policy": "arrow"}, 1),
    "lookahead": (
        "alternating-8x70b",
        {
            "workload.phases": [phase(8, 28, 3500, 120), phase(8, 56, 250, 800)],
            "router.pairs": True,
            "engine.token_budget": 256,
            "planner.max_changes_per_tick": 2,
        },
        1,
    ),
}


def in_order(result: RunResult) -> np.ndarray:
    return result.records[result.records[:, Column.REQUEST_ID].argsort()]


@pytest.mark.parametrize("case", CASES)
def test_the_same_run(case: str) -> None:
    name, changes, least_changes = CASES[case]
    workload = {"workload.phases": [phase(15, 16, 1000, 200)], "live.kv_bytes_scale": 0, "live.report_delay_s": 0}
    workload["live.silence_timeout_s"] = 3600  # in wall time, which a rollout takes
    scenario = load_scenario(name, {**workload, **changes})
    trace, too_long, _ = requests_of(scenario)
    simulated = simulate(scenario, trace, too_long)
    live = replay_in_process(scenario, trace, too_long, tools=tools_of(scenario))
    np.testing.assert_array_equal(in_order(live), in_order(simulated))
    np.testing.assert_equal(live.step_logs, simulated.step_logs)
    num_ticks = min(len(live.planner_words), len(simulated.planner_words))  # whoever watches longer ticks once more
    assert live.planner_words[:num_ticks] == simulated.planner_words[:num_ticks]
    assert live.role_changes == simulated.role_changes
    assert len(live.role_changes) >= least_changes
    assert live.num_migrations == simulated.num_migrations
    assert live.kv_bytes_moved == simulated.kv_bytes_moved


def test_sixty_role_changes_lose_nothing() -> None:
    """Every 0.4 s somebody is ordered to leave, wherever its requests are at that moment."""
    scenario = load_scenario(
        "demo",
        {
            "workload.phases": [phase(25, 14, 800, 200)],
            "planner.policy": "static",
            "live.kv_bytes_scale": 0,
        },
    )
    trace, too_long, _ = requests_of(scenario)
    chaos = Chaos([Fault("change-role", 0.5 + 0.4 * number) for number in range(60)])
    result = replay_in_process(scenario, trace, too_long, tools=tools_of(scenario), disturb=chaos.run)
    records = in_order(result)
    assert records[:, Column.REQUEST_ID].tolist() == list(range(len(trace)))
    assert (records[:, Column.STATUS] == Status.FINISHED).all()
    assert (records[:, Column.GENERATED_TOKENS] == records[:, Column.OUTPUT_TOKENS]).all()
    assert len(result.role_changes) == 60
    assert result.num_migrations > 60
