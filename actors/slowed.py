"""A cost model that is slow: what makes an instance a straggler."""

from cluster.cost import DecodeRun, StepCost


class Slowed:
    """Every step takes `factor` times as long as it would."""

    def __init__(self, cost: StepCost, factor: float) -> None:
        self._cost = cost
        self._factor = factor

    def step_s(self, new_tokens: int, num_logits: int, attention_tokens: float, kv_tokens: int) -> float:
        return self._factor * self._cost.step_s(new_tokens, num_logits, attention_tokens, kv_tokens)

    def decode_run(self, batch: int, context: int) -> DecodeRun:
        run, factor = self._cost.decode_run(batch, context), self._factor
        return DecodeRun(
            factor * run.first_s, factor * run.slope_s, run.split, factor * run.late_first_s, factor * run.late_slope_s
        )

    def saturation_tokens(self) -> int:
        return self._cost.saturation_tokens()
