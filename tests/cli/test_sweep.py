"""Variants side by side: the table, the JSON, the files, and what happens to those that cannot run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import main
from metrics.comparison_files import ComparisonFolder

ROOT = Path(__file__).parents[2]
SHORT = ["--num-requests", "40", "--jobs", "1", "--quiet"]
RUN = ["curves.json", "report.html", "requests.jsonl", "scenario.yaml", "story.json", "summary.json", "timeline.json"]


def summaries(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main(["simulate", *arguments, *SHORT, "--json"]) == 0
    told: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return told


def test_each_variant_is_the_run_of_its_own_flags(capsys: pytest.CaptureFixture[str]) -> None:
    variants = summaries(capsys, "steady-8b", "--compare", "colocated-8b", "--sweep", "seed=3,4")
    assert [one["settings"] for one in variants] == [
        {"scenario": scenario, "seed": seed} for scenario in ("steady-8b", "colocated-8b") for seed in ("3", "4")
    ]
    for one, (scenario, seed) in zip(
        variants, [("steady-8b", "3"), ("steady-8b", "4"), ("colocated-8b", "3")], strict=False
    ):
        assert main(["simulate", scenario, "--seed", seed, *SHORT, "--json"]) == 0
        alone = json.loads(capsys.readouterr().out)
        for field in ("ttft_ms", "itl_ms", "e2e_ms", "duration_s", "request_goodput", "seed"):
            assert one[field] == alone[field]


def test_the_table_has_a_row_per_variant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "colocated-8b", *SHORT, "--sweep", "engine.token_budget=128,256,512,1024"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    budgets = [row for row in rows if row and row[0].isdecimal()]
    assert [row[0] for row in budgets] == ["128", "256", "512", "1024"]
    assert {len(row) for row in budgets} == {11}  # "100.0 %" is two words
    longest_gaps = [float(row[-2]) for row in budgets]
    assert longest_gaps == sorted(longest_gaps)


def test_a_variant_that_cannot_run_says_why_and_sinks_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    one, three, two = summaries(capsys, "steady-8b", "--sweep", "tp=1,3,2")
    assert (one["completed"], two["completed"], "completed" in three) == (40, 40, False)
    assert "valid values are 1, 2, 4, 8" in str(three["error"])
    assert main(["simulate", "steady-8b", *SHORT, "--sweep", "tp=1,3"]) == 0
    assert "tp=3 could not run: tp 3 does not fit model llama-3-8b" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("steady-8b --sweep tp=3,5", "none of the 2 variants can run; the first: tp 3 does not fit"),
        (
            "steady-8b --sweep engine.token_budgt=1,2",
            "engine.token_budgt is not a known key; did you mean token_budget?",
        ),
        ("steady-8b --compare stedy-8b", "there is no scenario named 'stedy-8b'; did you mean steady-8b"),
        ("steady-8b --compare steady-8b", "scenario steady-8b is given twice"),
        ("steady-8b --compare nope.yaml", "there is no such file"),
        ("steady-8b --sweep seed=1,2 --seed 3", "seed is swept and set; leave one of the two out"),
        ("steady-8b --sweep seed", "--sweep seed does not say what to sweep"),
        ("steady-8b --sweep seed=1,2 --jobs 0", "--jobs is 0"),
        ("steady-8b --sweep seed=1,2 --out full", "full is not empty and holds no earlier run"),
    ],
)
def test_errors(
    arguments: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("mine")
    assert main(["simulate", *arguments.split(), "--quiet"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("baton simulate: ")
    assert sentence in output.err
    assert output.err.count("\n") == 1


def test_an_address_where_no_cluster_is() -> None:
    command = "simulate steady-8b --sweep seed=1,2 --address 127.0.0.1:1"
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *command.split()], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "baton simulate: no Ray cluster answers at 127.0.0.1:1 (" in done.stderr
    assert done.stderr.count("\n") == 1


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sweep"
    command = ["simulate", "steady-8b", *SHORT, "--out", str(out), "--sweep"]
    assert main([*command, "instances={prefill: 1, decode: 3},{prefill: 2, decode: 2}"]) == 0
    folders = ["instances=_prefill_1_decode_3", "instances=_prefill_2_decode_2"]
    assert sorted(path.name for path in out.iterdir()) == ["compare.json", *folders, "report.html"]
    assert all(sorted(path.name for path in (out / folder).iterdir()) == RUN for folder in folders)
    index = json.loads((out / "compare.json").read_text())
    assert [one["folder"] for one in index["variants"]] == folders
    own = json.loads((out / folders[0] / "summary.json").read_text())
    assert own["name"] == index["variants"][0]["name"] == "instances={prefill: 1, decode: 3}"

    assert main([*command, "tp=1,3"]) == 0  # in place of the first
    assert sorted(path.name for path in out.iterdir()) == ["compare.json", "report.html", "tp=1"]
    assert "tp 3 does not fit model llama-3-8b" in (out / "report.html").read_text()


def test_folders_differ_where_names_differ_by_signs_only(tmp_path: Path) -> None:
    folder = ComparisonFolder(tmp_path, ["a b", "a/b", "..", "A b", "report.html"])
    assert list(folder._folders.values()) == ["a_b", "a_b-2", "variant", "A_b-3", "report.html-2"]


def test_without_a_terminal_every_variant_is_a_line_of_progress(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "steady-8b", "--num-requests", "40", "--jobs", "1", "--sweep", "tp=1,3"]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("1/2 tp=1: 100.0 % good, ")
    assert second.startswith("2/2 tp=3: tp 3 does not fit model")
