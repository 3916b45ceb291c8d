"""Scenarios and traces for tests, made by hand or drawn by hypothesis."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from cluster.model import ModelSpec
from cluster.scheduling import EngineConfig
from scenario.hardware import HardwareByRole, RoleHardware
from scenario.loading import load_spec
from scenario.spec import HandoffConfig, InstanceCounts, RouterConfig, Scenario
from tests.reference.roofline import memory_for
from workload.spec import WorkloadSpec
from workload.trace import Trace, TraceInfo

LLAMA_8B = load_spec(ModelSpec, "llama-3-8b")
OPT_13B = load_spec(ModelSpec, "opt-13b")
MIXTRAL = load_spec(ModelSpec, "mixtral-8x7b")
TOY = replace(
    LLAMA_8B,
    name="toy",
    num_layers=6,
    hidden_size=256,
    num_heads=16,
    num_kv_heads=1,
    intermediate_size=256,
    vocab_size=1000,
)
"""Mostly attention: on a SLOW_GPU a decode run goes from memory-bound to compute-bound at a few hundred tokens."""
H100 = load_spec(GpuSpec, "h100-sxm")
A100 = load_spec(GpuSpec, "a100-80gb")
SLOW_GPU = replace(H100, peak_flops=20e9, bandwidth_bytes_s=3.35e9, step_overhead_s=0.0)
NVLINK = load_spec(LinkSpec, "nvlink-h100")
INFINIBAND = load_spec(LinkSpec, "infiniband-400")
ETHERNET = load_spec(LinkSpec, "ethernet-25")


def scenario_of(
    *, prefill: int = 0, decode: int = 0, mixed: int = 0, kv_tokens: int | None = None, **fields: Any
) -> Scenario:
    """Llama-3-8B on H100s, unless told otherwise; with `kv_tokens`, the smallest instance holds so much KV."""
    parts = {"model": LLAMA_8B, "gpu": H100, "gpu_link": NVLINK, "link": INFINIBAND, "workload": WorkloadSpec()}
    counts = InstanceCounts(prefill=prefill, decode=decode, mixed=mixed)
    scenario = Scenario(name="test", instances=counts, **(parts | fields))
    if kv_tokens is None:
        return scenario
    memory = max(memory_for(scenario.model, scenario.hardware_of(role), kv_tokens) for role in scenario.roles)
    return replace(scenario, gpu=replace(scenario.gpu, memory_bytes=memory))


def trace_of(arrival_s: Sequence[float], prompt_tokens: Sequence[int], output_tokens: Sequence[int]) -> Trace:
    return Trace(
        np.array(arrival_s, dtype=np.float64),
        np.array(prompt_tokens, dtype=np.int64),
        np.array(output_tokens, dtype=np.int64),
        TraceInfo(source="made", format="made", unit="s", num_rows=len(arrival_s)),
    )


@st.composite
def traces(draw: st.DrawFn, max_requests: int = 40) -> Trace:
    """From idle to overloaded, one by one or in bursts, short to long.

    No two prompts are equally long: their KV would arrive at one time, in an order that means nothing.
    """
    random = Random(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.integers(1, max_requests))
    gap_s = draw(st.sampled_from([0.0, 0.001, 0.01, 0.1, 1.0]))
    burst = draw(st.sampled_from([1, 1, 3, 8]))
    prompt, output = draw(st.sampled_from([4, 40, 400, 3000])), draw(st.sampled_from([2, 10, 60, 200]))
    arrivals = [0.0]
    for index in range(1, size):
        arrivals.append(arrivals[-1] + (random.expovariate(1) * gap_s if index % burst == 0 else 0.0))
    prompts: list[int] = []
    for _ in range(size):
        length = 1 + int(random.expovariate(1 / prompt))
        while length in prompts:
            length += 1
        prompts.append(length)
    return trace_of(arrivals, prompts, [int(random.expovariate(1 / output)) for _ in range(size)])


ENGINES = st.builds(
    EngineConfig,
    policy=st.sampled_from(["decode_first", "prefill_first", "mixed_batch", "chunked_prefill"]),
    token_budget=st.sampled_from([None, None, 1, 8, 64, 512]),
    prefill_batch_tokens=st.sampled_from([None, 1, 100, 2000]),
    max_batch=st.sampled_from([1, 2, 5, 256]),
    admission=st.sampled_from(["reserve_output", "preempt_recompute"]),
    block_size=st.sampled_from([1, 3, 16]),
)

COUNTS = st.sampled_from(
    [
        {"mixed": 1},
        {"mixed": 3},
        {"prefill": 1, "decode": 1},
        {"prefill": 2, "decode": 1},
        {"prefill": 1, "decode": 2},
        {"prefill": 2, "decode": 3},
        {"prefill": 1, "decode": 1, "mixed": 2},
    ]
)


HARDWARE = st.sampled_from(
    [
        HardwareByRole(),
        HardwareByRole(prefill=RoleHardware(tp=2, pp=1), decode=RoleHardware(power_cap=0.5)),
        HardwareByRole(prefill=RoleHardware(power_cap=0.6), decode=RoleHardware(tp=4, pp=2)),
    ]
)

HANDOFFS = st.sampled_from(
    [
        HandoffConfig(),
        HandoffConfig(),
        HandoffConfig(initiative="push"),
        HandoffConfig(initiative="push", mode="layerwise"),
    ]
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Scenario, Trace]:
    """A scenario and its trace; KV memory from too small for the longest request to ample."""
    trace = draw(traces())
    longest = int((trace.prompt_tokens + trace.output_tokens).max())
    room = draw(st.sampled_from([0.7, 1.0, 1.1, 1.5, 3.0, 100.0]))
    model, gpu = draw(st.sampled_from([(LLAMA_8B, H100), (OPT_13B, A100), (MIXTRAL, H100), (TOY, SLOW_GPU)]))
    engine = draw(ENGINES)
    tp, pp = draw(st.sampled_from([1, 1, 2, 4])), draw(st.sampled_from([1, 1, 2, 3]))
    scenario = scenario_of(
        **draw(COUNTS),
        kv_tokens=max(int(longest * room), 2 * engine.block_size),
        model=model,
        gpu=gpu,
        tp=tp,
        pp=pp,
        hardware=draw(HARDWARE),
        gpus_per_node=draw(st.sampled_from([None, None, 16])),
        handoff=draw(HANDOFFS),
        router=RouterConfig(pairs=draw(st.sampled_from([False, False, True]))),
        link=draw(st.sampled_from([INFINIBAND, ETHERNET])),
        engine=engine,
        seed=draw(st.integers(0, 3)),
    )
    return scenario, trace
