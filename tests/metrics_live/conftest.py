"""One live replay with role changes, scraped by a real Prometheus that stays up for all tests of this folder."""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from actors.messages import Snapshot
from actors.replay import replay
from cli.prometheus_server import PrometheusServer
from metrics.files import write_run
from metrics.run import RunResult
from metrics.summary import Summary
from scenario.loading import dump_scenario, load_scenario
from scenario.requests import requests_of

SCENARIO = Path(__file__).parent / "two_phases.yaml"
LOOK_BACK = "10m"
"""Longer than the run."""


def promtool() -> str:
    """Path of promtool; skips the test where there is none."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    return found


@dataclass(slots=True)
class Watched:
    """A finished run, its result files, and the Prometheus that watched it from `start_s` to `end_s`, Unix times."""

    server: PrometheusServer
    start_s: float
    end_s: float = 0.0
    scrape: bytes = b""
    """What the exporter served last."""
    result: RunResult | None = None
    summary: Summary | None = None
    requests: list[dict[str, Any]] | None = None

    def _ask(self, what: str, **parameters: Any) -> list[dict[str, Any]]:
        with urlopen(f"{self.server.url}/api/v1/{what}?{urlencode(parameters)}", timeout=10) as response:
            answer = json.load(response)
        assert answer["status"] == "success"
        return answer["data"]["result"]

    def at_end(self, expression: str) -> dict[tuple[str, ...], float]:
        """Values at the last scrape of the run, by label values in the order of the label names."""
        return {
            tuple(value for _, value in sorted(series["metric"].items())): float(series["value"][1])
            for series in self._ask("query", query=expression, time=self.end_s)
        }

    def over_run(self, expression: str) -> list[dict[str, Any]]:
        """Series with a value a second."""
        return self._ask("query_range", query=expression, start=self.start_s, end=self.end_s, step=1)


@pytest.fixture(scope="session")
def watched(ray_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if shutil.which("prometheus") is None:
        pytest.skip("Prometheus is not installed: apt-get install prometheus")
    scenario = load_scenario(SCENARIO)
    trace, too_long, _ = requests_of(scenario)
    with PrometheusServer() as server:
        run = Watched(server, time.time())
        url = ""

        def start(metrics_url: str) -> None:
            nonlocal url
            url = metrics_url
            server.start(url, with_ray=False)

        def watch(snapshot: Snapshot) -> None:
            if snapshot.num_ended == len(trace):
                server.catch_up()
                run.end_s = float(server.query('timestamp(up{job="baton"})')[0]["value"][1])
                with urlopen(url, timeout=10) as response:
                    run.scrape = response.read()

        run.result = replay(scenario, trace, too_long, address=ray_address, on_start=start, watch=watch)
        out = tmp_path_factory.mktemp("run")
        write_run(out, run.result, scenario.slo, dump_scenario(scenario), timeline=False, report=False)
        run.summary = json.loads((out / "summary.json").read_bytes())
        run.requests = [json.loads(line) for line in (out / "requests.jsonl").read_text().splitlines()]
        yield run
