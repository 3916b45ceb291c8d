"""What is wrong with the input is said in one sentence, on stderr, with exit code 1, and nothing is written."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import main

ROOT = Path(__file__).parents[2]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 18:15:46.6805900,{},{}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("dmo", "there is no scenario named 'dmo'; did you mean demo?"),
        ("demo --trace nope.csv", "there is no such file"),
        (
            "demo --set tp=3",
            "tp 3 does not fit model llama-3-70b with 64 heads and 8 KV heads; valid values are 1, 2, 4",
        ),
        ("demo --set tp=1", "weights 141.1 GB, reserve 8.0 GB, free for KV -69.1 GB; the smallest tp that fits is 2"),
        ("demo --set engine.token_budgt=3", "engine.token_budgt is not a known key; did you mean token_budget?"),
        ("demo --set engine.token_budget=0", "engine.token_budget is 0; a step needs a budget of at least 1 token"),
        ("demo --set gpu.memory_bytes=1000", "does not fit on 4 x h100-sxm"),
        ("demo --goodput ttft:1000 tpt:20", "unknown key 'tpt'; use one of ttft, tpot"),
        ("demo --num-requests 0", "workload.num_requests is 0; it must be at least 1"),
        ("demo --request-rate -1", "workload.request_rate is -1"),
        ("demo --start-s 5 --end-s 5", "workload.start_s 5.0 is not before workload.end_s 5.0"),
        ("demo --start-s 5000", "widen the window"),
        ("demo --set instances.decode=0", "instances 2P0D cannot serve a request"),
        ("demo --set planner.policy=magic", "planner.policy is 'magic'"),
        ("demo --set seed", "write path=value"),
        ("demo --out file.txt", "cannot be written to file.txt"),
        ("demo --out full", "full is not empty and holds no earlier run"),
    ],
)
def test_simulate(
    arguments: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.txt").write_text("mine")
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("mine")
    before = sorted(Path().rglob("*"))
    code = main(["simulate", *arguments.split()])
    output = capsys.readouterr()
    assert (code, output.out) == (1, "")
    assert sentence in output.err
    assert output.err.startswith("baton simulate: ")
    assert output.err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "bad.csv: the file is empty"),
        (AZURE, "bad.csv: "),
        (AZURE + ROW.format(0, 5), "bad.csv:2: ContextTokens is 0; it must be at least 1"),
        (AZURE + ROW.format(7, 5) + ROW.format(7, "nan"), "bad.csv:3: GeneratedTokens"),
        (AZURE + ROW.format(7, -5), "bad.csv:2: GeneratedTokens is -5"),
        (AZURE + ",7,5\n", "bad.csv:2: TIMESTAMP"),
    ],
)
def test_trace(content: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "bad.csv"
    trace.write_text(content)
    assert main(["simulate", "demo", "--trace", str(trace)]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_zero_output_and_too_long_requests_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "odd.csv"
    trace.write_text(AZURE + ROW.format(10, 0) + ROW.format(8000, 500) + ROW.format(10, 5))
    assert main(["simulate", "demo", "--trace", str(trace), "--json", "--quiet"]) == 0
    output = capsys.readouterr().out
    assert '"finished": 2' in output
    assert '"rejected": 1' in output
    assert main(["simulate", "demo", "--trace", str(trace), "--on-too-long", "error"]) == 1
    assert "8192" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:{free}", "no Ray cluster answers at 127.0.0.1:{free}"),
        ("127.0.0.1:ray", "is not HOST:PORT"),
    ],
)
def test_replay_address(address: str, sentence: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    words = [sys.executable, "-m", "cli.main", "replay", "demo", "--quiet", "--address", address.format(free=free)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence.format(free=free) in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.ray
def test_replay_with_a_port_in_use(ray_address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        setting = f"live.metrics_port={port}"
        assert main(["replay", "demo", "--quiet", "--address", ray_address, "--set", setting]) == 1
    assert f"metrics port {port} on 127.0.0.1 cannot be used (Address already in use)" in capsys.readouterr().err
