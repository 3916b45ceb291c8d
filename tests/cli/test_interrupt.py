"""Signals: the first ends a run early and its results are written, the second drops everything."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import actors.replay
from actors.replay import replay
from cli.interrupt import Stop
from cluster.request import Status
from metrics.records import Column
from scenario.loading import load_scenario
from scenario.requests import requests_of

ROOT = Path(__file__).parents[2]
ENDLESS = "workload.phases=[{duration_s: 100000, request_rate: 10, prompt: {mean: 700}, output: {mean: 200}}]"


class Command:
    """A command in a process group of its own, as a shell starts it, with stderr on a terminal."""

    def __init__(self, *words: str) -> None:
        self._terminal, theirs = os.openpty()
        program = [sys.executable, "-m", "cli.main", *words]
        self._process = subprocess.Popen(
            program, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, text=True, start_new_session=True
        )
        os.close(theirs)
        self._error = ""

    def wait_until_it_says(self, words: str) -> None:
        while words not in self._error:
            self._error += os.read(self._terminal, 10_000).decode()

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    def summary(self, out: Path) -> dict[str, Any]:
        """What a stopped command leaves behind, which must say that it is of a part."""
        self.wait_until_it_says("once more to stop at once")
        reader = Thread(target=self._read_on)
        reader.start()
        output, _ = self._process.communicate(timeout=120)
        reader.join()
        os.close(self._terminal)
        assert self._process.returncode == 130, self._error
        assert output.startswith("Serving summary"), self._error
        assert "Traceback" not in self._error
        summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
        (notice,) = [one for one in summary["notices"] if "was stopped at" in one]
        assert f"{summary['requests']['total']:,} of " in notice
        return summary

    def _read_on(self) -> None:
        with suppress(OSError):  # the terminal is gone
            while text := os.read(self._terminal, 10_000):
                self._error += text.decode(errors="replace")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_simulate(number: signal.Signals, tmp_path: Path) -> None:
    command = Command("simulate", "steady-8b", "--set", ENDLESS, "--out", str(tmp_path))
    command.wait_until_it_says("requests")
    command.signal(number)
    summary = command.summary(tmp_path)
    assert summary["requests"]["finished"] == summary["requests"]["total"] < 1_000_000


@pytest.mark.ray
def test_replay(ray_address: str, tmp_path: Path) -> None:
    words = ["--address", ray_address, "--set", "live.metrics_port=0", "--out", str(tmp_path)]
    command = Command("replay", "steady-8b", *words)
    command.wait_until_it_says("% good")
    command.signal(signal.SIGTERM)
    summary = command.summary(tmp_path)
    assert 0 < summary["requests"]["finished"] <= summary["requests"]["total"] < 720


@pytest.mark.ray
def test_replay_cancels_what_takes_too_long(ray_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors.replay, "STOP_TIMEOUT_S", 0.0)
    phase = {"duration_s": 60, "request_rate": 10, "prompt": {"mean": 100}, "output": {"mean": 4000, "kind": "fixed"}}
    scenario = load_scenario("steady-8b", {"workload.phases": [phase], "live.metrics_port": 0})
    trace, too_long, _ = requests_of(scenario)
    sent = 0

    def watch(snapshot: Any) -> None:
        nonlocal sent
        sent = snapshot.num_sent

    result = replay(
        scenario,
        trace,
        too_long,
        address=ray_address,
        watch=watch,
        stopped=lambda: sent >= 5,
    )
    assert 5 <= result.num_requests < len(trace)
    assert (result.records[:, Column.STATUS] == Status.ABORTED).all()
    assert "was stopped at" in result.notices[0]


def test_the_second_signal_stops_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with Stop("ending") as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before
    assert capfd.readouterr().err == "\nending; once more to stop at once\n"
