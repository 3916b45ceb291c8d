"""The simulator against queueing theory: a prefill instance with prompts of one length is an M/D/1 queue."""

from math import sqrt

import numpy as np
import pytest

from cluster.scheduling import EngineConfig
from metrics.records import Column
from metrics.run import RunResult
from metrics.samples import SAMPLE_FIELDS
from scenario.build import build_cost
from sim.simulator import Simulator
from tests.reference.cases import scenario_of, trace_of

PROMPT = 1000
SCENARIO = scenario_of(prefill=1, decode=1, engine=EngineConfig(prefill_batch_tokens=1), sample_interval_s=0.05)
SERVICE_S = build_cost(SCENARIO, SCENARIO.roles[0]).step_s(PROMPT, 1, PROMPT * PROMPT / 2, PROMPT)


def serve(rho: float, size: int, seed: int) -> RunResult:
    """Poisson arrivals that keep the instance busy a share `rho` of the time, and one output token each."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(SERVICE_S / rho, size))
    return Simulator(SCENARIO, trace_of(arrivals, [PROMPT] * size, [1] * size)).run()


@pytest.mark.parametrize("rho", [0.3, 0.5, 0.7, 0.9])
def test_mean_wait_is_that_of_m_d_1(rho):
    """rho s / (2 (1 - rho)), within 3.9 standard errors over 19 batches: one run in a thousand would miss it."""
    size = 60_000
    records = serve(rho, size, seed=1).records
    waits = (records[:, Column.PREFILL_START_S] - records[:, Column.ARRIVAL_S]).reshape(20, -1)[1:]
    means = waits.mean(axis=1)
    error = means.std(ddof=1) / sqrt(len(means))
    expected = rho * SERVICE_S / (2 * (1 - rho))
    assert abs(means.mean() - expected) < 3.9 * error
    assert error < 0.06 * expected, "the check has teeth"


@pytest.mark.parametrize("rho", [0.5, 0.95, 1.5])
def test_lindley_recursion_to_the_bit(rho):
    """In start times, which is what the simulator adds up: start = max(arrival, start before + service)."""
    records = serve(rho, 5000, seed=2).records
    start = -SERVICE_S
    for arrival, begins, first_token in records[:, [Column.ARRIVAL_S, Column.PREFILL_START_S, Column.FIRST_TOKEN_S]]:
        start = max(arrival, start + SERVICE_S)
        assert (begins, first_token) == (start, start + SERVICE_S)


def test_little_s_law():
    """Mean number waiting and decoding, as sampled, is arrival rate times mean time there, as recorded."""
    size = 4000
    rng = np.random.default_rng(3)
    trace = trace_of(
        np.cumsum(rng.exponential(1 / 25, size)), rng.integers(200, 2000, size), rng.integers(2, 300, size)
    )
    result = Simulator(SCENARIO, trace).run()
    records, samples = result.records, np.concatenate(result.samples)
    waited = (records[:, Column.PREFILL_START_S] - records[:, Column.ARRIVAL_S]).sum()
    decoded = (records[:, Column.FINISHED_S] - records[:, Column.DECODE_START_S]).sum()
    num_samples = len(result.samples[0])
    for field, seconds in (("num_waiting", waited), ("num_decoding", decoded)):
        sampled = samples[:, SAMPLE_FIELDS.index(field)].sum() / num_samples
        assert sampled == pytest.approx(seconds / result.duration_s, rel=0.01), field
        assert sampled > 0.5
