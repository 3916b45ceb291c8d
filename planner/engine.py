"""What a planner may assume of one instance: how long things take, from the same cost model as the engine."""

from dataclasses import dataclass

from cluster.cost import StepCost


@dataclass(frozen=True, slots=True)
class EngineModel:
    """Estimates for an idle instance; queues are the policies' business."""

    cost: StepCost
    kv_capacity_tokens: int
    prefill_batch_tokens: int
    """L_m: up to so many tokens, short prompts share a step."""
    max_batch: int
    token_budget: float = float("inf")
    """New tokens per step of a mixed instance, decodes included."""

    def prefill_s(self, prompt_tokens: float, prompts: int = 1) -> float:
        """Seconds of a step that computes so many whole prompts of this length."""
        tokens = round(prompt_tokens * prompts)
        return self.cost.step_s(tokens, prompts, prompts * 0.5 * prompt_tokens * prompt_tokens, tokens)

    def seconds_per_prompt(self, prompt_tokens: float) -> float:
        """Seconds of prefill work that one more prompt brings, batched as far as L_m allows."""
        if prompt_tokens <= 0:
            return 0.0
        prompts = max(1, int(self.prefill_batch_tokens // prompt_tokens))
        return self.prefill_s(prompt_tokens, prompts) / prompts

    def iteration_s(self, batch: float, context: float) -> float:
        """Seconds of one decode iteration over `batch` sequences of `context` tokens each."""
        if batch <= 0:
            return 0.0
        sequences, tokens = max(1, round(batch)), round(max(batch, 1) * context)
        return self.cost.step_s(sequences, sequences, float(tokens), tokens)

    def mixed_s(self, chunk: float, prompt_tokens: float, batch: float, context_tokens: float) -> float:
        """Seconds of a step that computes `chunk` tokens of prompts beside `batch` sequences of so many tokens in all.

        The chunk is taken from anywhere in prompts of `prompt_tokens` each: half of what it leaves out has gone before.
        """
        attended = chunk * 0.5 * prompt_tokens + context_tokens
        past = max(0.0, prompt_tokens - chunk) / 2
        return self.cost.step_s(round(chunk + batch), round(batch) + 1, attended, round(context_tokens + past + chunk))

    def settled_batch(self, request_rate: float, output_tokens: float, context: float) -> float:
        """Sequences that decode at once on one instance that gets `request_rate`, by Little's law.

        Infinite when iterations grow faster with the batch than tokens come out.
        """
        if request_rate <= 0 or output_tokens <= 0:
            return 0.0
        tokens_per_s = request_rate * output_tokens
        base, slope = self.iteration_s(1, context), 0.0
        step = max(2, self.max_batch)
        slope = (self.iteration_s(step, context) - base) / (step - 1)
        # batch = tokens_per_s x iteration(batch), with iteration affine in the batch.
        left = 1.0 - tokens_per_s * slope
        return tokens_per_s * (base - slope) / left if left > 1e-9 else float("inf")

    def tpot_s(self, request_rate: float, output_tokens: float, prompt_tokens: float) -> float:
        """Time per output token of one decode instance that gets `request_rate`, once settled; infinite if never."""
        context = prompt_tokens + output_tokens / 2
        batch = self.settled_batch(request_rate, output_tokens, context)
        limit = min(float(self.max_batch), self.kv_capacity_tokens / max(1.0, prompt_tokens + output_tokens))
        return self.iteration_s(batch, context) if batch <= limit else float("inf")

    def mixed_step_s(self, batch: float, context: float, prompt_tokens: float) -> float:
        """Seconds of a mixed step that is full: `batch` decodes, and prompt tokens up to the budget."""
        return self.mixed_s(self._chunk(batch, prompt_tokens), prompt_tokens, batch, batch * context)

    def mixed_prompt_tokens_per_s(self, batch: float, context: float, prompt_tokens: float) -> float:
        """Prompt tokens that a mixed instance computes per second beside `batch` decodes."""
        return self._chunk(batch, prompt_tokens) / self.mixed_step_s(batch, context, prompt_tokens)

    def _chunk(self, batch: float, prompt_tokens: float) -> float:
        limit = self.token_budget if self.token_budget < float("inf") else max(prompt_tokens, 1.0)
        return max(0.0, limit - batch)
