"""A whole live run with role changes: nothing lost, real KV verified, metrics that agree with the files."""

from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from actors.messages import Snapshot
from actors.replay import replay
from cluster.request import Status
from metrics.records import Column
from metrics.run import RunResult
from metrics.slo import meets
from scenario.loading import load_scenario
from scenario.requests import requests_of
from scenario.spec import Scenario

PHASES = [
    {
        "name": "long prompts",
        "duration_s": 6,
        "request_rate": 12,
        "prompt": {"mean": 3000, "maximum": 6000},
        "output": {"mean": 20, "maximum": 50},
    },
    {
        "name": "long outputs",
        "duration_s": 6,
        "request_rate": 20,
        "prompt": {"mean": 200, "maximum": 400},
        "output": {"mean": 200, "maximum": 400},
    },
]
CHANGES = {
    "workload.phases": PHASES,
    "planner.interval_s": 0.5,
    "planner.load": {"prefill_queue_high": 4000, "kv_use_high": 0.04, "kv_use_low": 0.04, "cooldown_s": 1.0},
    "live.kv_bytes_scale": 0.001,
    "live.metrics_port": 0,
    "seed": 3,
}


class Scrapes:
    """Scrapes the exporter whenever the run is watched."""

    def __init__(self) -> None:
        self.url = ""
        self.roles: dict[str, set[str]] = {}
        self.last: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self.snapshots: list[Snapshot] = []

    def start(self, url: str) -> None:
        self.url = url

    def watch(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        with urlopen(self.url, timeout=10) as response:
            text = response.read().decode()
        self.last = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        for (name, labels), value in self.last.items():
            if name == "baton_instance_role" and value == 1:
                named = dict(labels)
                self.roles.setdefault(named["instance_name"], set()).add(named["role"])

    def value(self, name: str, **labels: Any) -> float:
        return self.last[name, tuple(sorted(labels.items()))]


Live = tuple[Scenario, RunResult, Scrapes]


@pytest.fixture(scope="module")
def live(ray_address: str) -> Live:
    scenario = load_scenario("demo", CHANGES)
    trace, too_long, _ = requests_of(scenario)
    scrapes = Scrapes()
    result = replay(scenario, trace, too_long, address=ray_address, on_start=scrapes.start, watch=scrapes.watch)
    return scenario, result, scrapes


def test_every_request_ends_once_with_its_tokens(live: Live) -> None:
    _, result, _ = live
    records = result.records
    assert records[:, Column.REQUEST_ID].tolist() == list(range(result.num_requests))
    assert (records[:, Column.STATUS] == Status.FINISHED).all()
    assert (records[:, Column.GENERATED_TOKENS] == records[:, Column.OUTPUT_TOKENS]).all()


def test_times_are_in_causal_order(live: Live) -> None:
    _, result, _ = live
    order = (
        Column.ARRIVAL_S,
        Column.PREFILL_START_S,
        Column.FIRST_TOKEN_S,
        Column.TRANSFER_START_S,
        Column.KV_ARRIVED_S,
        Column.DECODE_START_S,
        Column.SECOND_TOKEN_S,
        Column.FINISHED_S,
    )
    handed_over = result.records[result.records[:, Column.OUTPUT_TOKENS] > 1]
    assert (np.diff(handed_over[:, order], axis=1) >= 0).all()


def test_every_handoff_was_shipped_and_verified(live: Live) -> None:
    scenario, result, _ = live
    handed_over = int((result.records[:, Column.OUTPUT_TOKENS] > 1).sum())
    assert result.num_transfers == result.live["kv_payloads_verified"] == handed_over
    assert result.live["kv_payloads_refused"] == 0
    tokens = result.records[result.records[:, Column.OUTPUT_TOKENS] > 1][:, Column.PROMPT_TOKENS]
    real_tokens = np.maximum(1, np.round(tokens * 0.001)).sum()
    assert result.live["kv_real_bytes"] == real_tokens * scenario.model.kv_bytes_per_token


def test_roles_flip_and_metrics_show_it(live: Live) -> None:
    _, result, scrapes = live
    assert len(result.role_changes) >= 2
    assert all(
        change.reason and change.served_s >= change.drained_s >= change.decided_s for change in result.role_changes
    )
    changed = {result.instance_names[change.instance] for change in result.role_changes}
    seen_to_flip = {name for name, roles in scrapes.roles.items() if len(roles) > 1}
    assert seen_to_flip
    assert seen_to_flip <= changed
    counted = sum(value for (name, _), value in scrapes.last.items() if name == "baton_role_changes_total")
    assert counted == len(result.role_changes)
    final = {result.instance_names[span.instance]: span.role for span in result.role_spans}
    assert all(scrapes.value("baton_instance_role", instance_name=name, role=final[name]) == 1 for name in final)


def test_metrics_agree_with_the_records(live: Live) -> None:
    scenario, result, scrapes = live
    total = result.num_requests
    assert scrapes.value("baton_requests_total", outcome="finished") == total
    assert scrapes.value("baton_good_requests_total") == meets(result.records, scenario.slo).sum()
    assert scrapes.value("baton_time_to_first_token_seconds_count") == total
    assert scrapes.value("baton_generation_tokens_total") == result.records[:, Column.GENERATED_TOKENS].sum()
    gaps = int((result.records[:, Column.GENERATED_TOKENS] - 1).sum())
    assert scrapes.value("baton_inter_token_latency_seconds_count") == gaps
    assert scrapes.value("baton_kv_payloads_total", verdict="verified") == result.live["kv_payloads_verified"]


def test_calls_stay_few(live: Live) -> None:
    _, result, _ = live
    assert result.live["ray_calls_per_request"] <= 12


def test_snapshots_show_the_run(live: Live) -> None:
    _, result, scrapes = live
    assert scrapes.snapshots[-1].num_ended == result.num_requests
    assert len(scrapes.snapshots[-1].loads) == 4
    assert all(change in scrapes.snapshots[-1].changes for change in scrapes.snapshots[-2].changes[-1:])
