"""PromQL gives what the result files of the same run say."""

import subprocess
from bisect import bisect_left
from itertools import groupby

import pytest
from prometheus_client.parser import text_string_to_metric_families

from metrics.prometheus import SPECS, TTFT_S
from tests.metrics_live.conftest import LOOK_BACK, Watched, promtool

pytestmark = pytest.mark.ray
ROLE = f"baton_instance_role[{LOOK_BACK}]"


def test_goodput(watched: Watched) -> None:
    (good,) = watched.at_end(f"increase(baton_good_requests_total[{LOOK_BACK}])").values()
    assert good == pytest.approx(watched.summary["requests"]["good"], abs=1e-6)
    assert good / watched.summary["duration_s"] == pytest.approx(watched.summary["request_goodput"])


def test_outcomes_and_tokens(watched: Watched) -> None:
    requests = watched.summary["requests"]
    ended = watched.at_end(f"sum by (outcome) (increase(baton_requests_total[{LOOK_BACK}]))")
    assert ended == pytest.approx({(name,): requests[name] for name in ("finished", "failed", "rejected", "aborted")})
    (tokens,) = watched.at_end(f"increase(baton_generation_tokens_total[{LOOK_BACK}])").values()
    assert tokens == pytest.approx(sum(request["generated_tokens"] for request in watched.requests))


def test_ttft_p90_lies_in_the_same_bucket(watched: Watched) -> None:
    p90 = f"histogram_quantile(0.9, increase(baton_time_to_first_token_seconds_bucket[{LOOK_BACK}]))"
    (estimate,) = watched.at_end(p90).values()
    exact = watched.summary["ttft_ms"]["p90"] / 1e3
    assert bisect_left(TTFT_S, estimate) == bisect_left(TTFT_S, exact)


def test_role_history(watched: Watched) -> None:
    """Every instance goes through the same roles in the same order, and as often."""
    names, changes = watched.result.instance_names, watched.result.role_changes
    assert len(changes) >= 2
    assert all(change.served_s == change.served_s for change in changes)
    playing: dict[str, list[tuple[float, str]]] = {name: [] for name in names}
    for series in watched.over_run("baton_instance_role == 1"):
        labels = series["metric"]
        playing[labels["instance_name"]] += [(when, labels["role"]) for when, _ in series["values"]]
    for index, name in enumerate(names):
        scraped = [role for role, _ in groupby(role for _, role in sorted(playing[name]))]
        spans = [span.role for span in watched.result.role_spans if span.instance == index]
        assert scraped == [role for role, _ in groupby(spans)], name
    flips = watched.at_end(f'sum by (instance_name) (changes(baton_instance_role{{role="prefill"}}[{LOOK_BACK}]))')
    assert flips == {(name,): sum(change.instance == index for change in changes) for index, name in enumerate(names)}
    assert sum(watched.at_end("baton_role_changes_total").values()) == len(changes)


def test_one_role_at_a_time(watched: Watched) -> None:
    at_once = f"max_over_time(sum by (instance_name) (baton_instance_role)[{LOOK_BACK}:1s])"
    assert set(watched.at_end(at_once).values()) == {1.0}


def test_transfers(watched: Watched) -> None:
    count = f"sum by (kind) (increase(baton_kv_transfer_seconds_count[{LOOK_BACK}]))"
    moved = watched.summary["num_transfers"]
    assert watched.at_end(count) == pytest.approx({("measured",): moved, ("modelled",): moved})


def test_scrape_is_as_the_table_says(watched: Watched) -> None:
    families = {family.name: family for family in text_string_to_metric_families(watched.scrape.decode())}
    assert list(families) == list(SPECS)
    for name, spec in SPECS.items():
        assert families[name].type == spec.kind
        assert families[name].samples, name
        assert {label for sample in families[name].samples for label in sample.labels} - {"le"} == set(spec.labels)


def test_promtool_has_no_complaint(watched: Watched) -> None:
    done = subprocess.run([promtool(), "check", "metrics"], input=watched.scrape, capture_output=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
