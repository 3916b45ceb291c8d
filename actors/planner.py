"""The planner under the wall clock: observe, tick, order; on absolute deadlines."""

import asyncio
import os
from contextlib import suppress
from typing import Any

import ray.exceptions

from actors.calls import Calls
from actors.clock import Clock
from metrics.prometheus import MetricStore
from planner.planner import Planner
from planner.tools import Tools


class PlannerActor:
    """Runs the same policy as the simulator; the router carries out its orders."""

    def __init__(self, tools: Tools) -> None:
        self._interval_s = tools.config.interval_s
        self._planner = Planner(tools)
        self._metrics = MetricStore()
        self._calls = Calls()
        self._words: list[tuple[float, str]] = []
        """The reason of every tick."""

    async def start(self, clock: Clock, router: Any, exporter: Any, name: str) -> None:
        """Tick until `finish`; `name` is what the exporter knows it by."""
        self._clock, self._router, self._exporter, self._name = clock, router, exporter, name
        self._calls.spawn(self._tick_forever())

    async def _tick_forever(self) -> None:
        due = self._interval_s * max(1, int(self._clock.now() / self._interval_s) + 1)
        while True:
            await asyncio.sleep(self._clock.delay_s(due))
            with suppress(ray.exceptions.RayActorError):  # the router's successor is on the way
                await self._tick()
            due = max(due + self._interval_s, self._clock.now())

    async def _tick(self) -> None:
        observation = await self._calls.ask(self._router.observe, self._words[-1][1] if self._words else "")
        decision = self._planner.tick(observation)
        self._words.append((observation.now_s, decision.reason))
        for order in decision.orders:
            await self._calls.ask(self._router.change_role, order)
        self._metrics.add("baton_planner_ticks")
        self._metrics.set("baton_planner_target_instances", decision.target_prefill, "prefill")
        self._metrics.set("baton_planner_target_instances", decision.target_decode, "decode")
        self._calls.tell(self._exporter.put, self._name, self._metrics)

    async def set_router(self, router: Any) -> None:
        self._router = router

    async def set_exporter(self, exporter: Any) -> None:
        self._exporter = exporter

    async def watch(self) -> None:
        """Never returns; fails when this process dies or something in it has gone wrong."""
        await self._calls.failure()

    async def suffer(self) -> None:
        """Die, to see who minds."""
        os.kill(os.getpid(), 9)

    async def finish(self) -> tuple[list[tuple[float, str]], list[str], int, float]:
        """Stop ticking; returns the reason of every tick, notices, the number of calls made and the CPU seconds used."""
        await self._calls.stop()
        return self._words, self._planner.notices(), self._calls.count, self._calls.cpu_s
