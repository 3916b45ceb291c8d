"""From a workload spec to the requests of a run: load or generate, select, rescale, fit."""

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cluster.errors import CapacityError, ConfigError
from workload.readers import read_trace
from workload.spec import WorkloadSpec
from workload.synthetic import generate, resample
from workload.trace import Trace


def load_workload(spec: WorkloadSpec, *, seed: int, base_dir: Path = Path()) -> Trace:
    """The requests of `spec`: trace or phases, then the window, then the first so many, then the rate;
    or, with `resample`, as many as asked for drawn from those in the window.

    A relative trace path is taken from `base_dir`, by default the current folder; `seed` draws the phases. Raises TraceError for a bad
    file and ConfigError when no request is left.
    """
    if spec.trace is not None:
        trace = read_trace(
            base_dir / Path(spec.trace).expanduser(),
            trace_format=spec.trace_format,
            trace_unit=spec.trace_unit,
            skip_invalid=spec.skip_invalid,
        )
    elif spec.phases:
        trace = generate(spec.phases, np.random.default_rng(seed))
        if not len(trace):
            raise ConfigError("workload.phases give no request at all; raise their request_rate or duration_s")
    else:
        raise ConfigError("workload has neither a trace nor phases; give one of them")
    if spec.start_s is not None or spec.end_s is not None:
        start_s = 0.0 if spec.start_s is None else spec.start_s
        end_s = inf if spec.end_s is None else spec.end_s
        last_s = trace.arrival_s[-1]
        trace = trace.window(start_s, end_s)
        if not len(trace):
            raise ConfigError(
                f"workload.start_s {start_s:g} to end_s {end_s:g} holds no request of {trace.info.source}, "
                f"whose last arrives at {last_s:g} s; widen the window"
            )
    if spec.resample is not None:
        return _resampled(trace, spec, seed)
    if spec.num_requests is not None:
        trace = trace.head(spec.num_requests)
    if spec.request_rate is not None:
        trace = trace.at_rate(spec.request_rate)
    return trace


def _resampled(trace: Trace, spec: WorkloadSpec, seed: int) -> Trace:
    assert spec.resample is not None
    rate = spec.request_rate or trace.request_rate
    if rate is None:
        raise ConfigError(f"{trace.info.source} has no rate of its own to resample at; give workload.request_rate")
    num_requests = min(spec.resample, spec.num_requests or spec.resample)
    return resample(trace, num_requests, rate, np.random.default_rng(seed), max_total_tokens=spec.max_total_tokens)


def fit_lengths(
    trace: Trace, *, max_context: int, kv_capacity: int, on_too_long: str
) -> tuple[Trace, npt.NDArray[np.bool_], list[str]]:
    """Settle what becomes of requests with more than min(max_context, kv_capacity) tokens, prompt plus output.

    Gives the trace, which of its requests the run must reject, and sentences for the results. `on_too_long`:
    reject marks them; truncate cuts the output, down to 1 token, and then the prompt, so that none is left to
    mark; error raises CapacityError.
    """
    limit = min(max_context, kv_capacity)
    bound = "max_context" if max_context <= kv_capacity else "the KV pool"
    total = trace.prompt_tokens + trace.output_tokens
    too_long = total > limit
    num_long = int(np.count_nonzero(too_long))
    if not num_long:
        return trace, too_long, []
    what = f"{num_long} of {len(trace)} requests exceed the {limit} tokens of {bound}"
    if on_too_long == "reject":
        return trace, too_long, [f"{what} and are rejected"]
    if on_too_long == "error":
        first = int(np.argmax(too_long))
        raise CapacityError(
            f"request {first} of {trace.info.source} needs {trace.prompt_tokens[first]} + "
            f"{trace.output_tokens[first]} = {total[first]} tokens, but {bound} has {limit}, as {num_long} of "
            f"{len(trace)} requests do; set workload.on_too_long to reject or truncate, or give them room"
        )
    return _truncated(trace, limit), np.zeros_like(too_long), [f"{what} and are cut to fit"]


def _truncated(trace: Trace, limit: int) -> Trace:
    if limit < 2:
        raise CapacityError(f"requests cannot be truncated to {limit} token(s); a prompt and an output need 2")
    output = np.clip(limit - trace.prompt_tokens, np.minimum(trace.output_tokens, 1), trace.output_tokens)
    prompt = np.minimum(trace.prompt_tokens, limit - output)
    hashes = trace.prefix_hashes
    if hashes is not None and trace.prefix_block_size is not None:
        num_blocks = -(-prompt // trace.prefix_block_size)
        hashes = [ids[:keep] for ids, keep in zip(hashes, num_blocks.tolist(), strict=True)]
    return replace(trace, prompt_tokens=prompt, output_tokens=output, prefix_hashes=hashes)
