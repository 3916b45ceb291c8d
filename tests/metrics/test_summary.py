from dataclasses import replace

import numpy as np
import orjson
import pytest
from made_runs import ABORTED, COLOCATED, HANDED_OVER, NO_SAMPLES, NO_TOKEN, ONE_TOKEN, REJECTED, records, run

from metrics.run import RoleSpan
from metrics.slo import SloSpec
from metrics.summary import summarize
from metrics.utilisation import busy_s

SLO = SloSpec(ttft_ms=150, tpot_ms=60)
TABLE = records(HANDED_OVER, COLOCATED, ONE_TOKEN, NO_TOKEN, REJECTED, ABORTED)
RESULT = run(TABLE, num_requests=8, live={"lateness": {"p99_ms": 1.5}}, notices=["beware"])
SUMMARY = summarize(RESULT, SLO)


def test_requests_are_counted_by_how_they_ended():
    assert SUMMARY["requests"] == {
        "total": 8,
        "finished": 4,
        "rejected": 1,
        "aborted": 1,
        "failed": 0,
        "lost": 2,
        "zero_output": 1,
        "good": 2,
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", "baton.summary/1"),
        ("driver", "simulate"),
        ("name", "made <by> hand"),
        ("seed", 7),
        ("slo", {"ttft_ms": 150, "tpot_ms": 60, "e2e_ms": None, "attainment": 0.9}),
        ("attainment", 2 / 8),
        ("attainment_by_slo", {"ttft": 3 / 8, "tpot": 3 / 8, "e2e": None}),
        ("request_goodput", 0.2),
        ("goodput_per_gpu", 0.05),
        ("request_throughput", 0.4),
        ("output_throughput", 1.5),
        ("total_token_throughput", 18.5),
        ("num_role_changes", 1),
        ("kv_bytes_moved", 3_000_000_000),
        ("num_transfers", 1),
        ("num_preemptions", 0),
        ("requests_per_cpu_s", 16.0),
        ("notices", ["beware"]),
        ("live", {"lateness": {"p99_ms": 1.5}}),
    ],
)
def test_field(field, value):
    assert SUMMARY[field] == (pytest.approx(value) if isinstance(value, float) else value)


def test_latencies_are_in_milliseconds():
    assert SUMMARY["tpot_ms"] == {
        "count": 2,
        "mean": 75.0,
        "min": 50.0,
        "std": 25.0,
        "p50": 75.0,
        "p90": 95.0,
        "p95": 97.5,
        "p99": 99.5,
        "max": 100.0,
    }
    assert SUMMARY["ttft_ms"]["count"] == 4
    assert SUMMARY["e2e_ms"]["max"] == 1150.0
    parts = SUMMARY["ttst_parts_ms"].values()
    assert {part["count"] for part in parts} == {SUMMARY["ttst_ms"]["count"]}, "who was not handed over waited 0"
    assert sum(part["mean"] for part in parts) == pytest.approx(SUMMARY["ttst_ms"]["mean"])
    assert SUMMARY["ttft_parts_ms"]["queue"]["count"] == 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("duration", 10.0),
        ("completed", 4),
        ("failed", 4),
        ("total_input_tokens", 170),
        ("total_output_tokens", 15),
        ("mean_tpot_ms", 75.0),
        ("median_tpot_ms", 75.0),
        ("std_tpot_ms", 25.0),
        ("p99_tpot_ms", 99.5),
        ("mean_ttft_ms", 162.5),
        ("mean_itl_ms", 60.0),
        ("median_e2el_ms", 250.0),
    ],
)
def test_field_of_vllm_bench_serve(field, value):
    assert SUMMARY[field] == value


def test_role_changes():
    rolled_back = replace(RESULT.role_changes[0], drained_s=float("nan"), served_s=float("nan"))
    summary = summarize(replace(RESULT, role_changes=[*RESULT.role_changes, rolled_back]), SLO)
    change = {
        "instance": "one",
        "old_role": "prefill",
        "new_role": "decode",
        "reason": "KV <full>",
        "decided_s": 4.0,
        "drain_s": 1.0,
        "switch_s": 0.5,
        "served_s": 5.5,
    }
    assert summary["role_changes"] == [change, {**change, "drain_s": None, "switch_s": None, "served_s": None}]
    assert summary["num_role_changes"] == 1


def test_instances():
    steps = [[np.array([[0.0, 2.0, 1, 0, 0, 0, 0, 0, 0], [3.0, 4.0, 1, 0, 0, 0, 0, 0, 0]])], []]
    assert summarize(replace(RESULT, step_logs=steps), SLO)["instances"] == [
        {
            "name": "zero",
            "roles": ["prefill"],
            "busy_share": 0.3,
            "prefill_requests": 4,
            "decode_requests": 0,
            "max_kv_use": 0.75,
        },
        {
            "name": "one",
            "roles": ["prefill", "decode"],
            "busy_share": 0.0,
            "prefill_requests": 0,
            "decode_requests": 1,
            "max_kv_use": 0.5,
        },
    ]


def test_overlapping_micro_batches_keep_an_instance_busy_once():
    logs = [np.array([[0.0, 2.0], [5.0, 6.0]]), np.array([[1.0, 3.0], [1.5, 1.7], [6.0, 7.0]])]
    assert busy_s(logs) == 5.0
    assert busy_s(logs[:1]) == 3.0
    assert busy_s([]) == 0.0


def test_router_spread_is_over_instances_that_had_the_role():
    rows = [{**COLOCATED, "prefill_instance": one} for one in (0, 0, 0, 1)]
    spans = [RoleSpan(0, "prefill", "serving", 0, 9), RoleSpan(1, "mixed", "serving", 0, 9)]
    assert summarize(run(records(*rows), role_spans=spans), SLO)["router_spread"] == {
        "prefill": {"max_minus_min": 2, "cv": 0.5},
        "decode": {"max_minus_min": None, "cv": None},
    }


def test_an_empty_run_has_nulls_and_no_zeros_for_what_it_did_not_measure():
    summary = summarize(
        run(records(), duration_s=0.0, cpu_s=0.0, samples=[NO_SAMPLES, NO_SAMPLES], role_changes=[]), SLO
    )
    for field in ("attainment", "request_goodput", "goodput_per_gpu", "request_throughput", "requests_per_cpu_s"):
        assert summary[field] is None
    assert summary["ttft_ms"] == {"count": 0, **dict.fromkeys(list(summary["ttft_ms"])[1:])}
    assert summary["p99_itl_ms"] is None
    assert summary["live"] is None


def test_it_is_json():
    assert orjson.loads(orjson.dumps(SUMMARY)) == SUMMARY
