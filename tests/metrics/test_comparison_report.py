import orjson
import pytest
from made_runs import COLOCATED, HANDED_OVER, NO_SAMPLES, records, run
from test_report import Page

from metrics.comparison import Outcome, as_json
from metrics.comparison_report import comparison_figures, render_comparison
from metrics.curves import Curves
from metrics.slo import SloSpec
from metrics.summary import summarize
from metrics.summary_text import outcomes_table, plain_text


def outcome(name, result, **settings):
    return Outcome(
        name=name, settings=settings, summary=summarize(result, SloSpec(ttft_ms=120)), curves=Curves.of(result)
    )


FIRST = outcome("policy=jsq<b> tp=1", run(records(HANDED_OVER, COLOCATED)), policy="jsq<b>", tp="1")
SECOND = outcome("policy=random tp=1", run(records(COLOCATED)), policy="random", tp="1")
LOST = Outcome(name="policy=random tp=3", settings={"policy": "random", "tp": "3"}, error="tp 3 does </not> fit")
ALSO_LOST = Outcome(name="policy=jsq<b> tp=3", settings={"policy": "jsq<b>", "tp": "3"}, error="tp 3 does </not> fit")


def parse(*outcomes):
    page = Page()
    page.feed(render_comparison("a <b> c", outcomes).decode())
    page.close()
    assert page.open == []
    return page


def test_the_page_is_whole_and_loads_nothing():
    page = parse(FIRST, SECOND, LOST)
    assert page.addresses == ["data:,"]
    assert page.texts["h1"] == ["a <b> c"]
    assert "2 of 3 variants" in page.texts["p"][0]
    assert page.texts["td"].count("tp 3 does </not> fit") == 1
    assert page.texts["th"][:2] == ["policy", "tp"]
    assert page.texts["th"][-6:] == ["jsq<b>", "1", "random", "1", "random", "3"]


def test_every_figure_has_a_place_and_a_curve_per_variant():
    page = parse(FIRST, SECOND, LOST)
    plots = next(orjson.loads(text) for text in page.texts["script"] if text.startswith("[{"))
    assert [name for name in page.ids if name.startswith("plot")] == [f"plot{index}" for index in range(len(plots))]
    assert page.texts["h3"] == [
        "Token gaps over time",
        "What the instances did",
        "Time to first token",
        "Inter-token latency",
        "Time per output token",
        "End-to-end latency",
        "Queued prompt tokens",
        "Decoding requests",
        "KV in use",
    ]
    for title, plot in zip(page.texts["h3"], plots, strict=True):
        if title != "What the instances did":
            assert [curve["name"] for curve in plot["data"]] == ["jsq<b> · tp 1", "random · tp 1"]


def test_runs_without_a_token_have_few_plots():
    nothing = outcome("x", run(records(), samples=[NO_SAMPLES, NO_SAMPLES], step_logs=[[], []]), tp="1")
    assert list(comparison_figures([("x", nothing.curves)])) == ["What the instances did"]


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"policy": "jsq"}, "jsq"),
        ({"tp": "2", "policy": "jsq"}, "tp 2 · jsq"),
        ({"skip_invalid": "true"}, "skip_invalid true"),
        ({"instances": "{mixed: 4}"}, "instances {mixed: 4}"),
    ],
)
def test_labels(settings, label):
    assert Outcome(name="", settings=settings).label == label


def lines(*outcomes):
    return [" ".join(line.split()) for line in plain_text(outcomes_table(outcomes), width=160).splitlines()]


def test_a_reason_is_told_once():
    told = lines(FIRST, SECOND, LOST, ALSO_LOST)
    assert "jsq<b> 1 0.1 50.0 % 125 149.5 99.50 70 99.40 100 1.40" in told
    assert "random 3 - - - - - - - - -" in told
    assert "policy=random tp=3 and 1 more could not run: tp 3 does </not> fit" in told


def test_few_variants_have_a_column_each():
    told = lines(FIRST, LOST)
    assert "attainment 50.0 %" in told
    assert "policy=random tp=3 could not run: tp 3 does </not> fit" in told
    assert lines(LOST) == ["policy=random tp=3 could not run: tp 3 does </not> fit"]


def test_as_json():
    assert as_json(LOST) == {
        "name": LOST.name,
        "error": "tp 3 does </not> fit",
        "settings": {"policy": "random", "tp": "3"},
    }
    assert as_json(FIRST)["ttft_ms"] == FIRST.summary["ttft_ms"]
    assert as_json(FIRST)["settings"] == {"policy": "jsq<b>", "tp": "1"}
