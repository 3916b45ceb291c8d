"""What an operator asks of a run from outside: who plays which role, and that somebody plays another."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import ray
import ray.util

from actors.deployment import NAMESPACE, ROUTERS, connected
from actors.supervisor import ask
from cluster.errors import ConfigError
from cluster.role import Role
from planner.observation import Observation
from planner.pins import pins_for

Pins = dict[int, Role | None]


def look(address: str, run: str | None) -> Observation:
    """The instances of a run as they are now. Raises ConfigError when there is no such run, or more than one."""
    return _with_router(address, run, _roles)


def pin(address: str, run: str | None, pins: Pins) -> Observation:
    """Set roles by hand, or with None leave them to the planner again; how things stand then.

    Raises ConfigError for an instance that is not there, and when too few would be left in a role.
    """

    async def work(router: Any) -> Observation:
        await ask(router.pin, pins)
        return await _roles(router)

    return _with_router(address, run, work)


def pin_split(address: str, run: str | None, prefill: int, decode: int) -> Observation:
    """Set the role of every instance by hand, so that there are so many of each; moves as few as it takes."""

    async def work(router: Any) -> Observation:
        seen = await _roles(router)
        await ask(router.pin, pins_for(prefill, decode, seen.instances))
        return await _roles(router)

    return _with_router(address, run, work)


async def _roles(router: Any) -> Observation:
    seen: Observation = await ask(router.roles)
    return seen


def _with_router(address: str, run: str | None, work: Callable[[Any], Coroutine[Any, Any, Observation]]) -> Observation:
    with connected(address):
        return asyncio.run(work(_router(run)))


def _router(run: str | None) -> Any:
    """The latest router of a run."""
    found: dict[str, int] = {}
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(ROUTERS):
            name, number = actor["name"].removeprefix(ROUTERS).split("/")
            found[name] = max(int(number), found.get(name, 0))
    if not found:
        raise ConfigError("no run is going on here; start one with `baton replay`")
    if run is None and len(found) > 1:
        raise ConfigError(f"several runs go on here; choose one with --run: {', '.join(sorted(found))}")
    chosen = run or next(iter(found))
    if chosen not in found:
        raise ConfigError(f"--run is {chosen}, and those going on are {', '.join(sorted(found))}")
    return ray.get_actor(f"{ROUTERS}{chosen}/{found[chosen]}", namespace=NAMESPACE)
