"""Synthetic traces: phases of random arrivals, and new arrivals for the lengths of a real trace."""

from collections.abc import Sequence
from math import inf, log, sqrt

import numpy as np

from cluster.errors import ConfigError
from workload.spec import Lengths, Phase
from workload.trace import MAX_TOKENS, FloatArray, IntArray, Trace, TraceInfo


def generate(phases: Sequence[Phase], rng: np.random.Generator) -> Trace:
    """Phases back to back, from time 0.

    Arrivals, prompt lengths and output lengths of each phase have streams of their own, so the same seed at
    another rate gives the same gaps, scaled, and the same lengths in the same order.
    """
    arrivals: list[FloatArray] = []
    prompts: list[IntArray] = []
    outputs: list[IntArray] = []
    start_s = 0.0
    for phase in phases:
        arrival_rng, prompt_rng, output_rng = rng.spawn(3)
        times = _arrivals(phase, arrival_rng)
        arrivals.append(start_s + times)
        prompts.append(_lengths(phase.prompt, len(times), prompt_rng))
        outputs.append(_lengths(phase.output, len(times), output_rng))
        start_s += phase.duration_s
    return _trace(
        f"phases {', '.join(phase.name for phase in phases)}",
        np.concatenate([np.empty(0), *arrivals]),
        np.concatenate([np.empty(0, np.int64), *prompts]),
        np.concatenate([np.empty(0, np.int64), *outputs]),
    )


def resample(
    trace: Trace,
    num_requests: int,
    request_rate: float,
    rng: np.random.Generator,
    *,
    max_total_tokens: int | None = None,
) -> Trace:
    """Poisson arrivals whose (prompt, output) pairs are drawn from `trace` with replacement.

    With `max_total_tokens`, only from its rows of at most so many tokens, prompt plus output. Prefix hashes
    are dropped: a row drawn twice is not a prompt sent twice. Raises ConfigError when no row is left.
    """
    if num_requests < 1:
        raise ConfigError(f"num_requests is {num_requests}; it must be at least 1")
    if not 0 < request_rate < inf:
        raise ConfigError(f"request_rate is {request_rate}; it must be a finite number above 0")
    totals = trace.prompt_tokens + trace.output_tokens
    rows = np.arange(len(trace)) if max_total_tokens is None else np.flatnonzero(totals <= max_total_tokens)
    if not len(rows):
        shortest = f"its shortest has {totals.min()}" if len(totals) else "it is empty"
        raise ConfigError(
            f"max_total_tokens {max_total_tokens} leaves no request of {trace.info.source}: {shortest}; raise it"
        )
    arrival_rng, row_rng = rng.spawn(2)
    drawn = rows[row_rng.integers(len(rows), size=num_requests)]
    arrival_s = np.cumsum(arrival_rng.standard_exponential(num_requests)) / request_rate
    return _trace(f"lengths of {trace.info.source}", arrival_s, trace.prompt_tokens[drawn], trace.output_tokens[drawn])


def _trace(source: str, arrival_s: FloatArray, prompt: IntArray, output: IntArray) -> Trace:
    info = TraceInfo(source=source, format="synthetic", unit="s", num_rows=len(arrival_s))
    return Trace(arrival_s, prompt, output, info)


def _arrivals(phase: Phase, rng: np.random.Generator) -> FloatArray:
    """Times in [0, duration). Constant arrivals start at 0, random ones with a gap."""
    expected = phase.request_rate * phase.duration_s
    if not expected:
        return np.empty(0)
    if phase.arrivals == "constant":
        # Rounded first, so that 0.1 requests/s for 30 s are 3 and not the 4 of ceil(3.0000000000000004).
        return np.arange(np.ceil(np.round(expected, 9))) / phase.request_rate
    gaps: list[FloatArray] = []
    drawn = 0.0
    while drawn < expected:
        left = expected - drawn
        gaps.append(_unit_gaps(phase, int(left + 4 * sqrt(left)) + 16, rng))
        drawn += float(gaps[-1].sum())
    # One sum over all gaps: how they were portioned, which depends on the rate, leaves no trace in the times.
    times = np.cumsum(np.concatenate(gaps))
    return times[: np.searchsorted(times, expected)] / phase.request_rate


def _unit_gaps(phase: Phase, size: int, rng: np.random.Generator) -> FloatArray:
    """Gaps of mean 1; gamma gaps have coefficient of variation 1 / sqrt(burstiness)."""
    if phase.arrivals == "gamma":
        return rng.standard_gamma(phase.burstiness, size) / phase.burstiness
    return rng.standard_exponential(size)


def _lengths(lengths: Lengths, size: int, rng: np.random.Generator) -> IntArray:
    if lengths.kind == "fixed":
        return np.full(size, min(round(lengths.mean), MAX_TOKENS), dtype=np.int64)
    longest = min(lengths.maximum or MAX_TOKENS, MAX_TOKENS)
    # The mean of a lognormal is exp(mu + sigma^2 / 2). Cut as logarithms, for a wide sigma overflows exp.
    mu = log(lengths.mean) - lengths.sigma**2 / 2
    logarithms = np.minimum(mu + lengths.sigma * rng.standard_normal(size), log(longest))
    return np.maximum(np.rint(np.exp(logarithms)), 1.0).astype(np.int64)
