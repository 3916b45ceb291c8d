"""Commands do what they say: the same files from both drivers, facts of a trace, an imported model."""

import json
from pathlib import Path

import pytest

from cli.main import main

ROOT = Path(__file__).parents[2]
CHAT = str(ROOT / "docs/examples/chat.csv")
FILES = ["curves.json", "report.html", "requests.jsonl", "scenario.yaml", "story.json", "summary.json", "timeline.json"]


def test_simulate_writes_the_files_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["simulate", "demo", "--trace", CHAT, "--num-requests", "50", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == FILES
    lines = (out / "requests.jsonl").read_text().splitlines()
    assert len(lines) == 50
    assert json.loads((out / "summary.json").read_text())["requests"]["finished"] == 50
    assert "requests per CPU second" in capsys.readouterr().err


def test_a_written_scenario_runs_again_to_the_same_requests(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["simulate", "demo", "--seed", "5", "--num-requests", "80", "--quiet", "--out", str(first)]) == 0
    assert main(["simulate", str(first / "scenario.yaml"), "--quiet", "--out", str(second)]) == 0
    assert (first / "requests.jsonl").read_bytes() == (second / "requests.jsonl").read_bytes()


@pytest.mark.ray
def test_replay_writes_the_same_files(ray_address: str, tmp_path: Path) -> None:
    out = tmp_path / "live"
    arguments = ["--trace", CHAT, "--num-requests", "30", "--request-rate", "20", "--set", "live.metrics_port=0"]
    assert main(["replay", "steady-8b", *arguments, "--address", ray_address, "--quiet", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == FILES
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["driver"], summary["requests"]["finished"]) == ("replay", 30)
    rows = [json.loads(line) for line in (out / "requests.jsonl").read_text().splitlines()]
    assert all(row["generated_tokens"] == row["output_tokens"] for row in rows)


def test_trace_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "info", CHAT]) == 0
    output = capsys.readouterr().out
    assert "azure" in output
    assert "prompt tokens" in output


def test_model_import_can_be_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["model", "import", str(ROOT / "docs/examples/config.json"), "--name", "tiny"]) == 0
    assert "3.21 B parameters" in capsys.readouterr().out
    assert main(["simulate", "steady-8b", "--set", "model=tiny", "--num-requests", "20", "--quiet"]) == 0


def test_study_shift(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "shift"]) == 0
    output = capsys.readouterr().out
    assert "load beats every static split" in output
