"""Finished runs side by side: the numbers of their own summaries, what differs, and what makes it no comparison."""

import json
from pathlib import Path

import pytest

from cli.main import main
from metrics.curves import Curves
from metrics.run_folder import plain_curves, read_curves, read_requests, read_summary
from scenario.loading import load_scenario
from sim.variants import run_scenario

BASE = ["steady-8b", "--num-requests", "60", "--quiet", "--seed", "2"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four runs: wide has other instances than base, strict another SLO, short fewer requests."""
    folder = tmp_path_factory.mktemp("runs")
    for name, more in {
        "base": [],
        "wide": ["--set", "instances.prefill=3"],
        "strict": ["--goodput", "ttft:90"],
        "short": ["--num-requests", "30"],
    }.items():
        assert main(["simulate", *BASE, *more, "--out", str(folder / name)]) == 0
    return folder


@pytest.fixture
def here(runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(runs)
    capsys.readouterr()
    return runs


def test_the_terminal_has_the_numbers_of_the_summaries(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "base", "wide"]) == 0
    told = capsys.readouterr()
    lines = [" ".join(line.split()) for line in told.out.splitlines()]
    summaries = [json.loads((here / name / "summary.json").read_text()) for name in ("base", "wide")]
    assert lines[1:3] == ["base wide", "simulate simulate"]
    assert "TTFT p99, ms {:.2f} {:.2f}".format(*(one["ttft_ms"]["p99"] for one in summaries)) in lines
    assert "attainment {:.1%} {:.1%}".format(*(one["attainment"] for one in summaries)).replace("%", " %") in lines
    assert "instances.prefill 2 3" in lines
    assert told.err == ""


def test_more_runs_have_a_row_each(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "base", "wide", "strict", "short"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows if row and row[0] in ("base", "wide", "strict", "short")] == [
        "base",
        "wide",
        "strict",
        "short",
    ]


@pytest.mark.parametrize(
    ("other", "note"),
    [
        ("strict", "note: strict is judged by other SLOs than base (TTFT 90 ms, 90 % against TTFT "),
        ("short", "note: short was sent other requests than base (30 requests, "),
    ],
)
def test_what_cannot_be_compared_is_said(
    other: str, note: str, here: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["compare", "base", other, "--out", str(tmp_path)]) == 0
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(note)
    assert told.removeprefix("note: ") in (tmp_path / "report.html").read_text()


def test_json_and_page(here: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["compare", "base", "wide", "--json", "--out", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["settings"] for one in told] == [{"run": "base"}, {"run": "wide"}]
    assert told[0]["p99_ttft_ms"] == read_summary("base")["p99_ttft_ms"]
    index = json.loads((tmp_path / "compare.json").read_text())
    assert [(one["name"], one["folder"]) for one in index["variants"]] == [("steady-8b", None)] * 2
    page = (tmp_path / "report.html").read_text()
    assert "<h1>base against wide</h1>" in page
    assert "<th>instances.prefill</th><td>2</td><td>3</td>" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("base", "base alone cannot be compared; name two runs or more"),
        ("base base", "base is given twice; name every run once"),
        ("base nowhere", "nowhere holds no run: there is no summary.json; name a folder that was given as --out"),
        ("base broken", "broken/summary.json is damaged; run the scenario again"),
        ("base future", "future/summary.json has schema baton.summary/9, and this version reads baton.summary/1"),
        ("base wide --out base", "base is not empty and holds no earlier run"),
        ("base sweep", "sweep holds a comparison; name the folder of one of its runs"),
        ("base wide --out sweep", "sweep holds the runs of a sweep; choose another folder for the comparison"),
    ],
)
def test_errors(arguments: str, sentence: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("broken", "{"), ("future", '{"schema": "baton.summary/9"}')):
        (here / name).mkdir(exist_ok=True)
        (here / name / "summary.json").write_text(text)
    if not (here / "sweep").exists():
        assert main(["simulate", *BASE, "--sweep", "tp=1,2", "--jobs", "1", "--out", "sweep"]) == 0
        capsys.readouterr()
    assert main(["compare", *arguments.split()]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert sentence in told.err
    assert told.err.count("\n") == 1


def test_the_digest_is_of_the_requests_alone(here: Path) -> None:
    digests = {name: read_summary(name)["requests_sha256"] for name in ("base", "wide", "strict", "short")}
    assert digests["base"] == digests["wide"] == digests["strict"] != digests["short"]


def test_what_is_read_back_is_what_was_written(here: Path, tmp_path: Path) -> None:
    result = run_scenario(load_scenario("steady-8b", {"workload.num_requests": 60, "seed": 2}))
    assert (here / "base/curves.json").read_bytes() == plain_curves(Curves.of(result))
    (tmp_path / "curves.json").write_bytes(plain_curves(read_curves("base")))
    assert (tmp_path / "curves.json").read_bytes() == (here / "base/curves.json").read_bytes()
    assert [one["request_id"] for one in read_requests("base")] == list(range(60))
