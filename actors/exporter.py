"""The exporter: keeps the latest metrics of every sender and serves their sum to Prometheus on one port."""

import asyncio
import os
from collections.abc import Iterator

import ray.util
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cluster.errors import ConfigError
from metrics.prometheus import MetricStore

EVERY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - recognised here, chosen by the user


class ExporterActor(Collector):
    """Port 0 takes any free port. Listens on `host` only.

    Senders put their whole store each time, so nothing is counted twice and a new exporter knows all that
    living senders have counted.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._stores: dict[str, MetricStore] = {}

    async def start(self) -> str:
        """Begin to serve; returns the URL. Raises ConfigError when the port is taken."""
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(self._port, self._host, registry)
        except OSError as error:
            raise ConfigError(
                f"metrics port {self._port} on {self._host} cannot be used ({error.strerror}); "
                "choose another with --set live.metrics_port=PORT, or 0 for any free port"
            ) from error
        return f"http://{self._reachable_host()}:{self._server.server_port}/metrics"

    def _reachable_host(self) -> str:
        if self._host not in EVERY_ADDRESS:
            return self._host
        return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def collect(self) -> Iterator[Metric]:
        """The sum of all senders."""
        total = MetricStore()
        for store in list(self._stores.values()):
            total.merge(store)
        return total.collect()

    async def put(self, sender: str, store: MetricStore) -> None:
        """Take over what a sender has counted since its start."""
        self._stores[sender] = store

    async def mourn(self, sender: str) -> None:
        """A sender has died: its sums stay, its levels mean nothing any more."""
        store = self._stores.get(sender)
        if store is not None:
            store.drop_gauges()

    async def watch(self) -> None:
        """Never returns; fails when this process dies."""
        await asyncio.Event().wait()

    async def suffer(self) -> None:
        """Die, to see who minds."""
        os.kill(os.getpid(), 9)
