"""The requests of a scenario, settled against what its instances can hold."""

import numpy as np
import numpy.typing as npt

from scenario.build import request_limit_tokens, smallest_kv_capacity
from scenario.spec import Scenario
from workload.load import fit_lengths, load_workload
from workload.trace import Trace


def requests_of(scenario: Scenario) -> tuple[Trace, npt.NDArray[np.bool_], list[str]]:
    """The trace, which of its requests the run must reject, and sentences for the results."""
    trace = load_workload(scenario.workload, seed=scenario.seed)
    trace, too_long, notices = fit_lengths(
        trace,
        max_context=request_limit_tokens(scenario),
        kv_capacity=smallest_kv_capacity(scenario),
        on_too_long=scenario.workload.on_too_long,
    )
    return trace, too_long, [*trace.info.notices, *notices]
