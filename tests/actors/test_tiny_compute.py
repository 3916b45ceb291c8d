"""A model that really computes, spread over processes: every token is that of a single process."""

import pytest

from actors.chaos import Chaos
from actors.faults import Fault, each_fault
from actors.replay import replay
from cluster.request import Status
from metrics.records import Column
from metrics.run import RunResult
from scenario.loading import load_scenario
from scenario.requests import requests_of

pytestmark = pytest.mark.ray

SCENARIO = {
    "workload.phases": [
        {
            "name": "short",
            "duration_s": 7,
            "request_rate": 5,
            "prompt": {"mean": 60, "maximum": 120},
            "output": {"mean": 80, "maximum": 120},
        }
    ],
    "planner.policy": "static",
    "live.compute": "tiny",
    "live.metrics_port": 0,
    "live.silence_timeout_s": 20.0,
}


def computed(ray_address: str, faults: list[Fault], **changes: object) -> RunResult:
    """A run; `replay` itself raises when a text is not that of a single process."""
    scenario = load_scenario("demo", {**SCENARIO, **changes})
    trace, too_long, _ = requests_of(scenario)
    result = replay(
        scenario,
        trace,
        too_long,
        address=ray_address,
        disturb=Chaos(faults).run,
    )
    assert (result.records[:, Column.STATUS] == Status.FINISHED).all()
    assert result.live["texts_checked"] == result.num_requests
    assert result.live["tokens_checked"] == result.records[:, Column.OUTPUT_TOKENS].sum()
    return result


def test_disaggregated_and_after_migration_and_failures(ray_address: str) -> None:
    kinds = ["change-role", "kill-decode-running", "kill-prefill-holding"]
    result = computed(ray_address, each_fault(kinds, 1.2), **{"instances.decode": 3})
    assert result.num_migrations > 0
    assert result.live["recomputed_tokens"] > 0


def test_layer_by_layer(ray_address: str) -> None:
    """Layers leave in four groups, while others are computed."""
    result = computed(ray_address, [], handoff={"initiative": "push", "mode": "layerwise"})
    assert result.live["kv_payloads_verified"] == (result.records[:, Column.OUTPUT_TOKENS] > 1).sum()


def test_in_chunks_and_after_preemption(ray_address: str) -> None:
    """Chunks of at most 48 tokens, and room for 368, so that some have to yield and are computed again."""
    changes = {
        "model": "llama-3-8b",
        "tp": 1,
        "gpu.memory_bytes": 17.9e9,
        "instances": {"prefill": 0, "decode": 0, "mixed": 1},
        "engine.policy": "chunked_prefill",
        "engine.token_budget": 48,
        "engine.admission": "preempt_recompute",
    }
    result = computed(ray_address, [], **changes)
    assert result.records[:, Column.NUM_PREEMPTIONS].sum() > 0
    assert result.num_transfers == 0
