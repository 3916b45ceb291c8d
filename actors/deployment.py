"""Ray itself: connect to a cluster or start one, and create and remove the actors of a run."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
import ray.exceptions

from actors.exporter import ExporterActor
from actors.instance import InstanceActor
from actors.planner import PlannerActor
from actors.router import RouterActor
from cluster.errors import BatonError, ConfigError
from scenario.spec import Scenario

NAMESPACE = "baton"
EMBEDDED_OBJECT_STORE_BYTES = 1 << 30
CONNECT_TIMEOUT_S = 5.0
FINISH_TIMEOUT_S = 60.0


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
            raise ConfigError(_no_cluster(address, str(error).strip().split("\n")[0])) from error
    try:
        yield
    finally:
        ray.shutdown()


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
        "or leave --address out to run on an embedded one"
    )


@dataclass(frozen=True, slots=True)
class Deployment:
    """Handles of the actors of one run."""

    router: Any
    planner: Any
    exporter: Any
    instances: dict[int, Any]
    metrics_url: str

    def close(self) -> None:
        """End the actors; nothing is left on a cluster that stays up."""
        for actor in (self.planner, self.router, self.exporter, *self.instances.values()):
            ray.kill(actor)


def deploy(scenario: Scenario) -> Deployment:
    """Create every actor of a scenario. Actors cost no CPU slot: they mostly wait."""
    spec = ray.put(scenario)
    exporter = _create(ExporterActor, scenario.live.metrics_host, scenario.live.metrics_port)
    instances = {
        index: _create(InstanceActor, spec, index, role, concurrency_groups={"data": 4})
        for index, role in enumerate(scenario.roles)
    }
    router = _create(RouterActor, spec)
    planner = _create(PlannerActor, spec)
    try:
        metrics_url = ask(exporter.start.remote())
        ask([actor.__ray_ready__.remote() for actor in (router, planner, *instances.values())])
    except BatonError:
        Deployment(router, planner, exporter, instances, "").close()
        raise
    return Deployment(router, planner, exporter, instances, metrics_url)


def _create(actor_class: type, *arguments: Any, **options: Any) -> Any:
    remote_class: Any = ray.remote(num_cpus=0, **options)(actor_class)
    return remote_class.options(enable_task_events=False).remote(*arguments)


def ask(answers: Any, timeout_s: float = FINISH_TIMEOUT_S) -> Any:
    """ray.get with a deadline, that raises an actor's BatonError as itself."""
    try:
        return ray.get(answers, timeout=timeout_s)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, BatonError):
            raise error.cause from None
        raise
