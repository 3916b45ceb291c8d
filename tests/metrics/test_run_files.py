import errno
import subprocess
import sys

import orjson
import pytest
from made_runs import COLOCATED, HANDED_OVER, NO_TOKEN, REJECTED, records, run

import metrics.files
from cluster.errors import ConfigError
from metrics.files import write_run
from metrics.slo import SloSpec

SLO = SloSpec(ttft_ms=120)
RESULT = run(records(HANDED_OVER, COLOCATED, NO_TOKEN, REJECTED))
ALL = ["curves.json", "report.html", "requests.jsonl", "scenario.yaml", "story.json", "summary.json", "timeline.json"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_run_is_seven_files(tmp_path):
    folder = tmp_path / "deep" / "run"
    summary = write_run(folder, RESULT, SLO, "name: x\n")
    assert names(folder) == ALL
    assert orjson.loads((folder / "summary.json").read_bytes()) == summary
    assert (folder / "scenario.yaml").read_text() == "name: x\n"
    assert len(orjson.loads((folder / "timeline.json").read_bytes())["traceEvents"]) > 10
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_a_line_per_request(tmp_path):
    write_run(tmp_path, RESULT, SLO, "", timeline=False, report=False)
    lines = [orjson.loads(line) for line in (tmp_path / "requests.jsonl").read_bytes().splitlines()]
    assert lines[0] == {
        "request_id": 0,
        "status": "finished",
        "arrival_s": 1.0,
        "prompt_tokens": 100,
        "output_tokens": 11,
        "generated_tokens": 11,
        "prefill_instance": 0,
        "decode_instance": 1,
        "prefill_start_s": 1.05,
        "first_token_s": 1.15,
        "transfer_start_s": 1.16,
        "kv_arrived_s": 1.18,
        "decode_start_s": 1.21,
        "second_token_s": 1.25,
        "finished_s": 2.15,
        "num_preemptions": 0,
        "ttft_s": 0.15,
        "tpot_s": 0.1,
        "e2e_s": 1.15,
        "good": False,
    }
    assert [line["status"] for line in lines] == ["finished", "finished", "finished", "rejected"]
    assert [line["good"] for line in lines] == [False, True, True, False]
    assert [lines[3][name] for name in ("prefill_instance", "first_token_s", "ttft_s", "e2e_s")] == [None] * 4


@pytest.mark.parametrize("number", [0, 1, 2000, 4001])
def test_every_request_has_its_line(tmp_path, number):
    write_run(tmp_path, run(records(*[COLOCATED] * number)), SLO, "", timeline=False, report=False)
    lines = (tmp_path / "requests.jsonl").read_bytes().splitlines()
    assert [orjson.loads(line)["request_id"] for line in lines] == list(range(number))


def test_an_earlier_run_is_replaced_and_what_is_not_written_again_removed(tmp_path):
    write_run(tmp_path, RESULT, SLO, "first")
    (tmp_path / "my notes.txt").write_text("keep")
    write_run(tmp_path, RESULT, SLO, "second", timeline=False, report=False)
    assert names(tmp_path) == ["my notes.txt", "requests.jsonl", "scenario.yaml", "summary.json"]
    assert (tmp_path / "scenario.yaml").read_text() == "second"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("scenario.yaml", "mine"),
        ("data.partial", "mine"),
        ("summary.json", '{"schema": "other"}'),
        ("summary.json", "[1]"),
    ],
)
def test_a_folder_of_somebody_else_is_left_alone(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match="is not empty and holds no earlier run; choose an empty folder"):
        write_run(tmp_path, RESULT, SLO, "")
    assert names(tmp_path) == [name]
    assert (tmp_path / name).read_text() == content


def test_a_failure_leaves_the_earlier_run_whole(tmp_path, monkeypatch):
    write_run(tmp_path, RESULT, SLO, "first")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full_disk(records, slo):
        yield b"half a line"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(metrics.files, "request_lines", full_disk)
    with pytest.raises(ConfigError, match=r"cannot be written to .*: No space left on device; choose another folder"):
        write_run(tmp_path, run(records(COLOCATED)), SLO, "second")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_leftovers_of_a_killed_run_do_not_bar_the_folder(tmp_path):
    (tmp_path / ".requests.jsonl.partial").write_bytes(b"half a li")
    write_run(tmp_path, RESULT, SLO, "")
    assert names(tmp_path) == ALL


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match="out: File exists; choose another folder"):
        write_run(tmp_path / "out", RESULT, SLO, "")


def test_writing_results_imports_no_plotting_library():
    program = "import sys, metrics.files; print({'plotly', 'matplotlib', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"
