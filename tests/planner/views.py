"""Load reports made by hand."""

from dataclasses import replace

from cluster.load import LoadView
from cluster.role import Phase, Role
from planner.demand import Demand
from planner.observation import NO_DEMAND, Observation


def view(
    index: int,
    role: Role,
    *,
    queued: int = 0,
    kv: int = 0,
    offered: int = 0,
    phase: Phase = Phase.SERVING,
    epoch: int = 0,
    **counts: float,
) -> LoadView:
    """An instance with room for 100 000 KV tokens; `counts` are other fields of a load report."""
    made = LoadView(
        now_s=0.0,
        index=index,
        role=role,
        phase=phase,
        target=None,
        epoch=epoch,
        serving_since_s=0.0,
        num_waiting=0,
        queued_tokens=queued,
        oldest_wait_s=0.0,
        num_prefilling=0,
        num_decoding=0,
        context_tokens=0,
        generated_tokens=0,
        decoding_s=0.0,
        iteration_s=0.0,
        num_ready=0,
        num_outgoing=0,
        num_incoming=0,
        num_offers=0,
        offered_tokens=offered,
        kv_used_tokens=kv,
        kv_capacity_tokens=100_000,
        num_preemptions=0,
    )
    return replace(made, **counts)


def cluster(
    queues: list[int], uses: list[int], now_s: float = 0.0, demand: Demand = NO_DEMAND, **counts: float
) -> Observation:
    """Prefill instances by their queued tokens, then decode instances by their KV tokens; `counts` are those of all."""
    prefill = [view(index, Role.PREFILL, queued=queued, now_s=now_s, **counts) for index, queued in enumerate(queues)]
    decode = [view(len(queues) + index, Role.DECODE, kv=kv, now_s=now_s, **counts) for index, kv in enumerate(uses)]
    return Observation(now_s, (*prefill, *decode), demand)
