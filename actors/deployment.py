"""Ray itself: connect to a cluster or start one, and create the actors of a run where they belong."""

import io
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import ray
import ray.exceptions
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.exporter import ExporterActor
from actors.instance import InstanceActor
from actors.planner import PlannerActor
from actors.router import RouterActor
from cluster.errors import ConfigError
from cluster.role import Role
from planner.tools import Tools
from scenario.build import Placement
from scenario.spec import Scenario

NAMESPACE = "baton"
ROUTERS = "router/"
"""How names of router actors begin; the run and the number of the router follow."""
EMBEDDED_OBJECT_STORE_BYTES = 1 << 30
CONNECT_TIMEOUT_S = 5.0
PLACEMENT_TIMEOUT_S = 60.0
KV_SHARE = 0.5
"""Of the smallest object store, for KV on its way between all instances; the rest is for what Ray has not freed yet."""
WORKER_NICENESS = "RAY_worker_niceness"
"""Ray starts workers at nice 15, so that whatever else a host does makes steps late. Ours mostly wait, and are on time."""
PULLS_AT_ONCE = 32
"""That an instance answers; most of them wait for their layers to be written."""
CPU_SHARE = 0.001
"""CPU that an actor reserves: they mostly wait."""


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A Ray cluster to run on: the one at `address` (or auto), which stays up, or with None our own on loopback.

    A process that is connected already keeps its connection, whatever `address` says.

    Raises ConfigError in one sentence when the address does not answer or wants a token.
    """
    if ray.is_initialized():
        yield
        return
    if address is None:
        os.environ.setdefault(WORKER_NICENESS, "0")
        ray.init(
            address="local",
            namespace=NAMESPACE,
            include_dashboard=False,
            object_store_memory=EMBEDDED_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
        )
    else:
        _check_answers(address)
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except ray.exceptions.AuthenticationError as error:
            raise ConfigError(
                f"the Ray cluster at {address} wants a token: export RAY_AUTH_MODE=token and RAY_AUTH_TOKEN "
                "(or RAY_AUTH_TOKEN_PATH) as they are on the head node"
            ) from error
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise ConfigError(
                _no_cluster(address, reason) + "; if it wants a token, export RAY_AUTH_MODE=token"
            ) from error
    try:
        with redirect_stdout(_Chatter()):
            yield
    finally:
        ray.shutdown()


class _Chatter(io.TextIOBase):
    """What Ray prints to stdout, which is for results: off to stderr, but for deaths, which are reported otherwise."""

    def write(self, text: str) -> int:
        if text.strip() and "A worker died or was killed" not in text:
            print(text.rstrip(), file=sys.stderr)
        return len(text)


def living_nodes() -> list[dict[str, Any]]:
    """What Ray says of each of its nodes."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def num_nodes() -> int:
    return len(living_nodes())


def _check_answers(address: str) -> None:
    """Fail at once, not after Ray's own minute of retries, when nothing listens at host:port."""
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon:
        return
    if not port.isdigit():
        raise ConfigError(f"--address {address!r} is not HOST:PORT; use for example 127.0.0.1:6379, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(_no_cluster(address, str(error))) from error


def _no_cluster(address: str, reason: str) -> str:
    return (
        f"no Ray cluster answers at {address} ({reason}); start one with `ray start --head`, "
        "or replay without --address, which brings its own"
    )


class Deployment:
    """Creates the actors of one run. Instances of one modelled node share a bundle, bundles spread over Ray's nodes."""

    def __init__(self, scenario: Scenario, tools: Tools) -> None:
        self._scenario, self._tools = scenario, tools
        self._spec = ray.put(scenario)
        self._nodes = Placement(scenario).nodes
        self._group = self._reserve()
        self._actors: list[Any] = []
        self._num_routers = 0
        self._kv_budget_bytes = self._kv_budget()

    def _kv_budget(self) -> int:
        """Bytes that one receiver may have in flight. All might pull from one node, into whose object store they go."""
        stores = [node["Resources"]["object_store_memory"] for node in living_nodes()]
        share = int(KV_SHARE * min(stores)) // self._scenario.instances.total
        return min(self._scenario.live.kv_budget_bytes, share)

    def _reserve(self) -> PlacementGroup:
        bundles = [{"CPU": CPU_SHARE * 2 * self._nodes.count(node)} for node in sorted(set(self._nodes))]
        group: PlacementGroup = placement_group(bundles, strategy="SPREAD")
        if not group.wait(PLACEMENT_TIMEOUT_S):
            raise ConfigError(
                f"the Ray cluster has no CPU left for {len(bundles)} nodes of instances; free some, or start more nodes"
            )
        return group

    def instance(self, index: int, role: Role, first_epoch: int) -> Any:
        """One incarnation of an instance, on the Ray node that stands for its node."""
        node = sorted(set(self._nodes)).index(self._nodes[index])
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=node)
        options = {
            "concurrency_groups": {"data": PULLS_AT_ONCE},
            "num_cpus": CPU_SHARE,
            "scheduling_strategy": strategy,
        }
        return self._create(InstanceActor, self._spec, index, role, first_epoch, self._kv_budget_bytes, **options)

    def router(self) -> Any:
        """The one actor with a name: whoever sets roles by hand finds it by that."""
        self._num_routers += 1
        name = f"{ROUTERS}{self._group.id.hex()[:8]}/{self._num_routers}"
        return self._create(RouterActor, self._spec, name=name, namespace=NAMESPACE)

    def planner(self) -> Any:
        if self._tools.policy is not None:  # a file that other machines may not have
            ray.cloudpickle.register_pickle_by_value(sys.modules[self._tools.policy.__module__])  # type: ignore[no-untyped-call]
        return self._create(PlannerActor, self._tools)

    def exporter(self, port: int) -> Any:
        """Its port is settled by `start`; a successor takes the port of the one before."""
        return self._create(ExporterActor, self._scenario.live.metrics_host, port)

    def _create(self, actor_class: type, *arguments: Any, **options: Any) -> Any:
        remote_class: Any = ray.remote(**{"num_cpus": 0, **options})(actor_class)
        actor = remote_class.options(enable_task_events=False).remote(*arguments)
        self._actors.append(actor)
        return actor

    def close(self) -> None:
        """End everything; nothing is left on a cluster that stays up."""
        for actor in self._actors:
            ray.kill(actor)
        remove_placement_group(self._group)
