"""The tiny model in the live actors, on a clock that jumps: every text is that of a single process."""

import asyncio
from typing import Any

import pytest

from actors.chaos import Chaos
from actors.faults import Fault
from cluster.request import Status
from metrics.records import Column
from scenario.loading import load_scenario
from scenario.requests import requests_of
from sim.run import tools_of
from tests.actors.in_process import replay_in_process

PHASE = {
    "duration_s": 6,
    "request_rate": 6,
    "prompt": {"mean": 60, "maximum": 120},
    "output": {"mean": 60, "maximum": 100},
}
LAYERWISE = {"handoff": {"initiative": "push", "mode": "layerwise"}}
CHUNKS = {
    "instances": {"prefill": 0, "decode": 0, "mixed": 2},
    "engine.policy": "chunked_prefill",
    "engine.token_budget": 48,
}
FAULTS = ("change-role", "cancel", "corrupt")


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", at_once)


@pytest.mark.parametrize(
    ("changes", "faults"),
    [({}, FAULTS), (LAYERWISE, FAULTS), (CHUNKS, ("cancel",))],
    ids=["serial", "layer by layer", "in chunks"],
)
def test_texts(changes: dict[str, Any], faults: tuple[str, ...]) -> None:
    """`replay` itself raises when a text differs, or when KV is left behind."""
    live = {"live.compute": "tiny", "live.silence_timeout_s": 3600}
    scenario = load_scenario("demo", {"workload.phases": [PHASE], "planner.policy": "static", **live, **changes})
    trace, too_long, _ = requests_of(scenario)
    plan = [Fault(faults[number % len(faults)], 1.0 + 0.4 * number) for number in range(9)]
    result = replay_in_process(scenario, trace, too_long, tools=tools_of(scenario), disturb=Chaos(plan).run)
    finished = result.records[:, Column.STATUS] == Status.FINISHED
    assert result.live["texts_checked"] >= finished.sum() >= 15
    assert result.live["tokens_checked"] >= result.records[finished, Column.OUTPUT_TOKENS].sum()
    if "corrupt" in faults:
        assert result.num_migrations > 0
        assert result.live["kv_payloads_refused"] > 0
