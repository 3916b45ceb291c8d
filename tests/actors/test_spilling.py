"""Real-size KV through an object store that is far smaller than all of it: nothing spills."""

import pytest

from actors.replay import replay
from cluster.request import Status
from metrics.records import Column
from scenario.loading import load_scenario
from scenario.requests import requests_of

pytestmark = pytest.mark.ray

SCENARIO = {
    "model": "llama-3-8b",
    "tp": 1,
    "workload.phases": [
        {
            "name": "burst",
            "duration_s": 4,
            "request_rate": 4,
            "prompt": {"mean": 600, "maximum": 1200},
            "output": {"mean": 10, "maximum": 20},
        }
    ],
    "planner.policy": "static",
    "live.kv_bytes_scale": 1.0,
    "live.metrics_port": 0,
    "live.silence_timeout_s": 60.0,
}
STORE_BYTES = 256 << 20


def test_nothing_spills(ray_address: str) -> None:
    from ray._private.internal_api import get_memory_info_reply, get_state_from_address

    scenario = load_scenario("demo", SCENARIO)
    trace, too_long, _ = requests_of(scenario)
    result = replay(scenario, trace, too_long, address=ray_address)
    assert (result.records[:, Column.STATUS] == Status.FINISHED).all()
    assert result.live["kv_real_bytes"] == result.kv_bytes_moved > 3 * STORE_BYTES
    assert result.live["kv_payloads_refused"] == 0
    stats = get_memory_info_reply(get_state_from_address(ray_address)).store_stats
    assert stats.cumulative_created_bytes >= result.kv_bytes_moved
    assert (stats.spilled_bytes_total, stats.object_store_bytes_fallback) == (0, 0)
