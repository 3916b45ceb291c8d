import pytest
from made_runs import COLOCATED, FAULT, HANDED_OVER, REJECTED, records, run

from metrics.facts import fault_rows, number, size
from metrics.slo import SloSpec
from metrics.summary import summarize
from metrics.summary_text import compare_table, plain_text, summary_table

RESULT = run(
    records(HANDED_OVER, COLOCATED, REJECTED),
    notices=["beware of [brackets]"],
    live={"lateness_ms": {"p50": 0.25, "p99": 1.5}, "verified": True},
)
SUMMARY = summarize(RESULT, SloSpec(ttft_ms=120, tpot_ms=100))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.8274, "0.827"),
        (0.00012345, "0.000123"),
        (7.5, "7.50"),
        (71.354, "71.35"),
        (106.74, "106.7"),
        (4913.04, "4,913"),
        (1234567, "1,234,567"),
        (12.0, "12"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 B"), (999, "999 B"), (1_208_000_000, "1.21 GB"), (3 * 10**15, "3 PB")]
)
def test_sizes(num_bytes, text):
    assert size(num_bytes) == text


def test_faults_have_a_row_for_each_kind():
    worse = {**FAULT, "detection_s": None, "recovery_s": 3.0, "recomputed_tokens": 700}
    missed = {**FAULT, "injected_s": None, "disturbed": 9}
    late = {**FAULT, "kind": "slow", "detection_s": None, "recovery_s": None}
    result = run(records(COLOCATED), live={"faults": [FAULT, late, worse, missed]})
    assert fault_rows(summarize(result, SloSpec())) == [
        ["kill-router x 2", "0.10 s", "3.00 s", "2", "2", "0", "0", "1,200"],
        ["slow", "-", "-", "1", "1", "0", "0", "500"],
    ]


def test_a_run():
    lines = [" ".join(line.split()) for line in plain_text(summary_table(SUMMARY), width=120).splitlines()]
    for line in (
        "Serving summary: made <by> hand (simulate, seed 7)",
        "Goodput 0.1 req/s, 0.025 per GPU",
        "Attainment 33.3 % good, 90 % asked for; TTFT <= 120 ms 33.3 %; TPOT <= 100 ms 66.7 %",
        "Requests 3 sent: 2 finished, 1 rejected",
        "KV moved 3 GB in 1 handoffs",
        "Live lateness ms p50 0.25, p99 1.50",
        "Live verified True",
        "Note beware of [brackets]",
        "TTFT 125 125 145 149.5 150",
        "KV transfer 10 10 18 19.80 20",
        "4.00 s one prefill to decode 1.000 s 0.500 s KV <full>",
    ):
        assert line in lines


def test_runs_side_by_side():
    other = summarize(run(records(COLOCATED), scenario={"name": "other"}, driver="replay"), SloSpec())
    lines = [line.split() for line in plain_text(compare_table([("first", SUMMARY), ("other", other)])).splitlines()]
    assert ["attainment", "33.3", "%", "100.0", "%"] in lines
    assert ["TPOT", "p99,", "ms", "99.50", "50"] in lines
    assert ["requests", "not", "finished", "1", "0"] in lines


def test_nothing_measured_shows_as_dashes():
    text = plain_text(summary_table(summarize(run(records(), duration_s=0.0), SloSpec())))
    assert "Goodput" in text
    assert "- req/s, - per GPU" in text
    assert "nan" not in text
