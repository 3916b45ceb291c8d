"""The load policy in a running cluster: it moves where the work is, and then leaves things alone."""

import numpy as np
import pytest

from cluster.request import Status
from metrics.records import Column
from planner.config import PlannerConfig
from sim.simulator import Simulator
from tests.reference.cases import scenario_of
from workload.spec import Lengths, Phase
from workload.synthetic import generate

STEADY = {
    "idle": (0.5, 500, 50),
    "chat": (20.0, 755, 200),
    "long prompts": (26.0, 3000, 20),
    "long outputs": (25.0, 200, 800),
}


@pytest.mark.parametrize("load", STEADY)
def test_a_constant_load_settles(load):
    """From any split of four instances: at most two moves, none in the second half, and nobody is lost.

    Where moves are made, all end in one split.
    """
    rate, prompt, output = STEADY[load]
    phase = Phase(
        duration_s=240.0, request_rate=rate, prompt=Lengths(mean=prompt), output=Lengths(mean=output, maximum=2000)
    )
    trace = generate([phase], np.random.default_rng(1))
    splits = set()
    for prefill in (1, 2, 3):
        scenario = scenario_of(
            prefill=prefill, decode=4 - prefill, kv_tokens=60_000, planner=PlannerConfig(policy="load")
        )
        result = Simulator(scenario, trace).run()
        changes = result.role_changes
        assert len(changes) <= 2
        assert all(change.decided_s < 120 for change in changes)
        assert (result.records[:, Column.STATUS] == Status.FINISHED).all()
        splits.add(prefill + sum(1 if change.new_role == "prefill" else -1 for change in changes))
    assert len(splits) == (3 if load == "idle" else 1)
