"""An engine whose times are sums one can do by hand, and the tools of a policy that plans with it."""

from typing import Any

from cluster.cost import DecodeRun
from planner.config import PlannerConfig
from planner.demand import Arrived, Demand
from planner.engine import EngineModel
from planner.tools import Outlook, Targets, Tools


class LinearCost:
    """A step takes 10 ms, 0.1 ms per new token, and 1 ms per 1000 tokens of KV."""

    def step_s(self, new_tokens: int, num_logits: int, attention_tokens: float, kv_tokens: int) -> float:
        return 0.010 + 1e-4 * new_tokens + 1e-6 * kv_tokens

    def decode_run(self, batch: int, context: int) -> DecodeRun:
        return DecodeRun(self.step_s(batch, batch, context, context), 1e-6 * batch)

    def saturation_tokens(self) -> int:
        return 1000


ENGINE = EngineModel(cost=LinearCost(), kv_capacity_tokens=100_000, prefill_batch_tokens=1000, max_batch=256)
TARGETS = Targets(ttft_s=0.5, tpot_s=0.033)


def tools_of(policy: str = "static", *, targets: Targets = TARGETS, **fields: Any) -> Tools:
    """`fields` are of PlannerConfig. A rollout likes every change, a search always finds 1P and the rest D."""
    return Tools(
        PlannerConfig(policy=policy, **fields),
        targets,
        ENGINE,
        rollout=lambda observation, orders, horizon_s, seed: Outlook(100 + 100 * len(orders), 0),
        replan=lambda demand, instances: (1, instances - 1),
    )


def steady(rate: float, prompt: int, output: int, *, now_s: float, window_s: float = 20.0) -> Demand:
    """Evenly spaced arrivals up to now."""
    count = round(rate * min(window_s, now_s))
    arrived = tuple(Arrived(now_s - (count - 1 - index) / rate, prompt, output) for index in range(count))
    return Demand(window_s=min(window_s, now_s), arrived=arrived, declares=True)
