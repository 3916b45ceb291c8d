"""Live on Ray at a quarter of real time, latencies are those of the simulator."""

from typing import Any

import numpy as np
import pytest

from actors.replay import replay
from metrics.latency import e2e_s, tpot_s, ttft_s
from metrics.run import RunResult
from metrics.slo import meets
from scenario.loading import load_scenario
from scenario.requests import requests_of
from scenario.spec import Scenario
from sim.run import simulate, tools_of

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PHASES = [
    {
        "duration_s": 4,
        "request_rate": 8,
        "prompt": {"mean": 3000, "maximum": 6000},
        "output": {"mean": 20, "maximum": 40},
    },
    {
        "duration_s": 4,
        "request_rate": 14,
        "prompt": {"mean": 1000, "maximum": 3000},
        "output": {"mean": 80, "maximum": 150},
    },
]
CASES: dict[str, dict[str, Any]] = {
    "2P2D": {"planner.policy": "static"},
    "role changes": {
        "planner.how": "migrate",
        "planner.interval_s": 0.5,
        "planner.load": {"prefill_queue_high": 4000, "kv_use_high": 0.04, "kv_use_low": 0.04, "cooldown_s": 1.0},
    },
}


def figures(result: RunResult, scenario: Scenario) -> np.ndarray:
    """TTFT, TPOT and E2E, p50 and p90 of each, and the goodput."""
    latencies = [
        np.nanpercentile(of(result.records), percent) for of in (ttft_s, tpot_s, e2e_s) for percent in (50, 90)
    ]
    return np.array([*latencies, meets(result.records, scenario.slo).sum() / result.duration_s])


@pytest.mark.parametrize("case", CASES)
def test_latencies(ray_address: str, case: str) -> None:
    scenario = load_scenario(
        "demo",
        {
            "workload.phases": PHASES,
            "live.time_scale": 4,
            "live.kv_bytes_scale": 0.001,
            "live.metrics_port": 0,
            **CASES[case],
        },
    )
    trace, too_long, _ = requests_of(scenario)
    live = replay(
        scenario,
        trace,
        too_long,
        address=ray_address,
        tools=tools_of(scenario),
    )
    if max(live.live["lateness_ms"]["p99"], live.live["send_lag_ms"]["p99"]) > 12.0:
        pytest.skip("this host has too much else to do")
    simulated = simulate(scenario, trace, too_long)
    error = figures(live, scenario) / figures(simulated, scenario) - 1.0
    assert np.abs(error[:-1]).max() < 0.05
    assert abs(error[-1]) < 0.02
    assert len(live.role_changes) == len(simulated.role_changes)
