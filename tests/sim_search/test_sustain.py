"""Verdicts on runs whose truth is known: a server with a fixed service time, at any load."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from cluster.request import Status
from metrics.records import WIDTH, Column
from metrics.slo import SloSpec
from sim.goodput import find_goodput
from sim.queueing import departures_s
from sim.sustain import Sampling, judge, stalled, sustains

SERVICE_S = 0.1
LOOSE = SloSpec(ttft_ms=15_000)


def md1(rate, num_requests, *, seed=0, gaps="poisson"):
    """Records of requests with one output token through one server of 0.1 s."""
    rng = np.random.default_rng(seed)
    unit = rng.standard_exponential(num_requests) if gaps == "poisson" else np.ones(num_requests)
    arrival_s = np.cumsum(unit) / rate
    end_s = departures_s(arrival_s, np.full(num_requests, SERVICE_S))
    records = np.full((num_requests, WIDTH), np.nan)
    records[:, Column.REQUEST_ID] = np.arange(num_requests)
    records[:, Column.STATUS] = Status.FINISHED
    records[:, Column.ARRIVAL_S] = arrival_s
    records[:, Column.OUTPUT_TOKENS] = 1
    records[:, Column.PREFILL_START_S] = end_s - SERVICE_S
    records[:, Column.FIRST_TOKEN_S] = records[:, Column.FINISHED_S] = end_s
    return records


def verdict(rate, num_requests, slo=LOOSE, **more):
    return judge(md1(rate, num_requests, **more), slo, drift_limit=0.02)


@pytest.mark.parametrize("rate", [10.5, 11.0, 14.0])
def test_an_overload_that_ends_before_it_misses_a_loose_slo(rate):
    """400 requests, all good, of a server that 10 requests/s fill (lecture, section 5.1)."""
    short = verdict(rate, 400)
    assert short.attainment == 1.0
    assert not sustains(lambda count: verdict(rate, count), Sampling(400, 3200)).passed


def test_the_search_is_not_caught_by_it():
    def naive(rate):
        return verdict(rate, 400, LOOSE).attainment >= 0.9

    assert naive(13.0)
    found = find_goodput(lambda rate: sustains(lambda n: verdict(rate, n), Sampling(400, 3200)), hint=1.0)
    assert 9.0 < found.request_rate < 10.0


@given(st.floats(0.1, 0.85), st.integers(0, 1000))
def test_a_steady_queue_is_let_pass(load, seed):
    """Up to a load at which 8,000 requests are many against how slowly a queue forgets."""
    result = sustains(lambda n: verdict(load / SERVICE_S, n, seed=seed), Sampling(1000, 8000))
    assert (result.passed, result.reason) == (True, "")


@given(st.floats(1.08, 20.0), st.integers(0, 1000))
def test_an_overload_is_turned_away(load, seed):
    assert not sustains(lambda n: verdict(load / SERVICE_S, n, seed=seed), Sampling(400, 8000)).passed


@given(st.floats(1.2, 5.0))
def test_drift_is_the_share_that_piles_up(load):
    """Evenly spaced, 10 requests/s are served and the rest waits."""
    assert verdict(load / SERVICE_S, 4000, gaps="even").drift == pytest.approx(1 - 1 / load, abs=0.02)


def test_figures_by_hand():
    """Arrivals 50 ms apart: request i, counted from 0, waits 50 ms times i."""
    result = verdict(20.0, 100, SloSpec(ttft_ms=1100, e2e_ms=600, attainment=0.5), gaps="even")
    assert result.attainment_by_slo == {"TTFT": 0.21, "E2E": 0.11}
    assert result.attainment == 0.11
    assert result.delay_s == pytest.approx(0.05 * 49.5)
    assert result.reason == "11.0 % of requests are good"
    assert (result.passed, result.sure, result.num_requests) == (False, True, 100)


@pytest.mark.parametrize(
    ("rate", "slo", "reason"),
    [
        (9.0, SloSpec(), ""),
        (9.0, SloSpec(ttft_ms=99), "of requests are good"),
        (11.0, SloSpec(), "half of the prompts wait longer than"),
        (10.3, SloSpec(), "of arrivals pile up"),
    ],
)
def test_reasons(rate, slo, reason):
    assert reason in verdict(rate, 1200, slo, gaps="even").reason


def test_rejected_requests_are_bad():
    records = md1(1.0, 100)
    records[:20, Column.STATUS] = Status.REJECTED
    result = judge(records, LOOSE, drift_limit=0.02)
    assert (result.attainment, result.passed) == (0.8, False)


FILLED = {"filling": 0.8, "empty": 0.1}
"""A tenth full takes ten times the requests, and a tenth more."""


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ({10: "fail"}, [10]),
        ({10: "pass", 40: "pass"}, [10, 40]),
        ({10: "close", 40: "fail"}, [10, 40]),
        ({10: "close", 40: "close", 80: "pass"}, [10, 40, 80]),
        ({10: "close", 40: "close", 80: "close", 100: "close"}, [10, 40, 80, 100]),
        ({10: "close", 40: "filling", 80: "filling", 160: "close"}, [10, 40, 80, 160]),
        ({10: "close", 40: "empty", 440: "filling", 880: "pass"}, [10, 40, 440, 880]),
        ({10: "empty", 110: "pass"}, [10, 110]),
    ],
)
def test_as_many_requests_as_it_takes(answers, asked):
    calls = []

    def run(count):
        calls.append(count)
        answer = answers[count]
        made = stalled("", count)
        return replace(made, passed=answer != "fail", sure=answer in ("fail", "pass"), filled=FILLED.get(answer, 2.0))

    sustains(run, Sampling(40, 100))
    assert calls == asked


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Sampling(0), "num_requests is 0; it must be at least 1"),
        (lambda: Sampling(100, 50), "max_requests 50 is below num_requests 100"),
        (lambda: judge(np.empty((0, WIDTH)), LOOSE, drift_limit=0.02), "a run without requests says nothing"),
    ],
)
def test_errors(call, sentence):
    with pytest.raises(ConfigError, match=sentence):
        call()
