"""Every fault, live: nothing is lost, nobody is answered twice, and what died comes back."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from actors.chaos import Chaos, Fault
from actors.replay import replay
from cluster.request import Status
from metrics.records import Column
from metrics.run import RunResult
from scenario.loading import load_scenario
from scenario.requests import requests_of

pytestmark = pytest.mark.ray

SCENARIO = {
    "workload.phases": [
        {
            "name": "steady",
            "duration_s": 7,
            "request_rate": 12,
            "prompt": {"mean": 800, "maximum": 3000},
            "output": {"mean": 150, "maximum": 400},
        }
    ],
    "planner.policy": "static",
    "live.kv_bytes_scale": 0.001,
    "live.metrics_port": 0,
    "live.silence_timeout_s": 2.0,
}


def disturbed(ray_address: str, *faults: Fault, **changes: object) -> tuple[RunResult, Chaos]:
    scenario = load_scenario("demo", {**SCENARIO, **changes})
    trace, too_long, _ = requests_of(scenario)
    chaos = Chaos(list(faults), seed=1)
    result = replay(
        scenario,
        trace,
        too_long,
        address=ray_address,
        on_start=lambda _: None,
        watch=lambda _: None,
        disturb=chaos.run,
    )
    return result, chaos


def check_nothing_lost(result: RunResult, *, cancelled: int = 0) -> None:
    """Every request ended exactly once, with all its tokens unless its client left."""
    records = result.records
    assert records[:, Column.REQUEST_ID].tolist() == list(range(result.num_requests))
    status = records[:, Column.STATUS]
    finished = status == Status.FINISHED
    assert (status == Status.ABORTED).sum() == cancelled == len(records) - finished.sum()
    assert (records[finished, Column.GENERATED_TOKENS] == records[finished, Column.OUTPUT_TOKENS]).all()
    order = (Column.ARRIVAL_S, Column.FIRST_TOKEN_S, Column.SECOND_TOKEN_S, Column.FINISHED_S)
    long = finished & (records[:, Column.OUTPUT_TOKENS] > 1)
    assert (np.diff(records[long][:, order], axis=1) >= 0).all()


@pytest.mark.parametrize("kind", ["kill-prefill", "kill-decode", "hang"])
def test_an_instance_dies_and_comes_back(ray_address: str, kind: str) -> None:
    result, chaos = disturbed(ray_address, Fault(kind, 3.0))
    check_nothing_lost(result)
    (fault,) = chaos.faults
    assert fault.recovery is not None
    assert fault.recovery.who == fault.target
    assert fault.recovery.disturbed > 0
    assert fault.recovery.recovered_s > fault.recovery.detected_s > fault.injected_s
    dead = int(fault.target.removeprefix("instance-"))
    phases = [(span.role, span.phase) for span in result.role_spans if span.instance == dead]
    role = "prefill" if kind == "kill-prefill" else "decode"
    assert phases == [(role, "serving"), (role, "down"), (role, "serving")]


def test_a_request_resumes_after_its_delivered_tokens(ray_address: str) -> None:
    """Tokens that a dead decode instance had delivered are recomputed as prompt, not delivered again."""
    result, chaos = disturbed(ray_address, Fault("kill-decode", 4.0))
    check_nothing_lost(result)
    recovery = chaos.faults[0].recovery
    assert recovery is not None
    assert result.live["recomputed_tokens"] >= recovery.recomputed_tokens > 0
    first = result.records[:, Column.FIRST_TOKEN_S]
    died_s = chaos.faults[0].injected_s
    resumed = (first < died_s) & (result.records[:, Column.FINISHED_S] > recovery.detected_s)
    assert resumed.sum() >= recovery.disturbed / 2, "first tokens from before the death stand"


@pytest.mark.parametrize("kind", ["kill-router", "kill-planner", "kill-exporter"])
def test_a_helper_dies_and_is_replaced(ray_address: str, kind: str) -> None:
    result, chaos = disturbed(ray_address, Fault(kind, 3.0))
    check_nothing_lost(result)
    assert [recovery["who"] for recovery in result.live["recoveries"]] == [kind.removeprefix("kill-")]
    assert chaos.faults[0].recovery is not None
    assert chaos.faults[0].recovery.recovered_s > 0


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        ("slow", lambda result: result.live["kv_payloads_refused"] == 0),
        ("corrupt", lambda result: result.live["kv_payloads_refused"] == 1),
        ("stale", lambda result: result.live["messages_ignored"] >= 5),
    ],
)
def test_a_fault_that_kills_nobody(ray_address: str, kind: str, check: Callable[[RunResult], bool]) -> None:
    result, _ = disturbed(ray_address, Fault(kind, 3.0))
    check_nothing_lost(result)
    assert check(result)
    assert result.live["recoveries"] == []


def test_clients_that_leave(ray_address: str) -> None:
    result, chaos = disturbed(ray_address, *(Fault("cancel", at_s) for at_s in (1.0, 2.0, 3.0, 4.0)))
    assert chaos.num_cancelled >= 10
    check_nothing_lost(result, cancelled=int((result.records[:, Column.STATUS] == Status.ABORTED).sum()))
    aborted = (result.records[:, Column.STATUS] == Status.ABORTED).sum()
    assert chaos.num_cancelled - 5 <= aborted <= chaos.num_cancelled, "a few may have finished first"


def test_many_faults_in_one_run(ray_address: str) -> None:
    kinds = ["kill-decode", "corrupt", "kill-router", "stale", "kill-prefill", "kill-planner", "cancel"]
    phases = [dataclasses.asdict(phase) for phase in load_scenario("demo", SCENARIO).workload.phases]
    phases[0] = {**SCENARIO["workload.phases"][0], "duration_s": 20}
    faults = [Fault(kind, 2.0 + 2.0 * number) for number, kind in enumerate(kinds)]
    result, _ = disturbed(ray_address, *faults, **{"workload.phases": phases[:1]})
    check_nothing_lost(result, cancelled=int((result.records[:, Column.STATUS] == Status.ABORTED).sum()))
