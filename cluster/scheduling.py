"""The batching policies, as orderings of one loop.

There are no phases in the loop: in every step the computed tokens of some requests catch up with what they
need, under a token budget. A policy only says who may share a step and who comes first.
"""

from dataclasses import dataclass
from math import inf

from cluster.errors import ConfigError


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """How a step is filled: decodes first when they ride along, then started prompts, then new ones, FCFS."""

    name: str
    mixes: bool
    """Decodes ride along in a step that prefills."""
    chunks: bool
    """A prompt may be cut at the budget; otherwise one that is longer than the budget runs alone."""
    admits_while_decoding: bool
    """New prompts start while sequences decode; otherwise a batch runs to its last request."""
    token_budget: float = inf
    """New tokens per step."""

    def with_budget(self, tokens: float) -> "BatchPolicy":
        if tokens < 1:
            raise ConfigError(f"token_budget is {tokens}; a step needs a budget of at least 1 token")
        return BatchPolicy(self.name, self.mixes, self.chunks, self.admits_while_decoding, tokens)


COLOCATED = {
    policy.name: policy
    for policy in (
        # FasterTransformer class: request-level batching.
        BatchPolicy("decode_first", mixes=False, chunks=False, admits_while_decoding=False),
        # vLLM v0 class: a step is all prefill or all decode.
        BatchPolicy("prefill_first", mixes=False, chunks=False, admits_while_decoding=True),
        # Orca class: whole prompts join the decode step.
        BatchPolicy("mixed_batch", mixes=True, chunks=False, admits_while_decoding=True),
        # Sarathi-Serve class: stall-free.
        BatchPolicy("chunked_prefill", mixes=True, chunks=True, admits_while_decoding=True),
    )
}

# A batch without decodes on an instance that is not mixed: short prompts together up to L_m tokens.
PREFILL_ALONE = BatchPolicy("prefill", mixes=False, chunks=False, admits_while_decoding=True)


DEFAULT_BUDGET = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What one instance's scheduler is told, whatever role it plays."""

    policy: str = "chunked_prefill"
    """Batching in the mixed role: decode_first, prefill_first, mixed_batch or chunked_prefill."""
    token_budget: int | None = None
    """New tokens per step of prompts beside decodes. None: 512 for chunked_prefill, no limit for the others."""
    prefill_batch_tokens: int | None = None
    """L_m, the tokens up to which a prefill instance batches prompts. None: from the cost model."""
    max_batch: int = 256
    """Sequences that decode (or prefill, in a colocated batch) at once."""
    admission: str = "reserve_output"
    """reserve_output sets prompt + output aside and never preempts; preempt_recompute grows by blocks."""
    block_size: int = 16
    """Tokens per KV block under preempt_recompute."""

    def __post_init__(self) -> None:
        if self.policy not in COLOCATED:
            raise ConfigError(f"engine.policy is {self.policy!r}; use one of {', '.join(COLOCATED)}")
        if self.admission not in ("reserve_output", "preempt_recompute"):
            raise ConfigError(f"engine.admission is {self.admission!r}; use reserve_output or preempt_recompute")
        for field in ("token_budget", "prefill_batch_tokens"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ConfigError(f"engine.{field} is {value}; a step needs a budget of at least 1 token")
        for field in ("max_batch", "block_size"):
            if getattr(self, field) < 1:
                raise ConfigError(f"engine.{field} is {getattr(self, field)}; it must be at least 1")

    @property
    def reserves_output(self) -> bool:
        """Whether admission counts outputs as declared, and so nobody has to be preempted."""
        return self.admission == "reserve_output"

    def colocated_policy(self) -> BatchPolicy:
        """What a mixed instance follows."""
        default = DEFAULT_BUDGET if self.policy == "chunked_prefill" else inf
        return COLOCATED[self.policy].with_budget(self.token_budget or default)

    def guest_policy(self) -> BatchPolicy:
        """What a prefill or decode instance follows while it has both kinds of work: stall-free.

        That is so after a preemption, after a role change that did not wait, and when a router prefills on a
        decode instance.
        """
        return COLOCATED["chunked_prefill"].with_budget(self.token_budget or DEFAULT_BUDGET)
