import numpy as np
import pytest
from made_runs import COLOCATED, HANDED_OVER, records, run

from metrics.curves import Curves
from metrics.figure import CDF_Q
from metrics.gantt import MAX_ROWS, MAX_STEPS, Bars, gantt

RESULT = run(records(HANDED_OVER, COLOCATED))


def steps(*rows):
    """Step rows of (start, end, prefill tokens, decodes)."""
    return np.array(
        [[start, end, 1, decodes, 0, tokens, 0.0, end - start, 0.0] for start, end, tokens, decodes in rows]
    )


def test_latencies_by_share_of_samples():
    curves = Curves.of(RESULT).cdfs_ms
    assert list(curves) == [
        "Time to first token",
        "Inter-token latency",
        "Time per output token",
        "End-to-end latency",
    ]
    assert [(points[0], points[-1]) for points in curves.values()] == [
        pytest.approx(ends) for ends in [(100, 150), (40, 100), (50, 100), (200, 1150)]
    ]
    assert all(len(points) == len(CDF_Q) for points in curves.values())


def test_samples_are_summed_over_instances():
    curves = Curves.of(RESULT)
    assert curves.sample_s.tolist() == [1.0, 2.0]
    assert curves.queued_tokens.tolist() == [300, 100]
    assert curves.num_decoding.tolist() == [4, 8]
    assert curves.kv_use_percent.tolist() == [14.0, 55.0]  # 70 and 275 of 500 tokens


def test_a_bar_per_step_by_kind():
    log = steps((0, 1, 5, 0), (1, 2, 5, 3), (2, 4, 0, 3))
    bars = Bars.of(run(records(), step_logs=[[log], [log[:1]]]))
    assert bars.steps.tolist() == [[0, 0, 0, 0, 1], [0, 0, 2, 1, 2], [0, 0, 1, 2, 4], [1, 0, 0, 0, 1]]


def test_many_steps_that_touch_are_one_bar_per_kind():
    log = steps(*((at, at + 1, 0, 1) for at in range(MAX_STEPS)), (MAX_STEPS + 5, MAX_STEPS + 6, 0, 1))
    bars = Bars.of(run(records(), step_logs=[[log], []]))
    assert bars.steps.tolist() == [[0, 0, 1, 0, MAX_STEPS], [0, 0, 1, MAX_STEPS + 5, MAX_STEPS + 6]]


def test_too_many_steps_leave_the_roles():
    log = steps(*((2 * at, 2 * at + 1, 0, 1) for at in range(MAX_STEPS + 1)))
    bars = Bars.of(run(records(), step_logs=[[log], []]))
    assert bars.steps is None
    few = Bars.of(run(records(), step_logs=[[log[:1]], []]))
    for runs in ([("", bars)], [("few", few), ("many", bars)]):
        traces = gantt(runs)["data"]
        assert {(one["name"], one["line"]["width"]) for one in traces} == {
            ("prefill", 16),
            ("decode", 16),
            ("not serving", 16),
        }


def test_a_row_per_instance_of_every_run():
    bars = Bars.of(run(records(), step_logs=[[steps((0, 1, 5, 0))], [steps((1, 3, 0, 2))]]))
    figure = gantt([("first", bars), ("second", bars)])
    assert figure["layout"]["yaxis"]["ticktext"] == ["first · zero", "first · one", "second · zero", "second · one"]
    (decode,) = (one for one in figure["data"] if (one["name"], one["line"]["width"]) == ("decode", 14))
    assert (decode["x"], decode["y"]) == ([1.0, 3.0, None, 1.0, 3.0, None], [1.0, 1.0, None, 3.0, 3.0, None])
    assert sorted(one["name"] for one in figure["data"] if one["showlegend"]) == ["decode", "not serving", "prefill"]


def test_micro_batches_share_a_row():
    bars = Bars.of(run(records(), step_logs=[[steps((0, 1, 0, 2)), steps((0.5, 1.5, 0, 2))], []]))
    (decode,) = (one for one in gantt([("", bars)])["data"] if (one["name"], one["line"]["width"]) == ("decode", 7))
    assert decode["y"] == [-0.125, -0.125, None, 0.125, 0.125, None]


def test_too_many_rows_are_no_figure():
    bars = Bars.of(RESULT)
    assert gantt([(str(index), bars) for index in range(MAX_ROWS // 2)]) is not None
    assert gantt([(str(index), bars) for index in range(MAX_ROWS // 2 + 1)]) is None
