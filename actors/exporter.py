"""The exporter: merges metric deltas from everybody and serves them to Prometheus on one port."""

from prometheus_client import CollectorRegistry, start_http_server

from cluster.errors import ConfigError
from metrics.prometheus import MetricStore


class ExporterActor:
    """Port 0 takes any free port. Listens on `host` only."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._store = MetricStore()

    async def start(self) -> str:
        """Begin to serve; returns the URL. Raises ConfigError when the port is taken."""
        registry = CollectorRegistry()
        registry.register(self._store)
        try:
            self._server, self._thread = start_http_server(self._port, self._host, registry)
        except OSError as error:
            raise ConfigError(
                f"metrics port {self._port} on {self._host} cannot be used ({error.strerror}); "
                "choose another with --set live.metrics_port=PORT, or 0 for any free port"
            ) from error
        return f"http://{self._host}:{self._server.server_port}/metrics"

    async def add(self, delta: MetricStore) -> None:
        """Add the delta's sums and take over its gauges."""
        self._store.merge(delta)

    async def finish(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
