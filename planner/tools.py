"""What a policy may use beside its observation: settings, targets, an engine model, and a look into the future."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from planner.config import PlannerConfig
from planner.decision import Decision, RoleOrder
from planner.demand import Demand
from planner.engine import EngineModel
from planner.history import Load
from planner.observation import Observation


@dataclass(frozen=True, slots=True)
class Targets:
    """Latency targets in seconds; infinite where there is none."""

    ttft_s: float = float("inf")
    tpot_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class Outlook:
    """What becomes of the requests of a rollout; those not ended by then are judged as they are heading."""

    good: int
    bad: int

    def plus(self, other: "Outlook") -> "Outlook":
        return Outlook(self.good + other.good, self.bad + other.bad)


NO_TARGETS = Targets()

Rollout = Callable[[Observation, Sequence[RoleOrder], float, int], Outlook]
"""(observation, orders to carry out now, horizon in seconds, seed) -> outlook. Pure: the same in, the same out."""

Replan = Callable[[Demand, int], tuple[int, int]]
"""(demand, number of instances) -> the split, prefill and decode, that serves such demand best. Pure, too."""

Policy = Callable[[Observation, Any, Any], tuple[Decision, Any]]
"""(observation, tools, memory) -> (decision, memory for the next tick). Pure, too."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Policies that only need thresholds ignore all but `config`."""

    config: PlannerConfig
    targets: Targets = NO_TARGETS
    engine: EngineModel | None = None
    rollout: Rollout | None = None
    may_mix: bool = False
    """Whether the router sends a mixed instance prompts and handoffs alike, so that it can stand in for either role."""
    replan: Replan | None = None
    policy: Policy | None = None
    """In place of the one that `config` names: a function that is handed None as its first memory."""
    past: tuple[Load, ...] = ()
    """Windows of demand that came before the run: what a predictor is warm-started with."""
