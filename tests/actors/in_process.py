"""The actors of a run in one process, on a clock that jumps: what a live run decides when nothing takes time."""

import asyncio
import copy
import selectors
from collections.abc import Awaitable
from heapq import heappop, heappush
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import ray.exceptions

from actors.instance import InstanceActor
from actors.planner import PlannerActor
from actors.replay import Disturb, run_on
from actors.router import RouterActor
from actors.supervisor import Supervisor
from cluster.role import Role
from metrics.run import RunResult
from planner.tools import Tools
from scenario.spec import Scenario
from workload.trace import Trace


class JumpingLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything is ready to run, and then jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__(_JumpingSelector(self))
        self.time_s = 0.0

    def time(self) -> float:
        return self.time_s


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everybody waits for somebody else"
        self._loop.time_s += timeout
        return super().select(0)


class JumpingClock:
    """In place of actors.clock.Clock: a deadline is met exactly, in spite of a loop that adds up delays."""

    time_scale = 1.0

    def __init__(self, loop: JumpingLoop) -> None:
        self._loop = loop
        self._deadlines: list[float] = []
        self._now = 0.0

    def __deepcopy__(self, memo: object) -> "JumpingClock":
        return self

    def now(self) -> float:
        while self._deadlines and self._deadlines[0] <= self._loop.time_s + 1e-9:
            self._now = max(self._now, heappop(self._deadlines))
        return self._now

    def delay_s(self, until: float) -> float:
        if until != inf:
            heappush(self._deadlines, until)
        return max(0.0, until - self._loop.time_s)


class Handle:
    """In place of an actor handle: `handle.method.remote(...)` gets copies and answers with one, in order."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __deepcopy__(self, memo: object) -> "Handle":
        return self

    def __getattr__(self, name: str) -> "_Method":
        return _Method(getattr(self._actor, name))

    @property
    def __ray_ready__(self) -> "_Method":
        return _Method(_ready)


class _Method:
    def __init__(self, method: Any) -> None:
        self._method = method

    def remote(self, *arguments: Any) -> Awaitable[Any]:
        return asyncio.ensure_future(self._call(copy.deepcopy(arguments)))

    async def _call(self, arguments: Any) -> Any:
        try:
            return copy.deepcopy(await self._method(*arguments))
        except Exception as error:
            raise ray.exceptions.RayTaskError(self._method.__name__, "", error) from error


async def _ready() -> None:
    """An actor that has been created."""


class Sink:
    """In place of the exporter."""

    async def start(self) -> str:
        return "http://127.0.0.1:1/metrics"

    async def put(self, sender: str, store: object) -> None:
        """Nobody looks."""

    async def watch(self) -> None:
        await asyncio.Event().wait()


class InProcess:
    """In place of actors.deployment.Deployment."""

    def __init__(self, scenario: Scenario, tools: Tools) -> None:
        self._scenario, self._tools = scenario, tools

    def instance(self, index: int, role: Role, first_epoch: int) -> Handle:
        return Handle(InstanceActor(self._scenario, index, role, first_epoch, kv_budget_bytes=1 << 20))

    def router(self) -> Handle:
        self.router_actor = RouterActor(self._scenario)
        return Handle(self.router_actor)

    def planner(self) -> Handle:
        return Handle(PlannerActor(self._tools))

    def exporter(self, port: int) -> Handle:
        return Handle(Sink())

    def close(self) -> None:
        """All ends with the loop."""


def replay_in_process(
    scenario: Scenario,
    trace: Trace,
    too_long: npt.NDArray[np.bool_] | None = None,
    *,
    tools: Tools,
    disturb: Disturb | None = None,
    deployment: InProcess | None = None,
) -> RunResult:
    """A live run whose messages take no time. `live.kv_bytes_scale` must be 0: threads know nothing of this clock."""
    if too_long is None:
        too_long = np.zeros(len(trace), dtype=bool)

    async def run() -> RunResult:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        supervisor = Supervisor(scenario, deployment or InProcess(scenario, tools), clock_of=lambda: JumpingClock(loop))
        return await run_on(supervisor, scenario, trace, too_long, disturb=disturb)

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(run())
