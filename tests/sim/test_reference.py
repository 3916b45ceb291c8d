"""The fast simulator against a slow one that adds everything up, request by request."""

import numpy as np
from hypothesis import assume, given, settings

from cluster.request import Status
from metrics.latency import itl
from metrics.records import Column
from scenario.build import smallest_kv_capacity
from sim.simulator import Simulator
from tests.reference.cases import runs
from tests.reference.engine import Sequence
from tests.reference.simulator import ReferenceSimulator

TIMES = {
    Column.PREFILL_START_S: Status.PREFILL,
    Column.TRANSFER_START_S: Status.TRANSFER,
    Column.KV_ARRIVED_S: Status.READY,
    Column.DECODE_START_S: Status.DECODE,
}


def row(sequence: Sequence) -> list[float]:
    """The record that the simulator should have made of it."""
    stamps, nan = sequence.stamps, np.nan
    end = Status.REJECTED if Status.REJECTED in stamps else Status.FINISHED
    first, second = [*sequence.token_s[:2], nan, nan][:2]
    return [
        sequence.request_id,
        end,
        stamps[Status.ARRIVED],
        sequence.prompt_tokens,
        sequence.output_tokens,
        len(sequence.token_s),
        sequence.prefill_instance,
        sequence.decode_instance,
        stamps.get(Status.PREFILL, nan),
        first,
        stamps.get(Status.TRANSFER, nan),
        stamps.get(Status.READY, nan),
        stamps.get(Status.DECODE, nan),
        second,
        stamps[end],
        sequence.num_preemptions,
    ]


@settings(max_examples=6 * settings.default.max_examples)
@given(runs())
def test_equal_request_by_request(run):
    scenario, trace = run
    reference = ReferenceSimulator(scenario, trace)
    sequences = reference.run()
    assume(not reference.ambiguous)
    too_long = trace.prompt_tokens + trace.output_tokens > smallest_kv_capacity(scenario)
    result = Simulator(scenario, trace, too_long).run()

    np.testing.assert_allclose(result.records, [row(sequence) for sequence in sequences], rtol=1e-9, atol=1e-12)
    gaps = np.concatenate([np.diff(sequence.token_s) for sequence in sequences])
    np.testing.assert_allclose(np.sort(itl(result).expanded()), np.sort(gaps), rtol=1e-9, atol=1e-12)
    assert result.starved_steps == sum(engine.starved_iterations for engine in reference.engines)
