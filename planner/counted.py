"""Books that also count requests, for routers that estimate times and do not only compare loads."""

from random import Random
from typing import Any

from cluster.router import Candidates, Router
from planner.tools import Tools


class CountedCandidates(Candidates):
    """`requests` holds how many requests the booked tokens belong to, by instance."""

    __slots__ = ("requests",)

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.requests: dict[int, int] = {}

    def book(self, instance: int, tokens: int) -> None:
        super().book(instance, tokens)
        self.requests[instance] = self.requests.get(instance, 0) + (1 if tokens > 0 else -1)

    def of(self, instance: int) -> tuple[int, int]:
        """Requests and tokens that an instance has."""
        return self.requests.get(instance, 0), self.booked.get(instance, 0)


class CountingRouter(Router):
    """A router with an engine model. `fields` go to Router."""

    def __init__(self, tools: Tools, **fields: Any) -> None:
        super().__init__(**fields)
        assert tools.engine is not None, "the driver hands an engine model to a router that estimates times"
        self._engine, self._targets, self._config = tools.engine, tools.targets, tools.config
        self.prompts: CountedCandidates = CountedCandidates(self.prompts.rng)
        self.handoffs: CountedCandidates = CountedCandidates(self.handoffs.rng)

    def forget(self, instance: int) -> None:
        super().forget(instance)
        self.prompts.requests[instance] = self.handoffs.requests[instance] = 0

    def prefill_s(self, instance: int) -> float:
        """Seconds that the prompts take which an instance still has to compute."""
        prompts, tokens = self.prompts.of(instance)
        return prompts * self._engine.seconds_per_prompt(tokens / prompts) if prompts else 0.0
