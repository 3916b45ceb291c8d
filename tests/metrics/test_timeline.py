from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import HANDED_OVER, records, run, serve

from metrics.timeline import render_timeline

PROMPT = [0.0, 0.5, 1, 0, 0, 300, 0.0, 0.5, 0.0]
BOTH = [0.5, 0.7, 1, 2, 1, 100, 0.0, 0.2, 0.0]
DECODE = [0.7, 1.0000000004, 3, 2, 2, 0, 0.7, 0.1, 0.0]
RESULT = run(records(HANDED_OVER), step_logs=[[np.array([PROMPT, BOTH])], [np.array([DECODE])]])


def events(trace, phase):
    return [event for event in orjson.loads(trace)["traceEvents"] if event["ph"] == phase]


def test_steps_are_slices_in_microseconds():
    steps = [event for event in events(render_timeline(RESULT), "X") if event["tid"] in (1001, 2001)]
    assert [(one["pid"], one["name"], one["ts"], one["dur"], one["args"]) for one in steps] == [
        (1, "prefill", 0, 500_000, {"prefill_tokens": 300, "decodes": 0, "iterations": 1}),
        (1, "mixed", 500_000, 200_000, {"prefill_tokens": 100, "decodes": 2, "iterations": 1}),
        (2, "decode", 700_000, 300_000, {"prefill_tokens": 0, "decodes": 2, "iterations": 3}),
    ]


def test_roles_are_slices_and_role_changes_instants():
    roles = [event for event in events(render_timeline(RESULT), "X") if event["tid"] == 2000]
    assert [(one["name"], one["ts"], one["dur"]) for one in roles] == [
        ("prefill", 0, 4e6),
        ("prefill: draining", 4e6, 1e6),
        ("decode", 5.5e6, 4.5e6),
    ]
    (change,) = events(render_timeline(RESULT), "i")
    assert (change["name"], change["pid"], change["ts"]) == ("prefill to decode", 2, 4e6)
    assert change["args"] == {"reason": "KV <full>", "drained_s": 5.0, "served_s": 5.5}


def test_counters_have_an_event_where_they_change():
    samples = np.array(
        [[1.0, 300, 2, 0, 50, 0], [2.0, 300, 1, 1, 50, 0], [3.0, 300, 1, 1, 50, 0], [4.0, 0, 0, 1, 60, 0]]
    )
    trace = render_timeline(replace(RESULT, samples=[samples, samples[:0]], kv_capacity_tokens=[100, 100]))
    assert [(one["pid"], one["name"], one["ts"], one["args"]) for one in events(trace, "C")] == [
        (1, "queued tokens", 1e6, {"tokens": 300}),
        (1, "queued tokens", 4e6, {"tokens": 0}),
        (1, "requests", 1e6, {"waiting": 2, "decoding": 0}),
        (1, "requests", 2e6, {"waiting": 1, "decoding": 1}),
        (1, "requests", 4e6, {"waiting": 0, "decoding": 1}),
        (1, "KV use %", 1e6, {"used": 50.0}),
        (1, "KV use %", 4e6, {"used": 60.0}),
    ]


def test_every_process_and_thread_has_a_name():
    trace = render_timeline(RESULT)
    names = {
        (one["pid"], one["tid"]): one["args"]["name"] for one in events(trace, "M") if one["name"] == "thread_name"
    }
    assert names == {
        (1, 1000): "role",
        (1, 1001): "micro-batch 1",
        (2, 2000): "role",
        (2, 2001): "micro-batch 1",
    }
    assert {(one["pid"], one["tid"]) for one in events(trace, "X")} == set(names)


@pytest.mark.parametrize(
    ("max_steps", "notes"),
    [
        (3, {"steps": 3, "steps_drawn": 3}),
        (2, {"steps": 3, "steps_drawn": 2, "note": "only the 2 steps that started before 0.700000 s are drawn"}),
        (0, {"steps": 3, "steps_drawn": 0, "note": "only the 0 steps that started before 0.000000 s are drawn"}),
    ],
)
def test_the_first_steps_of_the_run_are_kept(max_steps, notes):
    trace = render_timeline(RESULT, max_steps=max_steps)
    assert orjson.loads(trace)["otherData"] == notes
    assert sum(event["tid"] % 1000 == 1 for event in events(trace, "X")) == notes["steps_drawn"]


@given(st.lists(st.tuples(st.floats(0, 1e5), st.integers(1, 300), st.integers(1, 30)), min_size=1, max_size=15))
def test_slices_of_a_thread_never_overlap(arrivals):
    threads = defaultdict(list)
    for event in events(render_timeline(serve(arrivals)), "X"):
        start_ns = round(event["ts"] * 1e3)
        threads[event["pid"], event["tid"]].append((start_ns, start_ns + round(event["dur"] * 1e3)))
    for slices in threads.values():
        slices.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(slices))
