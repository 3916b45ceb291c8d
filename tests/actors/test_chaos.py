"""Every fault, live: nothing is lost, nobody is answered twice, and what died comes back."""

import pytest

from actors.chaos import Chaos
from actors.faults import Fault, each_fault, possible_kinds, random_faults
from actors.replay import replay
from cluster.request import Status
from metrics.records import Column
from metrics.run import RunResult
from scenario.loading import load_scenario
from scenario.requests import requests_of
from tests.actors.nothing_lost import check_nothing_lost

pytestmark = pytest.mark.ray


def disturbed(
    ray_address: str,
    faults: list[Fault],
    duration_s: float,
    silence_timeout_s: float,
    *,
    five_times_as_fast: bool = False,
) -> RunResult:
    phase = {
        "name": "steady",
        "duration_s": duration_s,
        "request_rate": 2.4 if five_times_as_fast else 12,
        "prompt": {"mean": 800, "maximum": 3000},
        "output": {"mean": 150, "maximum": 400},
    }
    changes = {
        "workload.phases": [phase],
        "live.time_scale": 0.2 if five_times_as_fast else 1,
        "planner.policy": "static",
        "live.kv_bytes_scale": 0.001,
        "live.metrics_port": 0,
        "live.silence_timeout_s": silence_timeout_s,
    }
    scenario = load_scenario("demo", changes)
    trace, too_long, _ = requests_of(scenario)
    return replay(
        scenario,
        trace,
        too_long,
        address=ray_address,
        disturb=Chaos(faults).run,
    )


@pytest.fixture(scope="module")
def deaths(ray_address: str) -> tuple[list[Fault], RunResult]:
    """A run in which instances die, one after another, in whatever they are at."""
    kinds = ["kill-prefill-running", "kill-decode-running", "kill-prefill-holding", "kill-decode-receiving", "hang"]
    faults = each_fault(kinds, 4.0)
    return faults, disturbed(ray_address, faults, 24.0, silence_timeout_s=4.0)


def test_instances_die_and_nothing_is_lost(deaths: tuple[list[Fault], RunResult]) -> None:
    faults, result = deaths
    check_nothing_lost(result)
    for fault, recovery in zip(faults, result.live["recoveries"], strict=True):
        assert recovery["who"] == fault.target
        assert recovery["recovered_s"] == fault.recovered_s > fault.detected_s > fault.injected_s


def test_the_dead_come_back_in_their_roles(deaths: tuple[list[Fault], RunResult]) -> None:
    faults, result = deaths
    for fault in faults:
        dead = int(fault.target.removeprefix("instance-"))
        role = "prefill" if "prefill" in fault.kind else "decode"
        phases = {(span.role, span.phase) for span in result.role_spans if span.instance == dead}
        assert phases == {(role, "serving"), (role, "down")}


def test_requests_resume_after_their_delivered_tokens(deaths: tuple[list[Fault], RunResult]) -> None:
    """By transfer when their KV survives at prefill; else prompt and delivered tokens are prefilled again."""
    faults, result = deaths
    assert result.live["requests_disturbed"] >= result.live["requests_resumed"]
    assert result.live["recomputed_tokens"] > 0
    died = next(fault for fault in faults if fault.kind == "kill-decode-running")
    first = result.records[:, Column.FIRST_TOKEN_S]
    assert ((first < died.injected_s) & (result.records[:, Column.FINISHED_S] > died.recovered_s)).any(), (
        "first tokens from before the death stand"
    )


def test_an_instance_dies_on_its_way_to_another_role(ray_address: str) -> None:
    """It comes back in the role that it was leaving, and nobody waits for the change. All that was done is known at the
    end, although the router died, too."""
    faults = [
        Fault("change-role", 3.0),
        Fault("kill-changing", 3.0),
        Fault("change-role", 6.0),
        Fault("kill-router", 8.0),
    ]
    result = disturbed(ray_address, faults, 11.0, silence_timeout_s=30.0)
    check_nothing_lost(result)
    ordered, killed, again, _ = faults
    assert killed.target == ordered.target
    dead = int(killed.target.removeprefix("instance-"))
    spans = [span for span in result.role_spans if span.instance == dead]
    assert [span.phase for span in spans[:4]] == ["serving", "draining", "down", "serving"]
    assert len({span.role for span in spans[:4]}) == 1
    assert again.target
    assert len(result.role_changes) == 2
    steps = result.step_logs[dead][0]
    assert (steps[:, 1] < killed.injected_s).any()
    assert (steps[:, 0] > killed.recovered_s).any()
    handed_over = (result.records[:, Column.DECODE_INSTANCE] >= 0).sum()
    assert result.num_transfers >= handed_over - result.live["requests_disturbed"]


def test_what_kills_no_instance(ray_address: str) -> None:
    kinds = ["corrupt", "cancel", "slow", "kill-router", "kill-planner", "kill-exporter", "stale"]
    faults = each_fault(kinds, 2.0)
    result = disturbed(ray_address, faults, 16.0, silence_timeout_s=30.0)
    by_kind = {fault.kind: fault for fault in faults}
    cancelled = by_kind["cancel"].cancelled
    check_nothing_lost(result, cancelled=int((result.records[:, Column.STATUS] == Status.ABORTED).sum()))
    assert cancelled >= 1
    assert [recovery["who"] for recovery in result.live["recoveries"]] == ["router", "planner", "exporter"]
    assert result.live["kv_payloads_refused"] == 1
    assert by_kind["corrupt"].recovered_s >= by_kind["corrupt"].detected_s >= by_kind["corrupt"].injected_s
    assert result.live["messages_ignored"] >= 5
    assert result.live["requests_disturbed"] == 0


@pytest.mark.slow
def test_random_faults(ray_address: str) -> None:
    """Five times as fast as real time, with something that breaks every half minute of the trace."""
    faults = random_faults(possible_kinds(load_scenario("demo").roles, num_nodes=1), 30.0, 190.0, seed=3)
    result = disturbed(ray_address, faults, 200.0, silence_timeout_s=5.0, five_times_as_fast=True)
    check_nothing_lost(result, cancelled=sum(fault.cancelled for fault in faults if fault.kind == "cancel"))
    assert len(result.live["recoveries"]) >= sum(fault.kind.startswith("kill") for fault in faults) >= 3
