"""When the stages of an instance are busy: one stage, or a pipeline that several micro-batches share."""

from collections.abc import Sequence

from cluster.cost import StepCost
from cluster.link import LinkSpec


class Pipeline:
    """Stages in a row. A micro-batch enters a stage when it has left the one before and the stage is free.

    Between stages its activations cross `link` (hidden size x activation bytes per token), which delays that
    micro-batch but keeps no stage busy. Stages of equal length give latency D and a throughput of one
    batch every D / pp; micro-batches of unequal length leave bubbles.
    """

    __slots__ = ("_free_s", "link", "stages", "token_bytes")

    def __init__(self, stages: Sequence[StepCost], *, link: LinkSpec | None = None, token_bytes: int = 0) -> None:
        self.stages = tuple(stages)
        self.link = link
        self.token_bytes = token_bytes
        self._free_s = [0.0] * len(self.stages)

    @property
    def depth(self) -> int:
        return len(self.stages)

    @property
    def first_free_s(self) -> float:
        """When the first stage can take another micro-batch."""
        return self._free_s[0]

    def enter(self, now: float, new_tokens: int, num_logits: int, attention_tokens: float, kv_tokens: int) -> float:
        """Send one micro-batch through all stages; returns when it leaves the last one."""
        free = self._free_s
        send = self.link.transfer_s(new_tokens * self.token_bytes) if self.link is not None else 0.0
        at = now
        for index, stage in enumerate(self.stages):
            if index:
                at += send
            at = max(at, free[index]) + stage.step_s(new_tokens, num_logits, attention_tokens, kv_tokens)
            free[index] = at
        return at
