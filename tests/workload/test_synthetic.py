from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import ConfigError
from workload.spec import Lengths, Phase
from workload.synthetic import generate, resample
from workload.trace import Trace, TraceInfo

FIXED = Lengths(mean=100, kind="fixed")


def phase(**changes):
    base = Phase(duration_s=100.0, request_rate=10.0, prompt=Lengths(mean=1000), output=Lengths(mean=200))
    return replace(base, **changes)


def run(*phases, seed=0):
    return generate(phases, np.random.default_rng(seed))


PHASES = st.builds(
    phase,
    duration_s=st.floats(0.1, 50),
    request_rate=st.floats(0, 20),
    arrivals=st.sampled_from(["poisson", "gamma", "constant"]),
    burstiness=st.floats(0.2, 4),
)


@settings(deadline=None)
@given(phases=st.lists(PHASES, min_size=1, max_size=3), seed=st.integers(0, 2**32))
def test_one_seed_one_trace_and_every_arrival_in_its_phase(phases, seed):
    first, second = run(*phases, seed=seed), run(*phases, seed=seed)
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    assert np.all(first.arrival_s >= 0)
    assert np.all(first.arrival_s <= sum(each.duration_s for each in phases))
    assert np.all(first.prompt_tokens >= 1)


@pytest.mark.parametrize("arrivals", ["poisson", "gamma"])
def test_another_rate_scales_the_same_gaps_and_keeps_the_lengths(arrivals):
    slow = run(phase(arrivals=arrivals, burstiness=0.5, request_rate=0.25, duration_s=400.0))
    fast = run(phase(arrivals=arrivals, burstiness=0.5, request_rate=32.0))
    n = len(slow)
    assert 0 < n < len(fast)
    assert (fast.arrival_s[:n] * 32.0).tolist() == (slow.arrival_s * 0.25).tolist()
    assert fast.prompt_tokens[:n].tolist() == slow.prompt_tokens.tolist()
    assert fast.output_tokens[:n].tolist() == slow.output_tokens.tolist()


def test_lengths_and_arrivals_have_streams_of_their_own():
    base, longer = run(phase()), run(phase(prompt=Lengths(mean=5)))
    assert base.arrival_s.tolist() == longer.arrival_s.tolist()
    assert base.output_tokens.tolist() == longer.output_tokens.tolist()
    assert base.prompt_tokens.tolist() != longer.prompt_tokens.tolist()


def test_a_later_phase_leaves_an_earlier_one_alone():
    one, two = run(phase()), run(phase(), phase(request_rate=3.0))
    assert two.window(0.0, 100.0).arrival_s.tolist() == one.arrival_s.tolist()
    assert two.window(100.0, 200.0).request_rate == pytest.approx(3.0, rel=0.2)


@pytest.mark.parametrize(
    ("request_rate", "duration_s", "arrivals"),
    [
        (2.0, 2.0, [0.0, 0.5, 1.0, 1.5]),
        (0.1, 30.0, [0.0, 10.0, 20.0]),
        (0.7, 10.0, [n / 0.7 for n in range(7)]),
        (0.01, 10.0, [0.0]),
        (0.0, 10.0, []),
    ],
)
def test_constant_arrivals(request_rate, duration_s, arrivals):
    trace = run(phase(arrivals="constant", request_rate=request_rate, duration_s=duration_s, prompt=FIXED))
    assert trace.arrival_s.tolist() == arrivals
    assert trace.prompt_tokens.tolist() == [100] * len(arrivals)


@pytest.mark.parametrize(
    ("arrivals", "burstiness", "variation"),
    [("poisson", 1.0, 1.0), ("gamma", 1.0, 1.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5)],
)
def test_mean_rate_and_variation_of_the_gaps(arrivals, burstiness, variation):
    trace = run(phase(arrivals=arrivals, burstiness=burstiness, duration_s=4000.0, prompt=FIXED, output=FIXED))
    gaps = np.diff(trace.arrival_s)
    assert len(trace) == pytest.approx(40_000, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03)


@pytest.mark.parametrize(
    ("lengths", "mean", "log_deviation"),
    [(Lengths(mean=1000, sigma=0.6), 1000, 0.6), (Lengths(mean=5000, sigma=0.0), 5000, 0.0)],
)
def test_lognormal_lengths_have_the_mean_and_sigma_given(lengths, mean, log_deviation):
    tokens = run(phase(duration_s=4000.0, prompt=lengths)).prompt_tokens
    assert tokens.mean() == pytest.approx(mean, rel=0.01)
    assert np.log(tokens).std() == pytest.approx(log_deviation, rel=0.02)


def test_lengths_stay_in_range():
    trace = run(phase(prompt=Lengths(mean=1000, sigma=3.0, maximum=1500), output=Lengths(mean=1, sigma=2.0)))
    assert (trace.prompt_tokens.min(), trace.prompt_tokens.max()) == (1, 1500)
    assert trace.output_tokens.min() == 1


SOURCE = Trace(
    np.arange(4.0),
    np.array([10, 20, 30, 40]),
    np.array([1, 2, 3, 400]),
    TraceInfo(source="t.csv", format="mooncake", unit="ms", num_rows=4),
    [(1,), (2,), (3,), (4,)],
    512,
)


def test_resample_draws_pairs_and_no_prefixes():
    trace = resample(SOURCE, 20_000, 2.5, np.random.default_rng(1), max_total_tokens=33)
    pairs, counts = np.unique(np.stack([trace.prompt_tokens, trace.output_tokens]), axis=1, return_counts=True)
    assert pairs.T.tolist() == [[10, 1], [20, 2], [30, 3]]
    assert counts == pytest.approx(20_000 / 3, rel=0.05)
    assert trace.request_rate == pytest.approx(2.5, rel=0.03)
    assert trace.prefix_hashes is None


def test_resample_at_another_rate_scales_the_same_draw():
    slow, fast = (resample(SOURCE, 50, rate, np.random.default_rng(1)) for rate in (0.5, 4.0))
    assert (slow.arrival_s * 0.5).tolist() == (fast.arrival_s * 4.0).tolist()
    assert slow.prompt_tokens.tolist() == fast.prompt_tokens.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5, 1.0, 10), r"max_total_tokens 10 leaves no request of t\.csv: its shortest has 11; raise it"),
        ((0, 1.0, None), "num_requests is 0"),
        ((5, 0.0, None), "request_rate is 0.0"),
    ],
)
def test_resample_refuses(arguments, message):
    num_requests, rate, limit = arguments
    with pytest.raises(ConfigError, match=message):
        resample(SOURCE, num_requests, rate, np.random.default_rng(0), max_total_tokens=limit)
