import re
from html.parser import HTMLParser

import numpy as np
import orjson
import pytest
from made_runs import COLOCATED, FAULT, HANDED_OVER, REJECTED, records, run

from metrics.curves import Curves
from metrics.figure import MAX_POINTS
from metrics.plots import figures
from metrics.report import render_report
from metrics.slo import SloSpec
from metrics.summary import summarize

SLO = SloSpec(ttft_ms=120, tpot_ms=100)
STEPS = [[], [np.array([[1.25, 2.15, 9, 1, 1, 0, 1.25, 0.1, 0.0]])]]
RESULT = run(
    records(HANDED_OVER, COLOCATED, REJECTED),
    step_logs=STEPS,
    notices=["</script><b>bold"],
    instance_names=["</script>", "one"],
)
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Checks that tags nest, and collects text and addresses by tag."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.addresses, self.ids = [], {}, [], []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def plots_of(result):
    return figures(result, SLO, Curves.of(result))


def parse(result, slo=SLO, scenario_yaml="name: <x> & y\n"):
    page = Page()
    page.feed(render_report(result, slo, summarize(result, slo), Curves.of(result), scenario_yaml).decode())
    page.close()
    assert page.open == []
    return page


def test_the_page_is_whole_and_loads_nothing():
    page = parse(RESULT)
    assert page.addresses == ["data:,"]  # no icon is asked for
    assert page.texts["h1"] == ["made <by> hand"]
    assert page.texts["pre"] == ["name: <x> & y\n"]
    assert "</script><b>bold" in page.texts["td"]
    assert "KV <full>" in page.texts["td"]
    assert "b" not in page.texts or "bold" not in page.texts["b"]


def test_every_figure_has_a_place():
    page = parse(RESULT)
    plots = next(orjson.loads(text) for text in page.texts["script"] if text.startswith("[{"))
    assert [name for name in page.ids if name.startswith("plot")] == [f"plot{index}" for index in range(len(plots))]
    assert page.texts["h3"] == list(plots_of(RESULT))
    assert len(plots) == 14


@pytest.mark.parametrize("table", [records(), records(REJECTED), records(COLOCATED)])
def test_a_run_with_little_to_show_has_a_report(table):
    page = parse(run(table, duration_s=5.0, role_changes=[]))
    assert not {"Role changes", "Faults"} & set(page.texts["h2"])
    assert "KV transfer" not in page.texts["h3"]


def test_faults_are_told():
    page = parse(run(records(COLOCATED), live={"faults": [FAULT]}))
    assert "Faults" in page.texts["h2"]
    assert "kill-router" in page.texts["td"]


def test_curves_have_few_points_and_the_right_ends():
    rng = np.random.default_rng(0)
    rows = [{**COLOCATED, "first_token_s": 2.0 + wait} for wait in rng.exponential(0.1, 5000)]
    plots = plots_of(run(records(*rows)))
    (curve,) = plots["Time to first token"]["data"]
    waits_ms = 1e3 * (np.array([row["first_token_s"] for row in rows]) - 2.0)
    assert len(curve["x"]) == len(curve["y"]) == MAX_POINTS
    assert (curve["x"][0], curve["x"][-1]) == (round(waits_ms.min(), 4), round(waits_ms.max(), 4))
    assert (curve["y"][0], curve["y"][-1]) == (0.0, 100.0)
    assert plots["Time to first token"]["layout"]["shapes"][0]["x0"] == 120
    at = curve["y"].index(pytest.approx(99.0))
    assert curve["x"][at] == pytest.approx(np.percentile(waits_ms, 99), rel=2e-3)  # drawn from bins of 1/2048


def test_samples_keep_their_peaks():
    samples = np.zeros((5000, 6))
    samples[:, 0] = np.arange(5000)
    samples[1234, 1] = 999
    (line, _) = plots_of(run(records(COLOCATED), samples=[samples, samples[:1]]))["Queued prompt tokens"]["data"]
    assert len(line["y"]) == MAX_POINTS
    assert (max(line["y"]), line["x"][123]) == (999, 1230)


def test_many_instances_are_a_heat_map():
    samples = np.array([[1.0, 300, 2, 0, 50, 1]])
    names = [f"i{index}" for index in range(20)]
    result = run(records(COLOCATED), samples=[samples] * 20, instance_names=names, kv_capacity_tokens=[100] * 20)
    (heat,) = plots_of(result)["KV in use"]["data"]
    assert (heat["type"], heat["y"], heat["z"]) == ("heatmap", names, [[50.0]] * 20)


def test_colours_are_those_of_okabe_and_ito():
    colours = set(re.findall(r"#[0-9a-fA-F]{6}", orjson.dumps(plots_of(RESULT)).decode()))
    assert colours <= {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8c8c8c"}
