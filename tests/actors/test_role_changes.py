"""Role changes under load, live: what an instance has goes on elsewhere, and nothing is lost."""

import numpy as np
import pytest

from actors.chaos import Chaos
from actors.faults import Fault
from actors.replay import replay
from metrics.latency import itl
from metrics.records import Column
from metrics.run import RunResult
from scenario.loading import load_scenario
from scenario.requests import requests_of
from tests.actors.nothing_lost import check_nothing_lost

pytestmark = pytest.mark.ray

NUM_CHANGES = 10
SCENARIO = {
    "workload.phases": [
        {
            "name": "steady",
            "duration_s": 7,
            "request_rate": 12,
            "prompt": {"mean": 600, "maximum": 3000},
            "output": {"mean": 120, "maximum": 240},
        }
    ],
    "planner.policy": "static",
    "handoff": {"initiative": "push", "mode": "layerwise"},
    "live.kv_bytes_scale": 0.001,
    "live.silence_timeout_s": 60,
    "live.metrics_port": 0,
}


def disturbed(ray_address: str, faults: list[Fault]) -> RunResult:
    scenario = load_scenario("demo", SCENARIO)
    trace, too_long, _ = requests_of(scenario)
    return replay(
        scenario,
        trace,
        too_long,
        address=ray_address,
        disturb=Chaos(faults).run,
    )


@pytest.fixture(scope="module")
def run(ray_address: str) -> RunResult:
    return disturbed(ray_address, [Fault("change-role", 1.0 + 0.5 * number) for number in range(NUM_CHANGES)])


def test_nothing_is_lost(run: RunResult) -> None:
    check_nothing_lost(run)
    assert run.live["recomputed_tokens"] == 0


def test_every_token_has_its_gap(run: RunResult) -> None:
    gaps = itl(run)
    assert gaps.count == (run.records[:, Column.GENERATED_TOKENS] - 1).sum()
    decoding_s = run.records[:, Column.FINISHED_S] - run.records[:, Column.FIRST_TOKEN_S]
    assert gaps.mean is not None
    assert gaps.mean * gaps.count == pytest.approx(decoding_s.sum())


def test_instances_leave_by_migration(run: RunResult) -> None:
    """A drain would take as long as the longest output, about five seconds."""
    changes = run.role_changes
    assert len(changes) >= NUM_CHANGES // 2, "all, unless this host is so slow that the run ends before"
    left_s = np.array([change.drained_s - change.decided_s for change in changes])
    assert np.median(left_s) < 1.0
    assert run.num_migrations > NUM_CHANGES
    handed_over = int((run.records[:, Column.OUTPUT_TOKENS] > 1).sum())
    assert run.num_transfers == handed_over + run.num_migrations == run.live["kv_payloads_verified"]


def test_deaths_while_kv_is_pushed(ray_address: str) -> None:
    """Room that was reserved for a prompt still being computed goes back, on either side."""
    faults = [Fault("kill-prefill-running", 1.5), Fault("kill-decode-running", 4.0)]
    result = disturbed(ray_address, faults)
    check_nothing_lost(result)
    assert len(result.live["recoveries"]) == len(faults)
    assert result.live["recomputed_tokens"] > 0
