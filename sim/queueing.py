"""Queueing formulas for a prefill instance: M/D/1, and how parallelism changes it (DistServe, section 3.1).

Prompts of one length arrive as a Poisson process at `request_rate`, are served first come first served and
are not batched; one GPU takes `service_s` for each. At or above the rate an instance can serve, the mean
wait has no limit and is infinite.
"""

from collections.abc import Sequence
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cluster.errors import ConfigError

FloatArray = npt.NDArray[np.float64]

_NUM_BATCHES = 20


def md1_wait_s(service_s: float, request_rate: float) -> float:
    """Mean wait before service in an M/D/1 queue: R D^2 / (2 (1 - R D))."""
    _check(service_s, request_rate)
    load = request_rate * service_s
    return service_s * load / (2 * (1 - load)) if load < 1 else inf


def single_ttft_s(service_s: float, request_rate: float) -> float:
    """Mean TTFT on one GPU: D + R D^2 / (2 (1 - R D)) (DistServe, equation 1)."""
    return service_s + md1_wait_s(service_s, request_rate)


def pipeline_ttft_s(service_s: float, request_rate: float, *, stages: int = 2) -> float:
    """Mean TTFT with inter-operator parallelism: D + R D^2 / (4 (2 - R D)) for two stages (equation 2).

    A prompt still takes D, but the next one enters after D / stages. Stages of equal length pass prompts on
    without a wait, so all waiting is that of the first: an M/D/1 queue with service D / stages.
    """
    if stages < 1:
        raise ConfigError(f"stages is {stages}; it must be at least 1")
    return service_s + md1_wait_s(service_s / stages, request_rate)


def tensor_ttft_s(service_s: float, request_rate: float, *, speedup: float) -> float:
    """Mean TTFT with intra-operator parallelism: D/K + R D^2 / (2 K (K - R D)) (equation 3).

    `speedup` is K: how many times faster the GPUs together are than one, below their number because they
    communicate.
    """
    _check_speedup(speedup)
    return single_ttft_s(service_s / speedup, request_rate)


def crossing_rate(service_s: float, *, speedup: float, degree: int = 2) -> float:
    """The rate above which a pipeline of `degree` GPUs has a lower mean TTFT than tensor parallelism over them.

    Infinite when `speedup` reaches `degree`, for then the pipeline never wins; 0 without speed-up. With
    r = R D, n = degree and K = speedup, equations 2 and 3 are equal at the smaller root of
    r^2 - (n + K) r + 2 n^2 K (K - 1) / (n - K + 2 n (K - 1)) = 0.
    """
    _check(service_s, 0.0)
    _check_speedup(speedup)
    if speedup >= degree:
        return inf
    total = degree + speedup
    product = 2 * degree**2 * speedup * (speedup - 1) / (degree - speedup + 2 * degree * (speedup - 1))
    return (total - sqrt(total**2 - 4 * product)) / 2 / service_s


class Estimate(NamedTuple):
    """A simulated mean and its standard error."""

    mean: float
    error: float


def simulated_ttft_s(
    stages_s: Sequence[float], request_rate: float, num_requests: int, rng: np.random.Generator
) -> Estimate:
    """Mean TTFT of Poisson arrivals that pass servers in a row, each with a fixed service time and a queue.

    The error is that of batch means, because the waits of neighbours are alike.
    """
    if num_requests < _NUM_BATCHES:
        raise ConfigError(f"num_requests is {num_requests}; an error estimate needs at least {_NUM_BATCHES}")
    arrival_s = np.cumsum(rng.standard_exponential(num_requests)) / request_rate
    time_s = arrival_s
    for service_s in stages_s:
        time_s = departures_s(time_s, np.full(num_requests, service_s))
    means = [batch.mean() for batch in np.array_split(time_s - arrival_s, _NUM_BATCHES)]
    return Estimate(float(np.mean(means)), float(np.std(means, ddof=1) / sqrt(_NUM_BATCHES)))


def departures_s(arrival_s: FloatArray, service_s: FloatArray) -> FloatArray:
    """When each customer leaves a first come first served server.

    Lindley's recursion d[i] = max(a[i], d[i-1]) + s[i], solved: with C[i] the work of all up to and with i,
    d[i] = C[i] + max over j <= i of (a[j] - C[j-1]).
    """
    work_s = np.cumsum(service_s)
    left: FloatArray = work_s + np.maximum.accumulate(arrival_s - (work_s - service_s))
    return left


def _check(service_s: float, request_rate: float) -> None:
    if not 0 < service_s < inf:
        raise ConfigError(f"service_s is {service_s}; it must be a finite number above 0")
    if not 0 <= request_rate < inf:
        raise ConfigError(f"request_rate is {request_rate}; it must be a finite number and not negative")


def _check_speedup(speedup: float) -> None:
    if not 1 <= speedup < inf:
        raise ConfigError(f"speedup is {speedup}; it must be a finite number of at least 1")
