"""The planner under the wall clock: observe, tick, order; on absolute deadlines."""

import asyncio
from typing import Any

from actors.calls import Calls
from actors.clock import Clock
from metrics.prometheus import MetricStore
from planner.planner import Planner
from scenario.spec import Scenario


class PlannerActor:
    """Runs the same policy as the simulator; the router carries out its orders."""

    def __init__(self, scenario: Scenario) -> None:
        self._interval_s = scenario.planner.interval_s
        self._planner = Planner(scenario.planner)
        self._metrics = MetricStore()
        self._calls = Calls()

    async def start(self, clock: Clock, router: Any, exporter: Any) -> None:
        """Tick until `finish`."""
        self._clock, self._router, self._exporter = clock, router, exporter
        self._calls.spawn(self._tick_forever())

    async def _tick_forever(self) -> None:
        due = self._interval_s
        while True:
            await asyncio.sleep(self._clock.delay_s(due))
            await self._tick()
            due = max(due + self._interval_s, self._clock.now())

    async def _tick(self) -> None:
        observation = await self._calls.ask(self._router.observe)
        decision = self._planner.tick(observation)
        for order in decision.orders:
            await self._calls.ask(self._router.change_role, order)
        self._metrics.add("baton_planner_ticks")
        self._metrics.set("baton_planner_target_instances", decision.target_prefill, "prefill")
        self._metrics.set("baton_planner_target_instances", decision.target_decode, "decode")
        self._calls.tell(self._exporter.add, self._metrics.take())

    async def finish(self) -> int:
        """Stop ticking; returns the number of calls made."""
        await self._calls.stop()
        return self._calls.count
