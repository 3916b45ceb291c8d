"""What the studies serve: a bundled model under one kind of traffic, in variants, and the goodput of each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cluster.errors import UserError
from scenario.loading import load_scenario
from scenario.spec import InstanceCounts, Scenario
from sim.capacity import capacity_of
from sim.placement.halves import decode_alone, first_tokens_only, prefill_alone
from sim.probe import Probe
from sim.sustain import Sampling
from workload.spec import Lengths

MAX_BATCH = 1024
"""Sequences at once: memory and SLOs are to be the limit."""
SAMPLING = Sampling(num_requests=500, max_requests=2000)
TOLERANCE = 0.02

Batching = tuple[str, int | None]
"""A colocated policy, and its token budget."""
LECTURE_BATCHINGS: tuple[Batching, ...] = (("prefill_first", None), ("mixed_batch", None), ("chunked_prefill", 512))
"""Those the lecture compares disaggregation with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Poisson arrivals of prompts and outputs with these mean lengths; lognormal, or `fixed`."""

    name: str
    prompt: float
    output: float
    sigma: float = 0.6
    output_sigma: float | None = None
    fixed: bool = False

    def lengths(self, longest: int) -> tuple[Lengths, Lengths]:
        """Of prompts and outputs; prompts leave room for an output of mean length in `longest` tokens."""
        kind = "fixed" if self.fixed else "lognormal"
        output_sigma = self.sigma if self.output_sigma is None else self.output_sigma
        return (
            Lengths(mean=self.prompt, kind=kind, sigma=self.sigma, maximum=longest - int(self.output)),
            Lengths(mean=self.output, kind=kind, sigma=output_sigma),
        )


# Means of DistServe's three datasets: ShareGPT, HumanEval and LongBench (Zhong et al., OSDI 2024, section 6.1).
CHAT = Traffic(name="chat", prompt=755, output=200)
CODE = Traffic(name="code completion", prompt=171, output=98)
SUMMARISATION = Traffic(name="summarisation", prompt=1738, output=91, sigma=0.4)


@dataclass(frozen=True, slots=True)
class Task:
    """Search the goodput of a scenario as a whole, or of one of its prefill or decode instances alone."""

    scenario: Scenario
    part: Literal["whole", "prefill", "decode"] = "whole"


@dataclass(frozen=True, slots=True)
class Carried:
    """Requests/s; 0 where no rate is good enough. `limit` is what stands in the way of more, in words."""

    request_rate: float
    limit: str = ""


def serving(
    traffic: Traffic,
    *,
    model: str,
    gpu: str,
    link: str,
    ttft_ms: float | None,
    tpot_ms: float | None,
    tp: int = 1,
    pp: int = 1,
    longest: int | None = None,
    seed: int = 0,
) -> Scenario:
    """One colocated instance, to be varied. Prompts that are too long for the model, or for `longest` tokens with
    their output, are cut.
    """
    settings = {"model": model, "gpu": gpu, "link": link, "tp": tp, "pp": pp, "seed": seed}
    settings |= {"slo.ttft_ms": ttft_ms, "slo.tpot_ms": tpot_ms, "workload.on_too_long": "truncate"}
    base = load_scenario("colocated-8b", settings)
    prompt, output = traffic.lengths(longest or base.model.max_context)
    phase = replace(base.workload.phases[0], request_rate=10, duration_s=60, prompt=prompt, output=output)
    workload = replace(base.workload, num_requests=None, phases=[phase])
    return replace(base, workload=workload, max_context=longest, engine=replace(base.engine, max_batch=MAX_BATCH))


def colocated(scenario: Scenario, batching: Batching, count: int = 1) -> Scenario:
    engine = replace(scenario.engine, policy=batching[0], token_budget=batching[1])
    return replace(scenario, instances=InstanceCounts(mixed=count), engine=engine)


def apart(scenario: Scenario, prefill: int, decode: int) -> Scenario:
    """xPyD."""
    return replace(scenario, instances=InstanceCounts(prefill=prefill, decode=decode))


def batching_name(batching: Batching) -> str:
    return batching[0] if batching[1] is None else f"{batching[0]} {batching[1]}"


def split_name(split: Sequence[int]) -> str:
    return f"{split[0]}P{split[1]}D"


def search(task: Task) -> Carried:
    """The highest rate it sustains."""
    scenario, trim = task.scenario, None
    if task.part == "prefill":
        scenario, trim = prefill_alone(scenario), first_tokens_only
    elif task.part == "decode":
        scenario = decode_alone(scenario)
    try:
        found = capacity_of(
            Probe(scenario, sampling=SAMPLING, drift_limit=TOLERANCE, trim=trim), relative_tolerance=TOLERANCE
        )
    except UserError as error:
        return Carried(0.0, str(error))
    return Carried(found.goodput.request_rate or 0.0, found.limit)


def per_gpu(scenario: Scenario, carried: Carried) -> float:
    """Of a whole scenario."""
    return carried.request_rate / scenario.num_gpus
