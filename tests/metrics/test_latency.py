from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import ABORTED, COLOCATED, HANDED_OVER, NO_STEPS, NO_TOKEN, ONE_TOKEN, REJECTED, records, run, serve

from metrics.latency import e2e_s, itl, max_gap_per_request, tpot_s, ttft_parts_s, ttft_s, ttst_parts_s, ttst_s
from metrics.records import Column

TABLE = records(HANDED_OVER, COLOCATED, ONE_TOKEN, NO_TOKEN, REJECTED, ABORTED)


def close(expected):
    return pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("latency", "expected"),
    [
        (ttft_s, [0.15, 0.1, 0.3, nan, nan, 0.1]),
        (e2e_s, [1.15, 0.2, 0.3, 0.0, nan, nan]),
        (tpot_s, [0.1, 0.05, nan, nan, nan, nan]),
        (ttst_s, [0.1, 0.04, nan, nan, nan, 0.04]),
    ],
)
def test_latencies(latency, expected):
    assert latency(TABLE).tolist() == close(expected)


def test_parts():
    assert {name: part.tolist() for name, part in ttft_parts_s(TABLE[:3]).items()} == {
        "queue": close([0.05, 0.0, 0.1]),
        "prefill": close([0.1, 0.1, 0.2]),
    }
    assert {name: part.tolist() for name, part in ttst_parts_s(TABLE[:3]).items()} == {
        "room": close([0.01, nan, nan]),
        "transfer": close([0.02, nan, nan]),
        "decode_wait": close([0.03, nan, nan]),
        "first_decode_step": close([0.04, 0.04, nan]),
    }


@given(st.lists(st.floats(0, 10), min_size=8, max_size=8))
def test_parts_sum_to_the_whole(gaps):
    names = [name for name in HANDED_OVER if name.endswith("_s")]
    table = records({**HANDED_OVER, **dict(zip(names, np.cumsum(gaps), strict=True))})
    assert sum(ttft_parts_s(table).values()) == pytest.approx(ttft_s(table), abs=1e-9)
    assert sum(ttst_parts_s(table).values()) == pytest.approx(ttst_s(table), abs=1e-9)


def test_a_second_token_from_computing_the_prompt_again_waits_for_no_handoff():
    table = records({**HANDED_OVER, "second_token_s": HANDED_OVER["first_token_s"] + 0.005})
    assert {name: part.tolist() for name, part in ttst_parts_s(table).items()} == {
        "room": close([0.005]),
        "transfer": [0.0],
        "decode_wait": [0.0],
        "first_decode_step": [0.0],
    }


def test_gaps_of_two_requests():
    """A starts alone for 3 iterations; prompts of B stop it for half a second; both decode 2 iterations."""
    alone = [1.0, 1.33, 3, 1, 0, 0, 0.0, 0.10, 0.01]
    prompt = [1.33, 1.83, 1, 0, 0, 100, 1.33, 0.5, 0.0]
    together = [1.83, 2.24, 2, 2, 1, 0, 1.33, 0.20, 0.01]
    a = {**COLOCATED, "first_token_s": 1.0, "second_token_s": 1.1, "finished_s": 2.24}
    b = {**COLOCATED, "first_token_s": 1.83, "second_token_s": 2.03, "finished_s": 2.24}
    result = run(records(a, b), step_logs=[[np.array([alone, prompt, together])]], extra_gaps_s=[0.9])
    first_of_a, first_of_b, both, wait_for_b, extra = 0.1, 0.2, 0.21, 0.7, 0.9
    gaps = [first_of_a, 0.11, 0.12, first_of_b, both, both, wait_for_b, extra]
    assert sorted(itl(result).expanded().tolist()) == close(gaps)
    assert max_gap_per_request(result).tolist() == close([0.7, 0.21])


def test_who_has_no_longest_gap():
    rows = np.array([[2.1, 2.2, 2, 1, 0, 0, 0.0, 0.04, 0.02]])
    preempted = {**COLOCATED, "num_preemptions": 1}
    moved_by_a_fault = {**COLOCATED, "second_token_s": 2.15}
    table = records(COLOCATED, ABORTED, ONE_TOKEN, NO_TOKEN, REJECTED, preempted, moved_by_a_fault)
    longest = max_gap_per_request(run(table, step_logs=[[rows]]))
    assert longest.tolist() == close([0.06, nan, nan, nan, nan, nan, nan])


def test_micro_batches_keep_their_requests_apart():
    """Two micro-batches alternate on one instance; only the second stalls."""
    even = np.array([[0.0, 0.2, 1, 1, 0, 0, 0, 0.2, 0], [0.2, 0.4, 1, 1, 1, 0, 0.2, 0.2, 0]])
    odd = np.array([[0.1, 0.3, 1, 1, 0, 0, 0, 0.2, 0], [0.8, 1.0, 1, 1, 1, 0, 0.3, 0.2, 0]])
    a = {**COLOCATED, "first_token_s": 0.0, "second_token_s": 0.2, "finished_s": 0.4}
    b = {**COLOCATED, "first_token_s": 0.1, "second_token_s": 0.3, "finished_s": 1.0}
    assert max_gap_per_request(run(records(a, b), step_logs=[[even, odd]])).tolist() == close([0.2, 0.7])


STEPS = st.lists(
    st.tuples(
        st.floats(0, 2),  # pause before the step
        st.integers(1, 5),  # iterations
        st.floats(0.001, 1),  # first iteration
        st.floats(0, 0.1),  # slope
        st.integers(0, 3),  # how many join
        st.integers(0, 3),  # how many leave at the end
    ),
    min_size=1,
    max_size=25,
)


@given(STEPS)
def test_gaps_are_those_of_an_explicit_expansion(steps):
    now, last_token, rows, table, gaps = 0.0, 0.0, [], [], []
    members = []
    for number, (pause, iterations, first, slope, joining, leaving) in enumerate(steps):
        start = now + pause
        ends = start + np.cumsum(first + slope * np.arange(iterations))
        newcomers = [len(table) + extra for extra in range(joining)]
        for _ in newcomers:
            gaps.append([ends[0] - now])
            table.append({**COLOCATED, "first_token_s": now, "second_token_s": ends[0]})
        for member in members:
            gaps[member].append(ends[0] - last_token)
        continuing, members = len(members), members + newcomers
        for member in members:
            gaps[member] += np.diff(ends).tolist()
        rows.append([start, ends[-1], iterations, len(members), continuing, 0, last_token, first, slope])
        now = ends[-1]
        last_token = now if members else last_token
        for member in members[:leaving] if number < len(steps) - 1 else members:
            table[member]["finished_s"] = now
        members = members[leaving:]
    result = run(records(*table), step_logs=[[np.array(rows)], [NO_STEPS]])
    expanded = itl(result).expanded()
    assert np.sort(expanded) == pytest.approx(np.sort([gap for one in gaps for gap in one]), abs=1e-9)
    assert max_gap_per_request(result) == pytest.approx([max(one) for one in gaps], abs=1e-9)


@given(
    st.lists(st.tuples(st.floats(0, 2), st.integers(1, 200), st.integers(1, 40)), min_size=1, max_size=30),
    st.sampled_from(["chunked_prefill", "prefill_first", "mixed_batch", "decode_first"]),
    st.sampled_from(["reserve_output", "preempt_recompute"]),
)
def test_gaps_conserve_tokens_and_time(arrivals, policy, admission):
    """Every token but the first of a request ends one gap, and a request's gaps fill its time from first to last."""
    result = serve(arrivals, capacity=256, max_batch=8, policy=policy, admission=admission)
    table = result.records
    assert len(table) == len(arrivals)
    expanded = itl(result).expanded()
    assert len(expanded) == (table[:, Column.GENERATED_TOKENS] - 1).sum()
    decoding_s = table[:, Column.FINISHED_S] - table[:, Column.FIRST_TOKEN_S]
    assert expanded.sum() == pytest.approx(decoding_s.sum(), abs=1e-6)
    for row, longest in zip(table, max_gap_per_request(result), strict=True):
        has_gaps = row[Column.GENERATED_TOKENS] > 1 and not row[Column.NUM_PREEMPTIONS]
        assert isnan(longest) != has_gaps
        if has_gaps:
            mean = (row[Column.FINISHED_S] - row[Column.FIRST_TOKEN_S]) / (row[Column.GENERATED_TOKENS] - 1)
            assert mean - 1e-9 <= longest <= expanded.max() + 1e-9
