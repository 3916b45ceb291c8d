"""The lecture's exercises 1 and 3 to 6, by the functions that everything else here uses; 2 is in the study lossless."""

from dataclasses import replace
from math import inf

import numpy as np

from cluster.link import LinkSpec
from cluster.model import ModelSpec
from cluster.step_log import StepRow
from metrics.figure import Figure, figure, line, line_style
from scenario.loading import load_scenario, load_spec
from scenario.spec import Scenario
from sim.parallel import Mapper
from sim.placement.plan import instances_for
from sim.queueing import pipeline_ttft_s, single_ttft_s, tensor_ttft_s
from sim.studies.steps import Steps
from sim.studies.study import Claim, Study, StudyTable, printed, told
from sim.variants import run_scenario, with_phases
from workload.spec import Lengths, Phase

ONE, THREE, FOUR, FIVE, SIX = (f"Lecture 7, exercise {number}" for number in (1, 3, 4, 5, 6))
DECODES = 300
PREFILL, DECODE, MIXED = (4, 7.7), (8, 86.0), (8, 11.4)
"""GPUs of an instance and the requests/s it carries, as exercise 6 gives them."""
RATES = (5, 30, 200)


def run(parallel: Mapper) -> Study:
    """All but the exercises without numbers."""
    fed = dict(zip((256, 512), parallel(prompt_tokens_per_step, [_budget(256), _budget(512)]), strict=True))
    return Study(
        name="exercises",
        title="The lecture's exercises",
        method=(
            "Exercise 1 by the cost model (Llama-3-8B on an H100), 3 by simulating 300 short prompts (of which a budget of "
            "256 lets no more than 256 decode) and then a long one, 4 by the queueing formulas, 5 by the size of KV, 6 by rounding up instances as a plan does."
        ),
        claims=[*_exercise_1(), *_exercise_3(fed), *_exercise_4(), *_exercise_5(), *_exercise_6()],
        tables=[
            StudyTable(
                "Exercise 6: GPUs needed",
                ("req/s", "prefill instances", "decode instances", "GPUs", "colocated instances", "GPUs "),
                [_rounding_row(rate) for rate in RATES],
            )
        ],
        figures={"Exercise 6: GPUs over what fractions of colocated instances would need": _rounding_figure()},
    )


def _exercise_1() -> list[Claim]:
    steps = Steps.of("llama-3-8b", "h100-sxm")
    base, free, bound, whole = (1e3 * steps.step_s(32, 1024, chunk) for chunk in (0, 256, 512, 4096))
    alone = 1e3 * steps.prefill_s(4096)
    num_steps = 4096 / 256
    return [
        printed(ONE, "32 decodes at context 1,024; with 256 prompt tokens", "7.70 ms; 7.72 ms", [base, free]),
        printed(ONE, "with 512 prompt tokens", "11.64 ms, 51 % more", [bound, 100 * (bound / base - 1)]),
        told(
            ONE,
            "the turning point is the ridge point",
            "between 256 and 512 tokens",
            f"{steps.cost.saturation_tokens()} tokens",
            holds=256 < steps.cost.saturation_tokens() < 512,
        ),
        printed(
            ONE,
            "4,096 tokens, 256 a step of 7.72 ms: steps, time, and alone at once",
            "16 steps, 124 ms, 89 ms",
            [num_steps, num_steps * round(free, 2), alone],
        ),
        printed(ONE, "all 4,096 tokens in one step with the decodes", "90 ms", [whole]),
    ]


def _exercise_3(fed: dict[int, float]) -> list[Claim]:
    return [
        printed(THREE, f"budget 256 beside {DECODES} decodes: prompt tokens a step", "0", [fed[256]]),
        printed(THREE, f"budget 512 beside {DECODES} decodes: prompt tokens a step", "212", [fed[512]]),
    ]


def _exercise_4() -> list[Claim]:
    def times(rate: float) -> tuple[float, float, float]:
        return single_ttft_s(0.2, rate), pipeline_ttft_s(0.2, rate), tensor_ttft_s(0.2, rate, speedup=1.6)

    single, *two = times(6)
    which = "one GPU, pipeline, tensor parallel"
    return [
        printed(FOUR, f"D 0.2 s, 3 req/s, K 1.6: mean TTFT of {which}", "0.35 s, 0.221 s, 0.163 s", _up(times(3))),
        told(
            FOUR,
            "6 req/s: one GPU",
            "unstable",
            "no limit" if single == inf else f"{single:.3f} s",
            holds=single == inf,
        ),
        printed(FOUR, "6 req/s: pipeline, tensor parallel", "0.275 s, 0.3125 s", two),
    ]


def _up(times: tuple[float, ...]) -> list[float]:
    """Rounded half up, as people do: 0.1625 is 0.163, where Python's formatting goes to the even digit."""
    return [time + 1e-9 for time in times]


def _exercise_5() -> list[Claim]:
    kv_bytes = load_spec(ModelSpec, "llama-3-70b").kv_bytes_per_token
    needed, port = 20 * 2000 * kv_bytes / 1e9, load_spec(LinkSpec, "infiniband-400").effective_bytes_s / 1e9
    return [
        printed(
            FIVE,
            "Llama-3-70B: KV of a token; of 20 prompts of 2,000 a second",
            "327,680 B; 13.1 GB/s",
            [kv_bytes, needed],
        ),
        printed(FIVE, "a 400 Gb/s port carries", "40 GB/s", [port]),
        told(FIVE, "of which that is", "about a third", f"{needed / port:.0%}", holds=0.3 < needed / port < 0.36),
        printed(FIVE, "with 8 times the KV (multi-head attention)", "105 GB/s", [8 * needed]),
    ]


def _exercise_6() -> list[Claim]:
    apart, together = {rate: _apart(rate)[-1] for rate in RATES}, {rate: _together(rate)[-1] for rate in RATES}
    ideal = 1 / (PREFILL[0] / PREFILL[1] + DECODE[0] / DECODE[1]), MIXED[1] / MIXED[0]
    return [
        printed(SIX, "ideal goodput per GPU: disaggregated, colocated", "1.63, 1.43", ideal),
        printed(
            SIX,
            "disaggregated above colocated by",
            "14 %",
            [100 * (ideal[0] / ideal[1] - 1)],
            reason=f"unrounded it is {ideal[0]:.3f} over {ideal[1]:.3f}; of the rounded 1.63 and 1.43 it would be 14",
        ),
        told(
            SIX,
            "at 5 req/s rounding costs disaggregation more GPUs",
            "more",
            f"{apart[5]} against {together[5]}",
            holds=apart[5] > together[5],
        ),
        told(SIX, "at 30 req/s they tie", "equal", f"{apart[30]} and {together[30]}", holds=apart[30] == together[30]),
        printed(SIX, "at 200 req/s disaggregation saves", "11 %", [100 * (1 - apart[200] / together[200])]),
    ]


def prompt_tokens_per_step(scenario: Scenario) -> float:
    """The most prompt tokens of any step in which all short prompts decode, or as many of them as ever do."""
    (log,) = run_scenario(scenario).step_logs[0]
    decodes, tokens = (log[:, StepRow._fields.index(name)] for name in ("decodes", "prefill_tokens"))
    return float(tokens[decodes == min(DECODES, decodes.max())].max())


def _budget(tokens: int) -> Scenario:
    """300 short prompts at once, and a long one when all of them decode."""
    settings = {"engine.token_budget": tokens, "engine.max_batch": 2 * DECODES, "workload.num_requests": DECODES + 1}
    base = load_scenario("colocated-8b", settings)
    short, output = Lengths(mean=16, kind="fixed"), Lengths(mean=400, kind="fixed")
    many = Phase(duration_s=0.003, request_rate=1e5, arrivals="constant", prompt=short, output=output)
    quiet = replace(many, duration_s=0.497, request_rate=0)
    one = replace(many, duration_s=1, request_rate=1, prompt=Lengths(mean=2048, kind="fixed"))
    return with_phases(base, [many, quiet, one])


def _apart(rate: float) -> tuple[int, int, int]:
    """Prefill instances, decode instances, and their GPUs."""
    prefill, decode = instances_for(rate, PREFILL[1]), instances_for(rate, DECODE[1])
    return prefill, decode, prefill * PREFILL[0] + decode * DECODE[0]


def _together(rate: float) -> tuple[int, int]:
    count = instances_for(rate, MIXED[1])
    return count, count * MIXED[0]


def _rounding_row(rate: float) -> tuple[str, ...]:
    return tuple(map(str, (rate, *_apart(rate), *_together(rate))))


def _rounding_figure() -> Figure:
    rates = np.geomspace(2, 400, 300)
    gpus = {
        "disaggregated": np.array([_apart(rate)[-1] for rate in rates]),
        "colocated": np.array([_together(rate)[-1] for rate in rates]),
    }
    lines = [
        line(rates, needed * MIXED[1] / MIXED[0] / rates, name, line_style(index))
        for index, (name, needed) in enumerate(gpus.items())
    ]
    marks = [2, 5, 10, 30, 100, 200, 400]
    ticks = {"type": "log", "tickvals": marks, "ticktext": list(map(str, marks))}
    return figure(lines, "req/s", "times", height=320, xaxis=ticks, yaxis={"range": [0, 3]})
