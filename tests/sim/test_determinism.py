"""One seed in, the same bytes out."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given

from metrics.run import RunResult
from scenario.build import smallest_kv_capacity
from sim.simulator import Simulator
from tests.reference.cases import runs, scenario_of, trace_of


def digest(result: RunResult) -> str:
    sha = hashlib.sha256(result.records.tobytes())
    for logs in result.step_logs:
        for log in logs:
            sha.update(log.tobytes())
    for samples in result.samples:
        sha.update(samples.tobytes())
    return sha.hexdigest()


@given(runs())
def test_the_same_bytes(run):
    scenario, trace = run
    too_long = trace.prompt_tokens + trace.output_tokens > smallest_kv_capacity(scenario)
    assert digest(Simulator(scenario, trace, too_long).run()) == digest(Simulator(scenario, trace, too_long).run())


def tied_digest(seed: int) -> str:
    """Bursts of requests all alike, so that every choice of the router is a tie."""
    scenario = replace(scenario_of(prefill=3, decode=3), seed=seed)
    arrivals = np.repeat(np.arange(20) * 0.25, 10)
    return digest(Simulator(scenario, trace_of(arrivals, [500] * 200, [40] * 200)).run())


def test_ties_are_the_same_in_every_process():
    """Hash randomisation must not reach a result, and the seed must."""
    code = "from tests.sim.test_determinism import tied_digest; print(tied_digest(1))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert printed == {tied_digest(1)}
    assert tied_digest(2) != tied_digest(1)
