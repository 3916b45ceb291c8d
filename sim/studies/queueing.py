"""A prefill instance as a queue: tensor parallelism wins while it is idle, a pipeline once it queues."""

from dataclasses import replace
from math import inf

import numpy as np

from metrics.figure import Figure, figure, line, line_style
from metrics.latency import ttft_s
from scenario.loading import load_scenario
from scenario.spec import InstanceCounts, Scenario
from sim.parallel import Mapper
from sim.queueing import crossing_rate, pipeline_ttft_s, simulated_ttft_s, single_ttft_s, tensor_ttft_s
from sim.studies.steps import Steps
from sim.studies.study import Claim, Study, StudyTable, printed, told
from sim.variants import run_scenario, with_phases
from workload.spec import Lengths

SERVICE_S = 0.1
NUM_REQUESTS = 200_000
CROSSINGS = {1.5: (8, 11), 1.7: (11, 13), 1.9: (13, inf)}
"""By speed-up K, requests/s between which the pipeline overtakes, as the lecture reads them off its table."""
SOURCE = "Lecture 7, section 3.2"
ENGINE = {"one GPU": (1, 1), "pipeline of two": (1, 2), "tensor parallel 2": (2, 1)}
"""(tp, pp) of OPT-13B's instances on A100."""
PROMPT = 512
NUM_SIMULATED = 20_000
LOADS = (0.3, 0.6, 0.8)
"""Shares of what one GPU can serve."""


def run(parallel: Mapper) -> Study:
    """The formulas against Lindley's recursion, and the simulated engine against the formulas."""
    engine = [_engine_scenario(tp, pp, load) for tp, pp in ENGINE.values() for load in LOADS]
    measured = dict(zip(((way, load) for way in ENGINE for load in LOADS), parallel(mean_ttft_s, engine), strict=True))
    simulated = simulated_ttft_s([SERVICE_S / 2] * 2, 8, NUM_REQUESTS, np.random.default_rng(0))
    worst = max(abs(measured[key] / _expected_s(*key) - 1) for key in measured)
    pipeline_ms = 1e3 * pipeline_ttft_s(SERVICE_S, 8)
    return Study(
        name="queueing",
        title="A prefill instance as a queue",
        method=(
            f"DistServe's equations 1 to 3 for prompts of one length that take {SERVICE_S} s on one GPU: on one GPU, in a "
            f"pipeline of two, or tensor parallel over two that are K times as fast; against Lindley's recursion over "
            f"{NUM_REQUESTS:,} requests. Then the engine that everything else here is simulated with, against the same "
            f"equations: OPT-13B on A100, prompts of {PROMPT} tokens, {NUM_SIMULATED:,} of them."
        ),
        claims=[
            printed(SOURCE, "a pipeline of two at 8 req/s: mean TTFT by equation 2", "116.67 ms", [pipeline_ms]),
            told(
                SOURCE,
                "the same by Lindley's recursion over 200,000 requests",
                "116.62 ms",
                f"{1e3 * simulated.mean:.2f} ms (standard error {1e3 * simulated.error:.2f})",
                holds=abs(simulated.mean - pipeline_ms / 1e3) < 3 * simulated.error,
            ),
            *(_crossing(speedup, *between) for speedup, between in CROSSINGS.items()),
            told(
                "DistServe, section 3.1",
                "the less speed-up tensor parallelism gives, the narrower the rates at which it wins",
                "narrower",
                ", ".join(f"K {k}: to {crossing_rate(SERVICE_S, speedup=k):.1f} req/s" for k in CROSSINGS),
                holds=sorted(CROSSINGS, key=lambda k: crossing_rate(SERVICE_S, speedup=k)) == sorted(CROSSINGS),
            ),
            told(
                "DistServe, figure 4",
                "tensor parallelism has the lower mean TTFT at low rates, the pipeline at high ones",
                "they cross",
                f"simulated: {_winner(measured, LOADS[0])} at {LOADS[0]:.0%} of one GPU's rate; by equation they "
                f"cross at {_engine_crossing():.0%}",
                holds=_winner(measured, LOADS[0]) == "tensor parallel 2" and _engine_crossing() < inf,
            ),
            told(
                "Baton",
                "the simulated engine's mean TTFT is that of the equations",
                "-",
                f"within {worst:.1%} in all {len(measured)} cases",
                holds=worst < 0.05,
            ),
        ],
        tables=[
            StudyTable(
                f"Mean TTFT by equation, ms, for prompts of {1e3 * SERVICE_S:.0f} ms",
                ("req/s", "one GPU", "pipeline of two", *(f"tensor parallel, K {k}" for k in CROSSINGS)),
                [_row(rate) for rate in (1, 2, 4, 6, 8, 9, 11, 13, 15, 17)],
                note="A dash where prompts arrive faster than they are served.",
            ),
            StudyTable(
                "Mean TTFT of the simulated engine (and by equation), ms",
                ("instance", *(f"{load:.0%} of one GPU's rate" for load in LOADS)),
                [
                    (way, *(f"{1e3 * measured[way, load]:.1f} ({1e3 * _expected_s(way, load):.1f})" for load in LOADS))
                    for way in ENGINE
                ],
            ),
        ],
        figures={"Mean TTFT of two GPUs": _figure()},
    )


def mean_ttft_s(scenario: Scenario) -> float:
    return float(np.mean(ttft_s(run_scenario(scenario).records)))


def _crossing(speedup: float, after: float, before: float) -> Claim:
    rate = crossing_rate(SERVICE_S, speedup=speedup)
    return told(
        SOURCE,
        f"K {speedup}: the pipeline overtakes tensor parallelism",
        f"between {after} and {before} req/s" if before < inf else f"not up to {after} req/s",
        f"at {rate:.2f} req/s",
        holds=after < rate < before,
    )


def _engine_scenario(tp: int, pp: int, load: float) -> Scenario:
    """Prompts of one token more, one after the other: nothing is batched and decode is over at once."""
    settings = {"model": "opt-13b", "gpu": "a100-80gb", "tp": tp, "pp": pp, "engine.prefill_batch_tokens": 1}
    base = load_scenario("steady-8b", {**settings, "link": "ideal"})
    prompt, output = Lengths(mean=PROMPT, kind="fixed"), Lengths(mean=1, kind="fixed")
    rate = load / _service_s()
    phase = replace(
        base.workload.phases[0], duration_s=NUM_SIMULATED / rate, request_rate=rate, prompt=prompt, output=output
    )
    return with_phases(replace(base, instances=InstanceCounts(prefill=1, decode=1)), [phase])


def _service_s(tp: int = 1) -> float:
    return Steps.of("opt-13b", "a100-80gb", tp=tp).prefill_s(PROMPT)


def _expected_s(way: str, load: float) -> float:
    rate = load / _service_s()
    tp, pp = ENGINE[way]
    if pp > 1:
        return pipeline_ttft_s(_service_s(), rate, stages=pp)
    return tensor_ttft_s(_service_s(), rate, speedup=_service_s() / _service_s(tp))


def _engine_crossing() -> float:
    """As a share of one GPU's rate."""
    return _service_s() * crossing_rate(_service_s(), speedup=_service_s() / _service_s(2))


def _winner(measured: dict[tuple[str, float], float], load: float) -> str:
    return min(ENGINE, key=lambda way: measured[way, load])


def _row(rate: float) -> tuple[str, ...]:
    times = [single_ttft_s(SERVICE_S, rate), pipeline_ttft_s(SERVICE_S, rate)]
    times += [tensor_ttft_s(SERVICE_S, rate, speedup=speedup) for speedup in CROSSINGS]
    return (str(rate), *(f"{1e3 * time:.1f}" if time < inf else "-" for time in times))


def _figure() -> Figure:
    lines = []
    pipeline = np.arange(0.25, 18.51, 0.25)
    lines.append(line(pipeline, _times_ms(pipeline, None), "pipeline", line_style(0)))
    for index, speedup in enumerate(CROSSINGS, start=1):
        rates = np.arange(0.25, 0.95 * speedup / SERVICE_S, 0.25)
        lines.append(line(rates, _times_ms(rates, speedup), f"tensor parallel, K {speedup}", line_style(index)))
    return figure(lines, "req/s", "mean TTFT, ms", height=340, yaxis={"range": [0, 320]})


def _times_ms(rates: "np.typing.NDArray[np.float64]", speedup: float | None) -> "np.typing.NDArray[np.float64]":
    return np.array(
        [
            1e3
            * (pipeline_ttft_s(SERVICE_S, rate) if speedup is None else tensor_ttft_s(SERVICE_S, rate, speedup=speedup))
            for rate in rates
        ]
    )
