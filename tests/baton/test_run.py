"""The package: what it returns is what the files and the commands say."""

import asyncio
import json
from pathlib import Path

import pytest

import baton
from cli.main import main

SHORT = {"workload.num_requests": 50}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[baton.Run, Path]:
    out = tmp_path_factory.mktemp("run")
    return baton.simulate(baton.load("steady-8b", SHORT), out=out), out


def test_simulate_is_what_the_command_does(run: tuple[baton.Run, Path], capsys: pytest.CaptureFixture[str]) -> None:
    made, out = run
    assert main(["simulate", "steady-8b", "--num-requests", "50", "--json", "--quiet"]) == 0
    printed = json.loads(capsys.readouterr().out)
    measured = {"cpu_s", "wall_s", "requests_per_cpu_s"}
    assert {k: v for k, v in made.summary.items() if k not in measured} == {
        k: v for k, v in printed.items() if k not in measured
    }
    assert made.rows == [json.loads(line) for line in (out / "requests.jsonl").read_text().splitlines()]


def test_read_gives_back_what_was_written(run: tuple[baton.Run, Path]) -> None:
    made, out = run
    again = baton.read(out)
    assert (again.summary, again.rows) == (made.summary, made.rows)
    for title in ("Time to first token", "What the instances did"):
        assert baton.plot(title, again).to_dict() == baton.plot(title, made).to_dict()


def test_requests_are_a_table(run: tuple[baton.Run, Path]) -> None:
    made, _ = run
    table = made.requests
    assert len(table) == 50
    assert table.index.name == "request_id"
    assert 1e3 * table["ttft_s"].quantile(0.99) == pytest.approx(made.summary["p99_ttft_ms"], rel=1e-4)
    assert table["good"].mean() == made.summary["attainment"]
    assert len(baton.Run("none", made.summary, [], made.curves).requests) == 0


def test_plots(run: tuple[baton.Run, Path]) -> None:
    made, _ = run
    assert [trace.name for trace in baton.plot("KV in use", made, made).data] == ["steady-8b 1", "steady-8b 2"]
    with pytest.raises(
        baton.BatonError, match="there is no plot 'ttft' of these runs; those with data are: Token gaps"
    ):
        baton.plot("ttft", made)


def test_repr(run: tuple[baton.Run, Path]) -> None:
    assert repr(run[0]) == f"<Run steady-8b (simulate): 50 requests, {run[0].summary['attainment']:.1%} good>"


@pytest.mark.ray
def test_replay_where_an_event_loop_runs(ray_address: str, tmp_path: Path) -> None:
    scenario = baton.load("steady-8b", {"workload.num_requests": 10, "live.metrics_port": 0})

    async def cell() -> baton.Run:
        return baton.replay(scenario, address=ray_address, out=tmp_path)

    live = asyncio.run(cell())
    assert live.summary["requests"]["finished"] == 10
    assert live.summary["requests_sha256"] == baton.simulate(scenario).summary["requests_sha256"]
    assert json.loads((tmp_path / "summary.json").read_text()) == live.summary
