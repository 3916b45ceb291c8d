from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import CapacityError, ConfigError
from workload.load import fit_lengths, load_workload
from workload.spec import Lengths, Phase, WorkloadSpec
from workload.trace import Trace, TraceInfo

VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{10 + 2 * n},{n + 1},5\n" for n in range(10))
PHASE = Phase(duration_s=50.0, request_rate=4.0, prompt=Lengths(mean=100), output=Lengths(mean=10))


def load(folder, seed=0, **fields):
    (folder / "trace.csv").write_text(VIDUR)
    return load_workload(WorkloadSpec(**fields), base_dir=folder, seed=seed)


@pytest.mark.parametrize(
    ("fields", "arrivals", "first_prompt"),
    [
        ({}, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18], 1),
        ({"start_s": 3.0, "end_s": 8.0}, [1, 3], 3),
        ({"end_s": 4.0}, [0, 2], 1),
        ({"num_requests": 3}, [0, 2, 4], 1),
        ({"start_s": 12.0, "num_requests": 3}, [0, 2, 4], 7),
        ({"num_requests": 3, "request_rate": 0.1}, [0, 10, 20], 1),
        ({"trace_unit": "ms"}, [n / 500 for n in range(10)], 1),
    ],
)
def test_trace_then_window_then_count_then_rate(tmp_path, fields, arrivals, first_prompt):
    trace = load(tmp_path, trace="trace.csv", **fields)
    assert trace.arrival_s == pytest.approx(arrivals)
    assert trace.prompt_tokens[0] == first_prompt


def test_phases(tmp_path):
    trace = load(tmp_path, phases=[PHASE], num_requests=50, request_rate=7.0)
    assert len(trace) == 50
    assert trace.request_rate == pytest.approx(7.0)
    assert load(tmp_path, phases=[PHASE]).arrival_s.tolist() == load(tmp_path, phases=[PHASE]).arrival_s.tolist()
    assert load(tmp_path, phases=[PHASE]).arrival_s[0] != load(tmp_path, seed=1, phases=[PHASE]).arrival_s[0]


def test_skip_invalid_reaches_the_reader(tmp_path):
    (tmp_path / "bad.csv").write_text(VIDUR + "x,1,1\n")
    assert len(load(tmp_path, trace=str(tmp_path / "bad.csv"), skip_invalid=True)) == 10


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "workload has neither a trace nor phases; give one of them"),
        (
            {"trace": "trace.csv", "start_s": 100.0},
            r"start_s 100 to end_s inf holds no request of .*trace\.csv, whose last arrives at 18 s; widen the window",
        ),
        ({"phases": [PHASE], "start_s": 90.0, "end_s": 95.0}, "holds no request of phases steady"),
        (
            {"phases": [Phase(duration_s=1.0, request_rate=0.0, prompt=PHASE.prompt, output=PHASE.output)]},
            "workload.phases give no request at all",
        ),
        ({"trace": "trace.csv", "num_requests": 1, "request_rate": 2.0}, r"its 1 request\(s\) arrive at one time"),
    ],
)
def test_nothing_to_run(tmp_path, fields, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, **fields)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WorkloadSpec(trace="t", phases=[PHASE]), "both a trace and phases"),
        (lambda: WorkloadSpec(phases=[PHASE], trace_unit="s"), "trace_unit has no effect without workload.trace"),
        (lambda: WorkloadSpec(phases=[PHASE], skip_invalid=True), "skip_invalid has no effect"),
        (lambda: WorkloadSpec(trace="t", request_rate=inf), "request_rate is inf; it must be a finite number"),
        (lambda: WorkloadSpec(trace="t", start_s=5.0, end_s=5.0), "start_s 5.0 is not before workload.end_s 5.0"),
        (lambda: Lengths(mean=nan), "mean is nan"),
        (lambda: Lengths(mean=10, sigma=inf), "sigma is inf"),
        (
            lambda: Phase(duration_s=inf, request_rate=1.0, prompt=PHASE.prompt, output=PHASE.output),
            "duration_s is inf",
        ),
        (lambda: Phase(duration_s=1.0, request_rate=inf, prompt=PHASE.prompt, output=PHASE.output), "rate is inf"),
    ],
)
def test_spec_refuses(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def lengths(*pairs, hashes=None, block_size=None):
    prompt, output = zip(*pairs, strict=True)
    info = TraceInfo(source="t.csv", format="vidur", unit="s", num_rows=len(pairs))
    return Trace(np.arange(float(len(pairs))), np.array(prompt), np.array(output), info, hashes, block_size)


def pairs(trace):
    return list(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))


LONG = lengths((50, 50), (50, 51), (99, 40), (200, 9), (101, 0))
"""Against 100 tokens: fits exactly, output too long, output down to 1, prompt too long, no output."""


@pytest.mark.parametrize(
    ("max_context", "kv_capacity", "bound"), [(100, 500, "max_context"), (500, 100, "the KV pool")]
)
def test_reject_marks(max_context, kv_capacity, bound):
    trace, too_long, notices = fit_lengths(LONG, max_context=max_context, kv_capacity=kv_capacity, on_too_long="reject")
    assert trace is LONG
    assert too_long.tolist() == [False, True, True, True, True]
    assert notices == [f"4 of 5 requests exceed the 100 tokens of {bound} and are rejected"]


def test_truncate_cuts_output_then_prompt():
    trace, too_long, notices = fit_lengths(LONG, max_context=100, kv_capacity=500, on_too_long="truncate")
    assert pairs(trace) == [(50, 50), (50, 50), (99, 1), (99, 1), (100, 0)]
    assert not too_long.any()
    assert notices == ["4 of 5 requests exceed the 100 tokens of max_context and are cut to fit"]


def test_truncate_cuts_prefix_hashes_with_the_prompt():
    trace = lengths((1100, 5), (600, 5), hashes=[(1, 2, 3), (4, 5)], block_size=512)
    cut, _, _ = fit_lengths(trace, max_context=700, kv_capacity=700, on_too_long="truncate")
    assert cut.prompt_tokens.tolist() == [699, 600]
    assert cut.prefix_hashes == [(1, 2), (4, 5)]


def test_error_names_the_first_and_counts():
    message = (
        r"request 1 of t\.csv needs 50 \+ 51 = 101 tokens, but max_context has 100, as 4 of 5 requests do; "
        "set workload.on_too_long to reject or truncate"
    )
    with pytest.raises(CapacityError, match=message):
        fit_lengths(LONG, max_context=100, kv_capacity=500, on_too_long="error")


def test_truncate_to_nothing():
    with pytest.raises(CapacityError, match="cannot be truncated to 1 token"):
        fit_lengths(LONG, max_context=1, kv_capacity=500, on_too_long="truncate")


@pytest.mark.parametrize("on_too_long", ["reject", "truncate", "error"])
def test_what_fits_is_left_alone(on_too_long):
    trace, too_long, notices = fit_lengths(LONG, max_context=500, kv_capacity=400, on_too_long=on_too_long)
    assert trace is LONG
    assert not too_long.any()
    assert notices == []


@given(
    table=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), min_size=1, max_size=20),
    limit=st.integers(2, 400),
)
def test_truncated_requests_fit_keep_a_token_and_give_up_no_more_than_they_must(table, limit):
    trace, _, _ = fit_lengths(lengths(*table), max_context=limit, kv_capacity=10**6, on_too_long="truncate")
    for (prompt, output), (new_prompt, new_output) in zip(table, pairs(trace), strict=True):
        assert new_prompt + new_output == min(prompt + output, limit)
        assert new_prompt >= 1
        assert new_output >= min(output, 1)
        assert new_prompt == prompt or new_output == min(output, 1)
