"""The queueing formulas: the lecture's numbers, limits, and each against Lindley's recursion."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from sim.queueing import (
    crossing_rate,
    departures_s,
    md1_wait_s,
    pipeline_ttft_s,
    simulated_ttft_s,
    single_ttft_s,
    tensor_ttft_s,
)

SERVICES = st.floats(1e-3, 10)


@pytest.mark.parametrize(
    ("rate", "single", "pipeline", "tensor"),
    [(0, 0.2, 0.2, 0.125), (3, 0.35, 0.2 + 0.12 / 5.6, 0.1625), (6, inf, 0.275, 0.3125), (8, inf, 0.4, inf)],
)
def test_exercise_4(rate, single, pipeline, tensor):
    assert single_ttft_s(0.2, rate) == pytest.approx(single)
    assert pipeline_ttft_s(0.2, rate) == pytest.approx(pipeline)
    assert tensor_ttft_s(0.2, rate, speedup=1.6) == pytest.approx(tensor)


def test_pipeline_at_8_per_second():
    assert pipeline_ttft_s(0.1, 8) == pytest.approx(0.1 + 0.08 / 4.8)
    assert round(1e3 * pipeline_ttft_s(0.1, 8), 2) == 116.67


@pytest.mark.parametrize(("speedup", "after", "before"), [(1.5, 8, 11), (1.7, 11, 13), (1.9, 13, 19)])
def test_where_the_pipeline_overtakes(speedup, after, before):
    assert after < crossing_rate(0.1, speedup=speedup) < before
    assert tensor_ttft_s(0.1, after, speedup=speedup) < pipeline_ttft_s(0.1, after)
    assert tensor_ttft_s(0.1, before, speedup=speedup) > pipeline_ttft_s(0.1, before)


@given(SERVICES, st.integers(2, 8), st.floats(0.01, 0.99))
def test_the_two_are_equal_at_the_crossing(service, degree, share):
    speedup = 1 + share * (degree - 1)
    rate = crossing_rate(service, speedup=speedup, degree=degree)
    tensor = tensor_ttft_s(service, rate, speedup=speedup)
    assert 0 < rate < speedup / service
    assert tensor == pytest.approx(pipeline_ttft_s(service, rate, stages=degree), rel=1e-6)


def test_no_crossing():
    assert crossing_rate(0.1, speedup=2.0) == inf
    assert crossing_rate(0.1, speedup=1.0) == 0
    assert crossing_rate(0.1, speedup=2.0, degree=4) < inf


@given(SERVICES, st.floats(0, 3))
def test_a_wait_is_never_negative_and_infinite_from_full_load_on(service, load):
    wait = md1_wait_s(service, load / service)
    assert wait >= 0
    assert (wait == inf) == (load / service * service >= 1)


@given(SERVICES, st.floats(0.1, 0.9), st.integers(1, 8))
def test_one_stage_is_one_gpu_and_full_speedup_halves_everything(service, load, degree):
    rate = load / service
    assert pipeline_ttft_s(service, rate, stages=1) == single_ttft_s(service, rate)
    assert tensor_ttft_s(service, degree * rate, speedup=degree) == pytest.approx(single_ttft_s(service, rate) / degree)


@pytest.mark.parametrize(
    ("stages", "rate", "expected"),
    [
        ([0.2], 3, single_ttft_s(0.2, 3)),
        ([0.1], 8, single_ttft_s(0.1, 8)),
        ([0.05, 0.05], 8, pipeline_ttft_s(0.1, 8)),
        ([0.1, 0.1], 6, pipeline_ttft_s(0.2, 6)),
        ([0.025] * 4, 30, pipeline_ttft_s(0.1, 30, stages=4)),
        ([0.2 / 1.6], 3, tensor_ttft_s(0.2, 3, speedup=1.6)),
        ([0.2 / 1.6], 6, tensor_ttft_s(0.2, 6, speedup=1.6)),
    ],
)
def test_lindley_agrees(stages, rate, expected):
    mean, error = simulated_ttft_s(stages, rate, 400_000, np.random.default_rng(1))
    assert error < 0.01 * expected
    assert abs(mean - expected) < 3 * error


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=30))
def test_departures_step_by_step(customers):
    arrivals, services = np.cumsum([gap for gap, _ in customers]), np.array([service for _, service in customers])
    expected, last = [], 0.0
    for arrival, service in zip(arrivals, services, strict=True):
        last = max(arrival, last) + service
        expected.append(last)
    assert departures_s(arrivals, services) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: md1_wait_s(0.0, 1), "service_s is 0.0; it must be a finite number above 0"),
        (lambda: single_ttft_s(0.1, -1), "request_rate is -1; it must be a finite number and not negative"),
        (lambda: tensor_ttft_s(0.1, 1, speedup=0.5), "speedup is 0.5; it must be a finite number of at least 1"),
        (lambda: pipeline_ttft_s(0.1, 1, stages=0), "stages is 0; it must be at least 1"),
        (lambda: simulated_ttft_s([1], 0.5, 5, np.random.default_rng(0)), "num_requests is 5; an error estimate needs"),
    ],
)
def test_errors(call, sentence):
    with pytest.raises(ConfigError, match=sentence):
        call()
