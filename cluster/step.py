"""A step: one batch and when it ends. A pure decode step may stand for many iterations."""

from cluster.batch import Batch
from cluster.cost import DecodeRun
from cluster.request import Request

Chunk = tuple[Request, int]
"""A request and how many of its tokens this step computes."""


class Step:
    """`run` is set for a pure decode step of `iterations`; other steps have one iteration.

    `next_plan_s` is when the instance can start another step: the end, or earlier in a pipeline.
    """

    __slots__ = ("batch", "chunks", "decodes", "end_s", "grown", "iterations", "next_plan_s", "run", "start_s")

    def __init__(
        self,
        batch: Batch,
        start_s: float,
        end_s: float,
        iterations: int,
        decodes: int,
        chunks: list[Chunk],
        run: DecodeRun | None,
        next_plan_s: float,
    ) -> None:
        self.batch = batch
        self.start_s = start_s
        self.end_s = end_s
        self.iterations = iterations
        self.decodes = decodes
        self.chunks = chunks
        self.run = run
        self.next_plan_s = next_plan_s
        self.grown = 0
        """Iterations whose new KV blocks are accounted for (under preempt_recompute)."""

    @property
    def prefill_tokens(self) -> int:
        return sum(tokens for _, tokens in self.chunks)
