"""A Prometheus of a run's own: on loopback, with a scrape a second, started and stopped with the run."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

from cluster.errors import ConfigError
from scenario.catalog import BUNDLED
from scenario.strict_yaml import dump_yaml, read_mapping

HOST = "127.0.0.1"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
CATCH_UP_TIMEOUT_S = 10.0


class PrometheusServer:
    """A context: on the way out the server ends and its folder, with all it has recorded, is deleted unless kept.

    Raises ConfigError at once when no Prometheus is installed.
    """

    def __init__(self) -> None:
        program = shutil.which("prometheus")
        if program is None:
            raise ConfigError(
                "--prometheus needs an installed Prometheus (Debian, Ubuntu: apt-get install prometheus); "
                "without the flag, any Prometheus can scrape the metrics URL that the run prints"
            )
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> "PrometheusServer":
        self._folder = Path(mkdtemp(prefix="baton-prometheus-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, metrics_url: str, *, with_ray: bool) -> None:
        """Begin to scrape a run, and Ray itself where it serves metrics; returns after the first scrape.

        That comes up to 5 s after the server is ready. A counter that moves before it would lose what it counted.
        """
        for name in ("prometheus.yml", "prometheus_rules.yml"):
            shutil.copy(BUNDLED / name, self._folder / name)
        config = own_config(urlsplit(metrics_url).netloc, with_ray=with_ray)
        (self._folder / "prometheus.yml").write_text(dump_yaml(config))
        port = _free_port()
        self.url = f"http://{HOST}:{port}"
        with (self._folder / "prometheus.log").open("wb") as log:
            # A session of its own: a Ctrl-C at the terminal goes to the run, which then stops its server.
            self._process = subprocess.Popen(  # noqa: S603 - a fixed program
                [
                    self._program,
                    "--config.file=prometheus.yml",
                    "--storage.tsdb.path=data",
                    f"--web.listen-address={HOST}:{port}",
                    "--log.level=warn",
                ],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_ready()
        self.catch_up()

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                urlopen(f"{self.url}/-/ready", timeout=1).close()  # noqa: S310 - our own server
                return
            except (URLError, OSError):
                time.sleep(0.05)
        last_words = (self._folder / "prometheus.log").read_text(errors="replace").strip().split("\n")[-1]
        raise ConfigError(f"{self._program} does not start ({last_words or 'it says nothing'}); try it by hand")

    def query(self, expression: str) -> list[Any]:
        """The vector that a PromQL expression has now."""
        with urlopen(f"{self.url}/api/v1/query?{urlencode({'query': expression})}", timeout=5) as answer:  # noqa: S310
            vector: list[Any] = json.load(answer)["data"]["result"]
        return vector

    def catch_up(self) -> None:
        """Wait until what the run exports now has been scraped, for a few seconds at most."""
        now = time.time()
        while time.time() < now + CATCH_UP_TIMEOUT_S:
            scraped = self.query('timestamp(up{job="baton"})')
            if scraped and float(scraped[0]["value"][1]) > now:
                return
            time.sleep(0.1)

    def stop(self) -> None:
        """End the server; a second stop does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def keep(self, folder: Path) -> None:
        """Move what a stopped server has recorded to `folder`, in place of what an earlier run left there."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(self._folder, folder)


def own_config(target: str, *, with_ray: bool) -> dict[str, Any]:
    """The bundled configuration with the run's own HOST:PORT as target."""
    config = read_mapping(BUNDLED / "prometheus.yml")
    baton, ray = config["scrape_configs"]
    baton["static_configs"] = [{"targets": [target]}]
    if "RAY_TMPDIR" in os.environ:
        discovery = ray["file_sd_configs"][0]
        discovery["files"] = [os.path.join(os.environ["RAY_TMPDIR"], os.path.basename(discovery["files"][0]))]
    config["scrape_configs"] = [baton, ray] if with_ray else [baton]
    return config


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port
