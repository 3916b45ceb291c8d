"""Injects faults into a live run, and times how long it takes to notice and to get over each."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import ray
import ray.exceptions

from actors.faults import KINDS, Fault
from actors.messages import Offer, Toll
from actors.tracking import Stage
from cluster.errors import InvariantError
from cluster.load import LoadView
from cluster.request import Request, Status
from cluster.role import Role
from planner.decision import How, RoleOrder
from planner.observation import Observation

if TYPE_CHECKING:
    from actors.supervisor import Supervisor

POLL_S = 0.005
"""Wall seconds between two looks for the moment that a fault waits for."""
PATIENCE_S = 10.0
"""Wall seconds after which a fault has found nobody, and a cure counts as late."""
QUIET_S = 1.0
"""Wall seconds without another death after which a node's death is over."""
SLOW_FACTOR = 3.0


class Chaos:
    """Injects faults in order of time, each after the one before is over; `run` goes along with a replay."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = sorted(faults, key=lambda fault: fault.at_s)

    async def run(self, supervisor: "Supervisor") -> None:
        for fault in self.faults:
            await asyncio.sleep(supervisor.clock.delay_s(fault.at_s))
            fault.before = await _toll(supervisor)
            await self._inject(fault, supervisor)

    async def _inject(self, fault: Fault, supervisor: "Supervisor") -> None:
        kind = KINDS[fault.kind]
        known = len(supervisor.recoveries)
        if fault.kind in ("kill-router", "kill-planner", "kill-exporter"):
            fault.target = fault.kind.removeprefix("kill-")
            fault.injected_s = supervisor.clock.now()
            await _survive(getattr(supervisor, fault.target).suffer.remote())
        elif fault.kind == "kill-node":
            await self._kill_node(fault, supervisor)
        elif fault.kind == "stale":
            async with supervisor.steady():
                with suppress(ray.exceptions.RayActorError):  # somebody has died besides
                    await self._send_stale(fault, supervisor)
        elif fault.kind == "change-role":
            await self._change_role(fault, supervisor)
        elif fault.kind == "cancel":
            await self._cancel(fault, supervisor)
        else:
            how = {"hang": ("hang", 0.0), "slow": ("slow", SLOW_FACTOR), "corrupt": ("corrupt", 1.0)}
            await self._harm(fault, supervisor, *how.get(fault.kind, ("die", 0.0)))
        if kind.kills and fault.target:
            await self._see_recovered(fault, supervisor, known)
        elif fault.kind == "corrupt":
            await self._see_resent(fault, supervisor)

    async def _harm(self, fault: Fault, supervisor: "Supervisor", what: str, amount: float) -> None:
        """Wait until an instance of the role is at what the fault is about, and have it suffer."""
        kind, loop = KINDS[fault.kind], asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        while True:
            for index, instance in list(supervisor.instances.items()):
                fault.injected_s = supervisor.clock.now()
                if await _survive(instance.suffer.remote(what, amount, kind.role, kind.moment)):
                    fault.target = f"instance-{index}"
                    return
            if loop.time() > until:
                return  # nobody has the role, or is at that
            await asyncio.sleep(POLL_S)

    async def _see_recovered(self, fault: Fault, supervisor: "Supervisor", known: int) -> None:
        while len(supervisor.recoveries) == known:
            await asyncio.sleep(POLL_S)
        seen = known
        while len(supervisor.recoveries) > seen:
            seen = len(supervisor.recoveries)
            if fault.kind == "kill-node":
                await asyncio.sleep(QUIET_S)
            await supervisor.settle()
        fault.detected_s = supervisor.recoveries[known].detected_s
        fault.recovered_s = max(recovery.recovered_s for recovery in supervisor.recoveries[known:])

    async def _see_resent(self, fault: Fault, supervisor: "Supervisor") -> None:
        """The damage was noticed, and the payload came again, whole."""
        until = asyncio.get_running_loop().time() + PATIENCE_S
        while asyncio.get_running_loop().time() < until:
            refusals = [one for one in (await _toll(supervisor)).refusals if one[0] >= fault.injected_s]
            if refusals:
                fault.detected_s, fault.recovered_s = refusals[0]
                return
            await asyncio.sleep(0.1)

    async def _kill_node(self, fault: Fault, supervisor: "Supervisor") -> None:
        here = ray.get_runtime_context().get_node_id()
        for index, instance in list(supervisor.instances.items()):
            node = await instance.node_id.remote()
            if node != here:
                fault.target = f"node of instance-{index}"
                fault.injected_s = supervisor.clock.now()
                await _survive(instance.suffer.remote("kill node", 0.0, None, ""))
                return

    async def _change_role(self, fault: Fault, supervisor: "Supervisor") -> None:
        """Order the busiest instance of the larger role into the other, unless a role has only one."""
        observation: Observation = await supervisor.router.observe.remote("")
        while observation.changing():
            await asyncio.sleep(0.1)
            observation = await supervisor.router.observe.remote("")
        roles = [observation.serving(role) for role in (Role.DECODE, Role.PREFILL)]
        donors, others = sorted(roles, key=len, reverse=True)
        if len(donors) < 2 or not others:
            return
        donor = max(donors, key=lambda load: (load.kv_used_tokens, load.queued_tokens))
        order = RoleOrder(donor.index, donor.epoch, others[0].role, "forced", "forced", How.MIGRATE)
        fault.injected_s = supervisor.clock.now()
        if await supervisor.router.change_role.remote(order):
            fault.target = f"instance-{donor.index}"

    async def _cancel(self, fault: Fault, supervisor: "Supervisor") -> None:
        """One request in each stage that there is now, and wait until none of them lives."""
        by_stage: dict[Stage, int] = {}
        for request_id, stage in (await supervisor.router.whereabouts.remote()).items():
            by_stage.setdefault(stage, request_id)
        fault.injected_s = supervisor.clock.now()
        fault.target = ", ".join(stage.value for stage in by_stage)
        left = {one for one in by_stage.values() if await supervisor.router.cancel.remote(one)}
        fault.cancelled = len(left)
        fault.detected_s = supervisor.clock.now()
        while left & set(await supervisor.router.whereabouts.remote()):
            await asyncio.sleep(POLL_S)
        fault.recovered_s = supervisor.clock.now()

    async def _send_stale(self, fault: Fault, supervisor: "Supervisor") -> None:
        """Messages that nobody may act on."""
        fault.target = "everybody"
        fault.injected_s = supervisor.clock.now()
        ghost = Request(10**9, 0.0, 100, 10)
        ghost.status = Status.HANDOFF
        offer = Offer(ghost, 0, -1)
        for index, instance in list(supervisor.instances.items()):
            load: LoadView = await instance.load.remote()
            for epoch, term in ((load.epoch - 1, supervisor.term), (load.epoch, supervisor.term - 1)):
                if not await instance.submit.remote([ghost], epoch, term):
                    raise InvariantError(f"instance-{index} took a prompt for epoch {epoch} from term {term}")
                if await instance.accept.remote(offer, epoch, term):
                    raise InvariantError(f"instance-{index} took an offer for epoch {epoch} from term {term}")
            await instance.release.remote(ghost.request_id)
            await instance.renew.remote([ghost.request_id])
            await supervisor.router.handoff_failed.remote(ghost.request_id, index, "stale")
        await supervisor.router.kv_waits.remote(offer)
        known = await supervisor.router.unfinished.remote()
        if known:
            await supervisor.router.submit.remote(known[:3])
        fault.detected_s = fault.recovered_s = supervisor.clock.now()


async def _toll(supervisor: "Supervisor") -> Toll:
    while True:
        await supervisor.settle()
        try:
            toll: Toll = await supervisor.router.toll.remote()
            return toll
        except ray.exceptions.RayActorError:
            await asyncio.sleep(POLL_S)


async def _survive(answer: Awaitable[Any]) -> bool:
    """The answer; or True when whoever was to give it has died of the question."""
    try:
        return bool(await answer)
    except ray.exceptions.RayActorError:
        return True
