"""Samples of an instance's queues, batch and KV, at even times."""

from cluster.instance import Instance
from metrics.records import FloatArray

SAMPLE_FIELDS = ("now_s", "queued_tokens", "num_waiting", "num_decoding", "kv_used_tokens", "num_outgoing")


def sample_of(instance: Instance, now: float) -> tuple[float, ...]:
    """Values of SAMPLE_FIELDS."""
    scheduler = instance.scheduler
    decoding = 0
    for batch in instance.batches:
        decoding += batch.size
    return (
        now,
        scheduler.queued_tokens,
        len(scheduler.waiting),
        decoding,
        instance.memory.used,
        len(instance.outgoing),
    )


def until(samples: FloatArray, end_s: float) -> FloatArray:
    """Samples of the run itself: they go on until somebody notices that it is over."""
    return samples[samples[:, 0] <= end_s]
