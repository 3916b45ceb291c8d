"""The Prometheus of a run: it ends with the run, however that ends, and says what it needs."""

import shutil
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from cli.main import main
from cli.prometheus_server import PrometheusServer, own_config
from cluster.errors import ConfigError

METRICS = "http://127.0.0.1:9/metrics"


@pytest.fixture
def server() -> PrometheusServer:
    if shutil.which("prometheus") is None:
        pytest.skip("Prometheus is not installed: apt-get install prometheus")
    return PrometheusServer()


def is_up(url: str) -> bool:
    try:
        urlopen(f"{url}/-/ready", timeout=5).close()
    except URLError:
        return False
    return True


def test_ctrl_c_stops_it_and_leaves_nothing(server: PrometheusServer) -> None:
    def interrupted_run() -> None:
        with server:
            server.start(METRICS, with_ray=False)
            assert is_up(server.url)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_run()
    assert server.url.startswith("http://127.0.0.1:")
    assert not is_up(server.url)
    assert not server._folder.exists()


def test_what_is_kept_replaces_what_was_there(server: PrometheusServer, tmp_path: Path) -> None:
    kept = tmp_path / "prometheus"
    kept.mkdir()
    (kept / "old").touch()
    with server:
        server.start(METRICS, with_ray=False)
        server.stop()
        server.keep(kept)
    assert sorted(path.name for path in kept.iterdir()) == [
        "data",
        "prometheus.log",
        "prometheus.yml",
        "prometheus_rules.yml",
    ]


def test_one_that_does_not_start_is_a_sentence(server: PrometheusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.prometheus_server.own_config", lambda target, with_ray: {"globe": {}})
    with server, pytest.raises(ConfigError, match=r"does not start .*globe"):
        server.start(METRICS, with_ray=False)


def test_without_one_the_run_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["replay", "steady-8b", "--prometheus"]) == 1
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("baton replay: --prometheus needs an installed Prometheus")


def test_ray_is_scraped_where_it_keeps_its_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", "/scratch/ray")
    baton, ray = own_config("127.0.0.1:1234", with_ray=True)["scrape_configs"]
    assert baton["static_configs"] == [{"targets": ["127.0.0.1:1234"]}]
    assert ray["file_sd_configs"][0]["files"] == ["/scratch/ray/prom_metrics_service_discovery.json"]
    assert len(own_config("127.0.0.1:1234", with_ray=False)["scrape_configs"]) == 1
