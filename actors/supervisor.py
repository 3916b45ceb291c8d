"""Life and death of the actors of a run, seen from the driver: who has died is replaced, and others are told.

A death is noticed by a call that never returns failing, or, for an instance that hangs, by its silence.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any
from urllib.parse import urlsplit

import ray
import ray.exceptions

from actors.clock import Clock
from actors.deeds import DeedsBook
from actors.deployment import Deployment
from actors.messages import Legacy, Snapshot
from cluster.errors import BatonError, ConfigError, InstanceLost
from metrics.records import WIDTH, Records, as_rows
from scenario.build import instance_names
from scenario.spec import Scenario

ANSWER_TIMEOUT_S = 60.0
START_TIMEOUT_S = 300.0
"""A new process has to load Ray and torch first, which takes minutes on a host that is very busy."""
SNAPSHOT_TIMEOUT_S = 15.0
"""A router that takes longer to say how things stand counts as hung."""
PORT_TIMEOUT_S = 10.0
"""A new exporter waits so long for the port of the one before."""


@dataclass(slots=True)
class Recovery:
    """One death and what it took to get over it. Times are scenario seconds."""

    who: str
    detected_s: float
    recovered_s: float = nan
    disturbed: int = 0
    """Requests that were with the dead, or on their way to it."""
    recomputed_tokens: int = 0
    sent_again: int = 0
    """Requests that the driver sent again because no actor knew of them any more."""


class Supervisor:
    """Creates the actors of a run and keeps them alive until `close`.

    `router`, `exporter` and `instances` are the handles to use now. `on_new_router(known)` is told which
    requests a new router knows, so that the others can be sent again; it returns how many were. `term` counts
    routers.
    """

    def __init__(self, scenario: Scenario, deployment: Deployment, clock_of: Callable[[], Clock]) -> None:
        self._scenario = scenario
        self._deployment = deployment
        self._clock_of = clock_of
        self._names = instance_names(scenario)
        self._incarnations: dict[int, int] = dict.fromkeys(range(len(self._names)), 0)
        self._ended = Records()
        self.texts: dict[int, bytes] = {}
        """What ended requests have generated, where a model really computes."""
        self._deeds = DeedsBook()
        self._legacy: Legacy | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self.term = 1
        self._num_planners = 0
        self._failure: Exception | None = None
        """What went wrong in the background: it stops the run."""
        self.recoveries: list[Recovery] = []
        self.on_new_router: Callable[[set[int]], int] = lambda _: 0
        self.instances: dict[int, Any] = {}

    async def deploy(self) -> str:
        """Create everybody; returns the URL of the metrics. Raises ConfigError when the port is taken."""
        self.exporter = self._deployment.exporter(self._scenario.live.metrics_port)
        await ready(self.exporter)
        self.url = str(await ask(self.exporter.start))
        self.router, self.planner = self._deployment.router(), self._deployment.planner()
        self.instances = {
            index: self._deployment.instance(index, role, 0) for index, role in enumerate(self._scenario.roles)
        }
        for actor in (self.router, self.planner, *self.instances.values()):
            await ready(actor)
        return self.url

    async def start(self) -> None:
        """Let everybody join the run, and begin to watch over them."""
        self.clock = self._clock_of()
        await ask(self.router.start, self.clock, self.instances, self.exporter, self.term, dict(self._incarnations))
        for instance in self.instances.values():
            await ask(instance.start, self.clock, self.router, self.exporter, self.instances, self.term)
        await ask(self.planner.start, self.clock, self.router, self.exporter, "planner/0")
        for index, instance in self.instances.items():
            self._watch(instance, partial(self._replace_instance, index))
        self._watch(self.router, self._replace_router)
        self._watch(self.planner, self._replace_planner)
        self._watch(self.exporter, self._replace_exporter)

    def _watch(self, actor: Any, replace: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._watch_over(actor, replace))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch_over(self, actor: Any, replace: Callable[[], Awaitable[None]]) -> None:
        try:
            await actor.watch.remote()
        except ray.exceptions.RayActorError:
            try:
                async with self._lock:
                    await replace()
            except Exception as error:
                self._failure = error
        except ray.exceptions.RayTaskError as error:
            self._failure = error

    async def snapshot(self) -> Snapshot:
        """How the run stands, or what went wrong; also keeps records safe from the router's death, and ends instances that hang."""
        while True:
            if self._failure is not None:
                raise self._failure
            router = self.router
            try:
                snapshot: Snapshot = await asyncio.wait_for(router.snapshot.remote(), SNAPSHOT_TIMEOUT_S)
                break
            except TimeoutError:
                ray.kill(router)
            except ray.exceptions.RayActorError:
                pass
            await self._successor(router)
        self._ended.values.extend(snapshot.ended.ravel().tolist())
        self.texts |= snapshot.texts
        self._deeds.add(snapshot.deeds)
        self._legacy = snapshot.legacy
        hung = hung_instance(snapshot.silent_s, self._scenario.live.silence_timeout_s)
        if hung is not None and hung in self.instances and not self._lock.locked():
            ray.kill(self.instances[hung])
        return snapshot

    async def _successor(self, router: Any) -> None:
        """Wait until another router is in office."""
        while self.router is router and self._failure is None:
            await asyncio.sleep(0.05)

    async def _replace_instance(self, index: int) -> None:
        recovery = Recovery(self._names[index], self.clock.now())
        self.recoveries.append(recovery)
        name = f"{self._names[index]}/{self._incarnations[index]}"
        await self._tell(self.exporter.mourn, name)
        died = await self._tell(self.router.instance_died, index)
        del self.instances[index]
        for peer in self.instances.values():
            await self._tell(peer.peer_died, index)
        if died is None:
            died = self._scenario.roles[index], self._incarnations[index], 0, 0
        role, epoch, recovery.disturbed, recovery.recomputed_tokens = died
        first_epoch = self._incarnations[index] = max(epoch, self._incarnations[index]) + 2
        instance = await started(partial(self._deployment.instance, index, role, first_epoch))
        await ask(instance.start, self.clock, self.router, self.exporter, self.instances, self.term)
        await ask(instance.set_peer, index, instance)
        for peer in self.instances.values():
            await self._tell(peer.set_peer, index, instance)
        self.instances[index] = instance
        await self._tell(self.router.instance_lives, index, instance, role, first_epoch)
        self._watch(instance, partial(self._replace_instance, index))
        recovery.recovered_s = self.clock.now()

    async def _replace_router(self) -> None:
        recovery = Recovery("router", self.clock.now())
        self.recoveries.append(recovery)
        self.term += 1
        router = await started(self._deployment.router)
        known = await ask(
            router.recover,
            router,
            self.clock,
            self.instances,
            self.exporter,
            self.term,
            dict(self._incarnations),
            as_rows(self._ended.values[:], WIDTH),
            self._deeds.told(),
            self._legacy,
        )
        self.router = router
        await self._tell(self.planner.set_router, router)
        self._watch(router, self._replace_router)
        recovery.sent_again = self.on_new_router(known)
        recovery.recovered_s = self.clock.now()

    async def _replace_planner(self) -> None:
        recovery = Recovery("planner", self.clock.now())
        self.recoveries.append(recovery)
        self._num_planners += 1
        self.planner = await started(self._deployment.planner)
        await ask(self.planner.start, self.clock, self.router, self.exporter, f"planner/{self._num_planners}")
        self._watch(self.planner, self._replace_planner)
        recovery.recovered_s = self.clock.now()

    async def _replace_exporter(self) -> None:
        recovery = Recovery("exporter", self.clock.now())
        self.recoveries.append(recovery)
        exporter = await started(partial(self._deployment.exporter, urlsplit(self.url).port or 0))
        await _serving(exporter)
        self.exporter = exporter
        for actor in (self.router, self.planner, *self.instances.values()):
            await self._tell(actor.set_exporter, exporter)
        self._watch(exporter, self._replace_exporter)
        recovery.recovered_s = self.clock.now()

    async def _tell(self, method: Any, *arguments: Any) -> Any:
        """The answer, or None from somebody who has died, too."""
        try:
            return await ask(method, *arguments)
        except ray.exceptions.RayActorError:
            return None

    def steady(self) -> asyncio.Lock:
        """While it is held, nobody is replaced."""
        return self._lock

    async def settle(self) -> None:
        """Wait until nobody is being replaced."""
        async with self._lock:
            pass

    async def close(self) -> None:
        """Stop watching and end all actors."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._deployment.close()


def hung_instance(silent_s: dict[int, float], timeout_s: float) -> int | None:
    """The instance that has been silent longest, if that is too long. When all are, it is the host that is slow."""
    if not silent_s:
        return None
    index = max(silent_s, key=silent_s.__getitem__)
    others = [silence for other, silence in silent_s.items() if other != index]
    is_alone = not others or min(others) < timeout_s / 2
    return index if silent_s[index] > timeout_s and is_alone else None


async def ready(actor: Any) -> None:
    """Wait until a new actor is there."""
    await ask(actor.__ray_ready__, timeout_s=START_TIMEOUT_S)


async def started(create: Callable[[], Any]) -> Any:
    """A new actor that is there. Ray may place it on a node that has died and is not known to have: then another one."""
    until = time.monotonic() + START_TIMEOUT_S
    while True:
        actor = create()
        try:
            await ready(actor)
            return actor
        except ray.exceptions.RayActorError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(1.0)


async def _serving(exporter: Any) -> None:
    """Have a new exporter serve on the port of the last one, which may take a while to let go of it."""
    until = time.monotonic() + PORT_TIMEOUT_S
    while True:
        try:
            await ask(exporter.start)
            return
        except ConfigError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)


async def ask(method: Any, *arguments: Any, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
    """An actor's answer with a deadline; its BatonError is raised as itself."""
    try:
        return await asyncio.wait_for(method.remote(*arguments), timeout_s)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, BatonError):
            raise error.cause from None
        raise
    except TimeoutError:
        name = getattr(method, "_method_name", method)
        raise InstanceLost(f"an actor has not answered `{name}` for {timeout_s:.0f} s") from None
