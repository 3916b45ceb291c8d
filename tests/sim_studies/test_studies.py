"""The lecture's sections 1.3 and 2.5 by their numbers, and what studies are written to."""

import json
from functools import partial
from pathlib import Path

import pytest

from cli.main import main
from metrics.figure import figure
from metrics.png import render_png
from sim.parallel import map_parallel
from sim.studies import budget, stall
from sim.studies.files import markdown
from sim.studies.study import Claim, Study, StudyTable, Verdict, judge, spread

HERE = partial(map_parallel, jobs=2)


@pytest.mark.parametrize(
    ("ours", "holds", "verdict"),
    [
        ([100.0], True, Verdict.REPRODUCED),
        ([95.3], True, Verdict.REPRODUCED),  # 5 % above is 100.07
        ([105.2], True, Verdict.REPRODUCED),  # 5 % below is 99.94
        ([94.0], True, Verdict.SAME_DIRECTION),
        ([106.0], True, Verdict.SAME_DIRECTION),
        ([60.0, 180.0], True, Verdict.REPRODUCED),
        ([100.0], False, Verdict.DIFFERS),
    ],
)
def test_verdicts(ours: list[float], holds: bool, verdict: Verdict) -> None:
    assert judge(100.0, ours, holds=holds) is verdict


@pytest.mark.parametrize(
    ("values", "text"),
    [([2.0], "2 ms"), ([3.0, 1.5, 2.5], "2.50 ms (1.50 to 3)"), ([7.001, 7.002], "7.00 ms")],
)
def test_spreads(values: list[float], text: str) -> None:
    assert spread(values, "ms") == text


def test_a_long_prompt_stalls_all_decodes_but_not_under_chunked_prefill() -> None:
    whole, mixed, chunked = HERE(stall.measure, stall.scenarios())
    # The step that prefills 4,096 tokens takes 89.4 ms alone, and then the decodes have a step of 7.1 ms.
    assert (whole.stalled, whole.gaps.max) == (32, pytest.approx(96.6, abs=0.5))
    assert (mixed.stalled, mixed.gaps.max) == (32, pytest.approx(90.2, abs=0.5))
    assert (chunked.stalled, chunked.gaps.max) == (0, pytest.approx(12.2, abs=0.5))
    assert [one.gaps.p50 for one in (whole, mixed, chunked)] == pytest.approx([7.18] * 3, abs=0.05)
    assert [one.ttft_ms for one in (whole, mixed, chunked)] == pytest.approx([94.5, 93.2, 106.0], abs=5)


@pytest.mark.parametrize(
    ("name", "differing"),
    [("stall", []), ("budget", ["budget 128: over a hundred sequences that decode use the budget up"])],
)
def test_every_claim_is_reproduced_or_explained(name: str, differing: list[str]) -> None:
    study = {"stall": stall, "budget": budget}[name].run(HERE)
    assert [claim.statement for claim in study.claims if claim.verdict is not Verdict.REPRODUCED] == differing
    assert study.holds
    assert all(figure["data"] for figure in study.figures.values())


@pytest.mark.parametrize("sigma", budget.OTHER_SIGMAS)
def test_what_the_budget_does_does_not_hang_on_the_lengths(sigma: float) -> None:
    runs = budget.simulate(HERE, (budget.WHOLE, "128", "512"), sigma)
    for whole, starved, enough in zip(runs[budget.WHOLE], runs["128"], runs["512"], strict=True):
        assert enough["ITL p99, ms"] < 13 < 80 < whole["ITL p99, ms"]
        assert enough["all done, s"] < whole["all done, s"]
        assert enough["TTFT p50, ms"] < 60 < 4_000 < starved["TTFT p50, ms"]
        assert starved["decodes beside prompts"] == pytest.approx(128 * 200 / 955, rel=0.1)


STUDY = Study(
    name="made",
    title="Made <up>",
    method="By hand.",
    claims=[Claim(source="A|B", statement="one is two", published="2", ours="1", verdict=Verdict.DIFFERS)],
    tables=[StudyTable("Numbers", ("n", "n squared"), [("2", "4"), ("3", "9")], note="And so on.")],
)


def test_markdown() -> None:
    assert not STUDY.holds
    assert markdown(STUDY) == (
        "# Made <up>\n\nBy hand.\n\n"
        "| source | claim | published | ours | verdict |\n| --- | --- | --- | --- | --- |\n"
        "| A\\|B | one is two | 2 | 1 | differs |\n\n"
        "## Numbers\n\n| n | n squared |\n| --- | --- |\n| 2 | 4 |\n| 3 | 9 |\n\nAnd so on.\n"
    )


def test_the_command_writes_a_report_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "studies"
    assert main(["study", "stall", "--jobs", "1", "--quiet", "--out", str(out), "--png"]) == 0
    assert "chunked_prefill pays with the long prompt's TTFT" in " ".join(capsys.readouterr().out.split())
    images = ["stall-longest-token-gap-over-time.png", "stall-what-the-instance-did.png"]
    assert sorted(path.name for path in out.iterdir()) == ["report.html", *images, "studies.json", "studies.md"]
    assert all((out / image).read_bytes().startswith(b"\x89PNG") for image in images)
    (told,) = json.loads((out / "studies.json").read_text())["studies"]
    assert (told["name"], told["holds"], len(told["claims"])) == ("stall", True, 4)
    assert main(["study", "stall", "--jobs", "1", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [told]


def test_bars_as_png() -> None:
    def drawn(*heights: float) -> bytes:
        bars = [{"type": "bar", "name": "one", "x": ["a", "b"], "y": list(heights), "marker": {"color": "#0072B2"}}]
        return render_png("Bars", figure(bars, "", "req/s", xaxis={"type": "category"}))

    assert drawn(1, 2).startswith(b"\x89PNG")
    assert drawn(1, 2) == drawn(1, 2) != drawn(2, 1)


def test_a_folder_that_is_somebodys_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert main(["study", "stall", "--jobs", "1", "--quiet", "--out", str(tmp_path)]) == 1
    assert "is not empty and holds no earlier run" in capsys.readouterr().err
