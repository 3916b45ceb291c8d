"""Half a cluster is a whole one whose other half is ideal: the same engine then simulates prefill or decode alone.

Prefill alone: every request ends with its first token, so that its KV is gone at once, as if decode always
had room. Decode alone: an infinitely fast prefill instance hands requests over as they arrive; their KV
still crosses the link.
"""

from dataclasses import replace

import numpy as np

from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from scenario.hardware import HardwareByRole, RoleHardware
from scenario.spec import HandoffConfig, InstanceCounts, Scenario
from workload.trace import Trace

_ENDLESS = 1e30
_IDEAL_LINK = LinkSpec(name="ideal", bandwidth_bytes_s=_ENDLESS, alpha_s=0.0)
_IDEAL = RoleHardware(
    gpu=GpuSpec(
        name="ideal",
        peak_flops=_ENDLESS,
        bandwidth_bytes_s=_ENDLESS,
        memory_bytes=_ENDLESS,
        link="ideal",
        step_overhead_s=0.0,
    ),
    gpu_link=_IDEAL_LINK,
    tp=1,
    pp=1,
    power_cap=1.0,
)


def prefill_alone(scenario: Scenario, num_instances: int = 1) -> Scenario:
    """For requests cut by `first_tokens_only`; judged on TTFT, and on E2E, of which TTFT is a part."""
    hardware = HardwareByRole(prefill=scenario.hardware.prefill, decode=_IDEAL)
    counts = InstanceCounts(prefill=num_instances, decode=1)
    return replace(_apart(scenario), instances=counts, hardware=hardware, slo=replace(scenario.slo, tpot_ms=None))


def decode_alone(scenario: Scenario, num_instances: int = 1) -> Scenario:
    """Judged on TPOT, and on E2E, of which decoding is a part.

    As many instances hand over, so that none of them sends more than one receives. KV that leaves layer by layer is taken to arrive with the prompt's last step.
    """
    hardware = HardwareByRole(prefill=_IDEAL, decode=scenario.hardware.decode)
    counts = InstanceCounts(prefill=num_instances, decode=num_instances)
    link = _IDEAL_LINK if scenario.handoff.mode == "layerwise" else scenario.link
    slo = replace(scenario.slo, ttft_ms=None)
    apart = replace(_apart(scenario), instances=counts, hardware=hardware, slo=slo)
    return replace(apart, link=link, handoff=HandoffConfig())


def first_tokens_only(trace: Trace) -> Trace:
    """Every request for one token at most."""
    return replace(trace, output_tokens=np.minimum(trace.output_tokens, 1))


def _apart(scenario: Scenario) -> Scenario:
    """Instances on nodes of their own and roles fixed, whatever the scenario says."""
    return replace(scenario, gpus_per_node=None, planner=replace(scenario.planner, policy="static"))
