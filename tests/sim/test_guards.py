"""What a run says of itself: who is stuck when it can make no progress, and whom a small budget starves."""

import pytest

from cluster.errors import StalledError
from cluster.scheduling import EngineConfig
from planner.config import PlannerConfig
from sim.simulator import Simulator
from tests.reference.cases import scenario_of, trace_of


@pytest.mark.parametrize("policy", ["static", "load"])
def test_who_is_stuck_is_named(policy):
    """The second prompt is longer than the KV of an instance, which a driver would have rejected, and blocks the third."""
    scenario = scenario_of(prefill=1, decode=1, kv_tokens=100, planner=PlannerConfig(policy=policy))
    with pytest.raises(StalledError) as error:
        Simulator(scenario, trace_of([0.0, 1.0, 2.0], [50, 101, 10], [10, 10, 10])).run()
    assert str(error.value) == (
        "2 requests can make no progress: request 1 (QUEUED, needs 111 KV tokens); "
        "request 2 (QUEUED, needs 20 KV tokens); KV tokens by instance: 100 of 100 free, 100 of 100 free"
    )


def test_a_budget_that_starves_prompts_is_told():
    """Four decode 30 tokens each on a budget of 4, 6.1 ms a step; the fifth comes in step 17 and waits until the first ends."""
    scenario = scenario_of(mixed=1, engine=EngineConfig(policy="chunked_prefill", token_budget=4))
    result = Simulator(scenario, trace_of([0.0] * 4 + [0.1], [2] * 4 + [50], [30] * 5)).run()
    assert result.starved_steps == 13
    assert result.notices == [
        "the token budget left no room for prompts beside the running decodes in 13 steps: "
        "raise engine.token_budget or lower engine.max_batch"
    ]
