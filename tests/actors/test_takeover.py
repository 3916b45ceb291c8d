"""A router dies, and while its successor still asks around, the instances go on talking to it."""

import asyncio
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import ray.exceptions

from actors.instance import InstanceActor
from actors.messages import Inventory
from actors.replay import Disturb
from actors.router import RouterActor
from actors.supervisor import Supervisor
from cluster.role import Role
from cluster.step_log import StepRow
from metrics.records import Column
from metrics.run import RunResult
from planner.decision import How, RoleOrder
from scenario.loading import load_scenario
from scenario.requests import requests_of
from scenario.spec import Scenario
from sim.run import simulate, tools_of
from tests.actors.in_process import Handle, InProcess, replay_in_process
from tests.actors.nothing_lost import check_nothing_lost
from workload.trace import Trace

PHASE = {
    "duration_s": 12,
    "request_rate": 12,
    "prompt": {"mean": 1200, "maximum": 5000},
    "output": {"mean": 150, "maximum": 400},
}
DEATHS_S = (3.0, 4.0, 8.0)
SLOW_S = 0.4
"""How long each instance's answer to a new router is on its way."""


class FarAway(InstanceActor):
    async def inventory(self, router: Any, term: int) -> Inventory:
        found = await super().inventory(router, term)
        await asyncio.sleep(SLOW_S)
        return found


class Mortal(Handle):
    """A handle whose actor can die: what is under way and whatever is asked later fails."""

    def __init__(self, actor: Any) -> None:
        super().__init__(actor)
        self._death = asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        return _UnlessDead(super().__getattr__(name), self._death)

    async def die(self) -> None:
        self._death.set_result(None)
        await self._actor._calls.stop()


class _UnlessDead:
    def __init__(self, method: Any, death: asyncio.Future[None]) -> None:
        self._method, self._death = method, death

    def remote(self, *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._ask(arguments))

    async def _ask(self, arguments: tuple[Any, ...]) -> Any:
        if not self._death.done():
            answer = asyncio.ensure_future(self._method.remote(*arguments))
            await asyncio.wait([answer, self._death], return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            answer.cancel()
        raise ray.exceptions.ActorDiedError


class DyingRouters(InProcess):
    def instance(self, index: int, role: Role, first_epoch: int) -> Handle:
        return Handle(FarAway(self._scenario, index, role, first_epoch, kv_budget_bytes=1 << 20))

    def router(self) -> Mortal:
        return Mortal(RouterActor(self._scenario))


async def kill_routers(supervisor: Supervisor) -> None:
    for at_s in DEATHS_S:
        await asyncio.sleep(supervisor.clock.delay_s(at_s))
        await kill_router(supervisor)


async def kill_router(supervisor: Supervisor) -> None:
    known = len(supervisor.recoveries)
    await supervisor.router.die()
    while len(supervisor.recoveries) == known or np.isnan(supervisor.recoveries[-1].recovered_s):
        await asyncio.sleep(0.01)


async def change_a_role_and_kill_the_router(supervisor: Supervisor) -> None:
    await asyncio.sleep(supervisor.clock.delay_s(5.0))
    order = RoleOrder(1, 0, Role.DECODE, "test", "for a test", How.DRAIN)
    assert await supervisor.router.change_role.remote(order)
    await kill_router(supervisor)


def replayed(disturb: Disturb, handoff: dict[str, str]) -> tuple[Scenario, Trace, RunResult]:
    changes = {"workload.phases": [PHASE], "planner.policy": "static", "live.kv_bytes_scale": 0, "handoff": handoff}
    scenario = load_scenario("demo", changes)
    trace, too_long, _ = requests_of(scenario)
    tools = tools_of(scenario)
    deployment = DyingRouters(scenario, tools)
    result = replay_in_process(scenario, trace, too_long, tools=tools, disturb=disturb, deployment=deployment)
    check_nothing_lost(result)
    return scenario, trace, result


@pytest.mark.parametrize("handoff", [{}, {"initiative": "push", "mode": "layerwise"}], ids=["pull", "layerwise"])
def test_what_is_said_to_a_router_that_takes_over_is_not_lost(handoff: dict[str, str]) -> None:
    scenario, trace, result = replayed(kill_routers, handoff)
    assert [recovery["who"] for recovery in result.live["recoveries"]] == ["router"] * len(DEATHS_S)
    assert result.live["requests_disturbed"] == 0
    handed_over = result.records[:, Column.DECODE_INSTANCE] >= 0
    assert result.num_transfers == handed_over.sum()
    steps = np.concatenate([log for logs in result.step_logs for log in logs])
    assert steps[:, StepRow._fields.index("prefill_tokens")].sum() == trace.prompt_tokens.sum()
    for index in range(len(scenario.roles)):
        spans = [span for span in result.role_spans if span.instance == index]
        assert spans[0].start_s == 0
        assert all(one.end_s == other.start_s for one, other in pairwise(spans))
    undisturbed = simulate(scenario, trace).records
    late_s = result.records[:, Column.FINISHED_S] - undisturbed[:, Column.FINISHED_S]
    assert late_s.max() < 2 * len(scenario.roles) * SLOW_S + 1  # the second router dies as soon as it is in office


def test_a_role_change_outlives_the_router_that_ordered_it() -> None:
    _, _, result = replayed(change_a_role_and_kill_the_router, {})
    (change,) = result.role_changes
    assert (change.instance, change.old_role, change.new_role, change.reason) == (1, "prefill", "decode", "for a test")
    assert 5.0 <= change.decided_s <= change.served_s < 9.0
