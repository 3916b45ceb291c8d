"""Faults on purpose: what, to whom and when; how they are injected; and a cost model that is slow."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from random import Random
from typing import TYPE_CHECKING, Any

from actors.messages import Offer
from cluster.cost import DecodeRun, StepCost
from cluster.errors import ConfigError
from cluster.load import LoadView
from cluster.request import Request, Status
from cluster.role import Role
from planner.decision import How, RoleOrder
from planner.observation import Observation

if TYPE_CHECKING:
    from actors.supervisor import Recovery, Supervisor

KINDS = {
    "kill-prefill": "SIGKILL the busiest prefill instance",
    "kill-decode": "SIGKILL the busiest decode instance",
    "kill-mixed": "SIGKILL the busiest mixed instance",
    "kill-router": "SIGKILL the router",
    "kill-planner": "SIGKILL the planner",
    "kill-exporter": "SIGKILL the exporter",
    "hang": "the busiest decode instance answers no more",
    "slow": "the busiest decode instance takes three times as long for every step",
    "corrupt": "the next KV payload of the busiest prefill instance is damaged",
    "stale": "late and duplicated messages: old epochs, old terms, requests long gone",
    "cancel": "the clients of some live requests go away",
    "change-role": "the busiest instance of the larger role is ordered into the other, and what it has migrates",
}
SLOW_FACTOR = 3.0
HANG_S = 3600.0
NUM_CANCELLED = 5


@dataclass(slots=True)
class Fault:
    """`at_s` is scenario time. The rest is filled in as it happens."""

    kind: str
    at_s: float
    target: str = ""
    injected_s: float = nan
    recovery: "Recovery | None" = None


def parse_fault(text: str) -> Fault:
    """From KIND@SECONDS. Raises ConfigError."""
    kind, at, seconds = text.partition("@")
    if kind not in KINDS:
        raise ConfigError(f"fault {text!r} has unknown kind {kind!r}; use one of {', '.join(KINDS)}")
    try:
        at_s = float(seconds)
    except ValueError:
        at_s = -1.0
    if not at or not 0 <= at_s < float("inf"):
        raise ConfigError(f"fault {text!r} does not say when; write KIND@SECONDS, for example {kind}@10")
    return Fault(kind, at_s)


def random_faults(kinds: Sequence[str], mean_gap_s: float, until_s: float, seed: int) -> list[Fault]:
    """Faults of the given kinds at random times, `mean_gap_s` apart on average."""
    rng = Random(seed)
    faults, now = [], rng.expovariate(1 / mean_gap_s)
    while now < until_s:
        faults.append(Fault(rng.choice(list(kinds)), now))
        now += rng.expovariate(1 / mean_gap_s)
    return faults


class Chaos:
    """Injects faults in order of time; `run` goes along with a replay."""

    def __init__(self, faults: list[Fault], seed: int = 0) -> None:
        self.faults = sorted(faults, key=lambda fault: fault.at_s)
        self._rng = Random(seed)
        self.num_cancelled = 0

    async def run(self, supervisor: "Supervisor") -> None:
        """Wait for each fault's time and inject it; after that, tell each which recovery it caused."""
        for fault in self.faults:
            await asyncio.sleep(supervisor.clock.delay_s(fault.at_s))
            await supervisor.settle()
            before = len(supervisor.recoveries)
            fault.injected_s = supervisor.clock.now()
            await self._inject(fault, supervisor)
            if fault.kind.startswith("kill") or fault.kind == "hang":
                while len(supervisor.recoveries) == before:
                    await asyncio.sleep(0.02)
                fault.recovery = supervisor.recoveries[before]

    async def _inject(self, fault: Fault, supervisor: "Supervisor") -> None:
        if fault.kind in ("kill-router", "kill-planner", "kill-exporter"):
            fault.target = fault.kind.removeprefix("kill-")
            self._send(getattr(supervisor, fault.target).suffer)
        elif fault.kind == "stale":
            await self._send_stale(supervisor)
        elif fault.kind == "change-role":
            fault.target = await self._change_role(supervisor)
        elif fault.kind == "cancel":
            live = [request.request_id for request in await supervisor.router.unfinished.remote()]
            for request_id in self._rng.sample(live, min(NUM_CANCELLED, len(live))):
                self.num_cancelled += await supervisor.router.cancel.remote(request_id)
        else:
            load = self._busiest(fault.kind, (await supervisor.snapshot()).loads)
            if load is None:
                fault.target = "nobody"
                return
            fault.target = f"instance-{load.index}"
            instance = supervisor.instances[load.index]
            how = {"hang": ("hang", HANG_S), "slow": ("slow", SLOW_FACTOR), "corrupt": ("corrupt", 1.0)}
            self._send(instance.suffer, *how.get(fault.kind, ("die", 0.0)))

    def _busiest(self, kind: str, loads: Sequence[LoadView]) -> LoadView | None:
        """The instance with most to lose in the role that the fault is about."""
        role = {"kill-prefill": Role.PREFILL, "corrupt": Role.PREFILL, "kill-mixed": Role.MIXED}.get(kind, Role.DECODE)
        candidates = [load for load in loads if load.role is role]
        return max(candidates, key=lambda load: (load.kv_used_tokens, load.queued_tokens), default=None)

    async def _change_role(self, supervisor: "Supervisor") -> str:
        """Returns who obeys; nobody does where a role has only one. Waits for the change before to be over."""
        observation: Observation = await supervisor.router.observe.remote("")
        while observation.changing():
            await asyncio.sleep(0.1)
            observation = await supervisor.router.observe.remote("")
        roles = [observation.serving(role) for role in (Role.DECODE, Role.PREFILL)]
        donors, others = sorted(roles, key=len, reverse=True)
        if len(donors) < 2 or not others:
            return "nobody"
        donor = max(donors, key=lambda load: (load.kv_used_tokens, load.queued_tokens))
        order = RoleOrder(donor.index, donor.epoch, others[0].role, "forced", "forced", How.MIGRATE)
        obeyed: bool = await supervisor.router.change_role.remote(order)
        return f"instance-{donor.index}" if obeyed else "nobody"

    @staticmethod
    def _send(method: Any, *arguments: Any) -> None:
        """Call without waiting: the dead do not answer."""
        method.remote(*arguments)

    async def _send_stale(self, supervisor: "Supervisor") -> None:
        """Messages that nobody may act on."""
        ghost = Request(10**9, 0.0, 100, 10)
        ghost.status = Status.HANDOFF
        offer = Offer(ghost, 0, -1)
        for index, instance in supervisor.instances.items():
            load: LoadView = await instance.load.remote()
            for epoch, term in ((load.epoch - 1, supervisor.term), (load.epoch, supervisor.term - 1)):
                assert await instance.submit.remote([ghost], epoch, term), "a stale prompt was taken"
                assert not await instance.accept.remote(offer, epoch, term), "a stale offer was taken"
            await instance.release.remote(ghost.request_id)
            await supervisor.router.handoff_failed.remote(ghost.request_id, index, "stale")
        await supervisor.router.kv_waits.remote(offer)
        known = await supervisor.router.unfinished.remote()
        if known:
            await supervisor.router.submit.remote(known[:3])


class Slowed:
    """Every step takes `factor` times as long as it would: a straggler."""

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
