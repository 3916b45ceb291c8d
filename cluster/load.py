"""A snapshot of how loaded an instance is, for planners, metrics and people."""

from dataclasses import dataclass

from cluster.role import Phase, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadView:
    """Everything is as of `now_s`; token counts are exact, not estimates."""

    now_s: float
    index: int
    role: Role
    phase: Phase
    target: Role | None
    """The role a draining instance will take."""
    epoch: int
    serving_since_s: float
    """When it entered its phase: what it measured before is another role's."""
    num_waiting: int
    """Requests whose prompt has not started."""
    queued_tokens: int
    """Prompt tokens not yet computed: waiting prompts and the rest of started ones."""
    oldest_wait_s: float
    """Age of the oldest waiting prompt; 0 when none waits."""
    num_prefilling: int
    num_decoding: int
    context_tokens: int
    """Prompt and generated tokens of the sequences that decode."""
    generated_tokens: int
    """Of these, tokens that were generated."""
    decoding_s: float
    """Mean time since the first token of the sequences that decode; 0 when none does."""
    iteration_s: float
    """Length of one iteration of the step under way; 0 when idle."""
    num_ready: int
    num_outgoing: int
    """Requests whose KV waits here to be pulled."""
    num_incoming: int
    num_offers: int
    """Handoffs waiting for room here."""
    offered_tokens: int
    """KV tokens those handoffs need."""
    kv_used_tokens: int
    kv_capacity_tokens: int
    num_preemptions: int

    @property
    def kv_use(self) -> float:
        """Share of the KV pool that is set aside, 0 to 1."""
        return self.kv_used_tokens / self.kv_capacity_tokens
