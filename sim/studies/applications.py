"""DistServe's three applications on one model: colocated policies against xPyD, and what tighter SLOs do."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from metrics.figure import Figure, figure, line, line_style
from metrics.slo import SloSpec
from scenario.build import kv_capacity
from scenario.loading import load_spec
from scenario.spec import Scenario
from sim.parallel import Mapper
from sim.probe import Probe
from sim.studies.finite_run import fall_for, trap_claims
from sim.studies.serving import (
    CHAT,
    CODE,
    LECTURE_BATCHINGS,
    SUMMARISATION,
    Task,
    Traffic,
    apart,
    batching_name,
    colocated,
    per_gpu,
    search,
    serving,
    split_name,
)
from sim.studies.study import Claim, Study, StudyTable, Verdict, judge, printed, spread, told

APPLICATIONS = ((CHAT, "chatbot-opt-13b"), (CODE, "code-completion-opt-66b"), (SUMMARISATION, "summarization-opt-66b"))
"""With the SLOs of DistServe's Table 1, which the lecture uses for this smaller model, too."""
SPLITS = tuple((prefill, decode) for prefill in (1, 2, 3) for decode in (1, 2))
BUDGETS = (256, 1024)
"""Of chunked prefill, besides the lecture's 512."""
LECTURE = tuple(map(batching_name, LECTURE_BATCHINGS))
SCALES = {CHAT: (0.75, 1.0, 1.5, 2.0), CODE: (0.5, 0.75, 1.0), SUMMARISATION: (1.0,)}
SEEDS = range(2)
"""For the SLOs as they are; others take the first."""
THREE, SCALED = (f"Lecture 7, section {number}" for number in ("5.2", "5.3"))

Key = tuple[Traffic, float]
"""An application, and what its SLOs are multiplied by."""
Ways = dict[str, list[float]]
"""Requests/s per GPU by way of serving, a value per seed."""
Rates = dict[Key, Ways]


def run(parallel: Mapper) -> Study:
    """OPT-13B on A100, every way of serving each application."""
    tasks: dict[tuple[Key, str, int], Scenario] = {}
    for traffic, slo in APPLICATIONS:
        for scale in SCALES[traffic]:
            for seed in SEEDS if scale == 1 else SEEDS[:1]:
                for way, scenario in _ways(_scenario(traffic, slo, scale, seed)).items():
                    tasks[(traffic, scale), way, seed] = scenario
    found = parallel(search, [Task(scenario) for scenario in tasks.values()])
    rates: Rates = {}
    limits = {(key, way): carried.limit for (key, way, _), carried in zip(tasks, found, strict=True)}
    for ((key, way, _), scenario), carried in zip(tasks.items(), found, strict=True):
        rates.setdefault(key, {}).setdefault(way, []).append(per_gpu(scenario, carried))
    return Study(
        name="applications",
        title="Three applications: colocated, in chunks, or disaggregated",
        method=(
            "OPT-13B on A100 with KV over NVLink. Lengths are lognormal with the means of DistServe's datasets and sigma "
            "0.6 of the logarithm (summarisation 0.4, with which requests are as long as the lecture says; it tells no "
            "more of its lengths), cut to the model's 2,048 tokens; SLOs are those of "
            f"DistServe's Table 1. Goodput per GPU with {len(SEEDS)} seeds where SLOs are as they are, else one. "
            "The lecture's colocated policies are prefill_first, mixed_batch and chunks of 512 tokens."
        ),
        claims=[
            *_three(rates, limits),
            *_scaled(rates),
            *memory_claims(),
            *trap_claims(*parallel(fall_for, [trapped()])),
        ],
        tables=[_table(rates, traffic) for traffic, _ in APPLICATIONS],
        figures={
            f"{traffic.name.capitalize()}: goodput per GPU by SLO": _figure(rates, traffic)
            for traffic, _ in APPLICATIONS
            if len(SCALES[traffic]) > 1
        },
    )


def _three(rates: Rates, limits: dict[tuple[Key, str], str]) -> list[Claim]:
    chat, code, long = (rates[traffic, 1.0] for traffic in (CHAT, CODE, SUMMARISATION))
    best = max(_splits(chat), key=lambda way: median(chat[way]))
    tie = (
        f"all but a tie, as the lecture's is; short first of {best} is {limits[(CHAT, 1.0), best]}, and with SLOs x 0.75 it is "
        f"{median(_advantage(rates[CHAT, 0.75])):.2f}"
    )
    return [
        _ratio(
            "chat: the best split over the best colocated policy",
            1.07,
            _advantage(chat),
            holds=lambda r: r > 1,
            reason=tie,
        ),
        _ratio(
            "chat: the best split over prefill_first",
            1.12,
            _over(chat, _splits(chat), ["prefill_first"]),
            holds=lambda r: r > 1,
            reason=tie,
        ),
        _ratio(
            "code completion: the best split over the best colocated policy",
            1.22,
            _advantage(code),
            holds=lambda r: r > 1,
            reason=_why_not_code(rates),
        ),
        _ratio(
            "summarisation: the best split over the best colocated policy",
            0.78,
            _advantage(long),
            holds=lambda r: r < 1,
        ),
        _best_split(CHAT, "3P2D", chat, limits),
        _best_split(CODE, "3P1D", code, limits),
        _ratio("chat: 1P2D carries, req/s per GPU", 1.65, chat["1P2D"], holds=lambda _: True),
        told(
            THREE,
            "a wrong split is worse than any colocated policy (chat, 1P2D)",
            "worse",
            f"{median(chat['1P2D']):.2f} against {min(median(chat[way]) for way in LECTURE):.2f} and more",
            holds=median(chat["1P2D"]) < min(median(chat[way]) for way in LECTURE),
        ),
    ]


def _why_not_code(rates: Rates) -> str:
    chosen = {scale: median(_advantage(rates[CODE, scale])) for scale in SCALES[CODE]}
    full = 4 * median(rates[CODE, 1.0]["3P1D"])
    told_ratios = ", ".join(f"x {scale:g}: {ratio:.2f}" for scale, ratio in sorted(chosen.items()))
    return (
        f"a decode instance of this model is out of KV memory at {full:.0f} req/s, which three prefill instances feed it with "
        "ease, while colocated instances use memory and compute of every GPU; the advantage shows with tighter SLOs "
        f"({told_ratios})"
    )


def _scaled(rates: Rates) -> list[Claim]:
    by_scale = {scale: rates[CHAT, scale] for scale in SCALES[CHAT]}
    looser = [median(_advantage(by_scale[scale])) for scale in (1.0, 1.5, 2.0)]
    best = {scale: max(LECTURE, key=lambda way: median(ways[way])) for scale, ways in by_scale.items()}
    budget = {scale: max(_batchings(ways), key=lambda way: median(ways[way])) for scale, ways in by_scale.items()}
    return [
        replace(
            _ratio(
                "chat, SLOs x 0.75: the best split over the best colocated policy",
                3.3,
                _advantage(by_scale[0.75]),
                holds=lambda r: r > 2,
            ),
            source=SCALED,
        ),
        told(
            SCALED,
            "chat, SLOs x 0.75: colocated instances hardly cope",
            "hardly",
            f"{max(median(by_scale[0.75][way]) for way in LECTURE):.2f} req/s per GPU, "
            f"{max(median(by_scale[1.0][way]) for way in LECTURE):.2f} with the SLOs as they are",
            holds=max(median(by_scale[0.75][way]) for way in LECTURE)
            < 0.5 * max(median(by_scale[1.0][way]) for way in LECTURE),
        ),
        Claim(
            source=SCALED,
            statement="chat, SLOs x 1 and looser: the best split over the best colocated policy",
            published="1.07 to 1.24, up and down",
            ours=", ".join(f"{ratio:.2f}" for ratio in looser),
            verdict=Verdict.REPRODUCED if min(looser) > 1 else Verdict.DIFFERS,
            reason=(
                "the loss of disaggregation's lead is the same, but it goes on: with looser SLOs a decode instance runs "
                "out of KV memory (800 KB a token) while colocated instances gain"
            ),
        ),
        told(
            SCALED,
            "chat: which colocated policy is best changes with the SLOs: whole prompts where TTFT is strict, chunks later",
            "prefill_first, chunks",
            ", ".join(f"x {scale:g}: {way}" for scale, way in best.items()),
            holds=best[0.75] in ("prefill_first", "mixed_batch") and "chunked" in best[2.0],
            reason="" if best[0.75] == "prefill_first" else "mixed_batch computes prompts whole, too",
        ),
        Claim(
            source="Baton",
            statement="chat: with looser SLOs the smaller budget, near the ridge point, is better still",
            ours=", ".join(f"x {scale:g}: {way}" for scale, way in budget.items()),
            verdict=Verdict.HOLDS if budget[2.0] == "chunked_prefill 256" else Verdict.DIFFERS,
        ),
    ]


def memory_claims() -> list[Claim]:
    scenario = apart(_scenario(SUMMARISATION, "summarization-opt-66b", 1.0, 0), 1, 1)
    capacity = kv_capacity(scenario, scenario.roles[0])
    trace, _ = Probe(scenario).requests(1.0, 2000)
    reserved = float((trace.prompt_tokens + trace.output_tokens).mean())
    return [
        printed(THREE, "OPT-13B: KV of a token", "800 KB", [scenario.model.kv_bytes_per_token / 1024]),
        printed(THREE, "an A100 beside the weights: KV tokens, in thousands", "56", [int(capacity / 1e3)]),
        told(
            THREE,
            "summarisation: tokens that a request reserves in the mean, and requests that fit",
            "about 1,600; thirty-odd",
            f"{reserved:,.0f}; {capacity / reserved:.0f}",
            holds=1500 < reserved < 1750 and 30 <= capacity / reserved < 40,
        ),
    ]


def trapped() -> Scenario:
    """The split that seemed too good to the lecture."""
    return apart(_scenario(SUMMARISATION, "summarization-opt-66b", 1.0, 0), 3, 2)


def _ways(scenario: Scenario) -> dict[str, Scenario]:
    batchings = [*LECTURE_BATCHINGS, *(("chunked_prefill", budget) for budget in BUDGETS)]
    return {batching_name(one): colocated(scenario, one) for one in batchings} | {
        split_name(split): apart(scenario, *split) for split in SPLITS
    }


def _scenario(traffic: Traffic, slo: str, scale: float, seed: int) -> Scenario:
    targets = load_spec(SloSpec, slo)
    assert targets.ttft_ms is not None
    assert targets.tpot_ms is not None
    return serving(
        traffic,
        model="opt-13b",
        gpu="a100-80gb",
        link="nvlink-a100",
        ttft_ms=scale * targets.ttft_ms,
        tpot_ms=scale * targets.tpot_ms,
        seed=seed,
    )


def _splits(ways: Ways) -> list[str]:
    return [way for way in ways if way.endswith("D")]


def _batchings(ways: Ways) -> list[str]:
    return [way for way in ways if not way.endswith("D")]


def _over(ways: Ways, ours: Sequence[str], theirs: Sequence[str]) -> list[float]:
    """The best of `ours` over the best of `theirs`, seed by seed."""
    seeds = range(len(ways[ours[0]]))
    return [max(ways[way][seed] for way in ours) / max(ways[way][seed] for way in theirs) for seed in seeds]


def _advantage(ways: Ways) -> list[float]:
    return _over(ways, _splits(ways), LECTURE)


def _ratio(
    statement: str,
    published: float,
    ours: list[float],
    *,
    holds: Callable[[float], bool],
    reason: str = "the lecture does not tell the spread of its lengths, nor the link that carries KV",
) -> Claim:
    verdict = judge(published, ours, holds=all(map(holds, ours)))
    return Claim(
        source=THREE,
        statement=statement,
        published=spread([published]),
        ours=spread(ours),
        verdict=verdict,
        reason="" if verdict is Verdict.REPRODUCED else reason,
    )


def _best_split(traffic: Traffic, published: str, ways: Ways, limits: dict[tuple[Key, str], str]) -> Claim:
    best = max(_splits(ways), key=lambda way: median(ways[way]))
    is_same = best == published
    return Claim(
        source=THREE,
        statement=f"{traffic.name}: the best split",
        published=published,
        ours=f"{best}, {median(ways[best]):.2f} req/s per GPU; {published} {median(ways[published]):.2f}",
        verdict=Verdict.REPRODUCED if is_same else Verdict.DIFFERS,
        reason="" if is_same else f"of {published} short first is {limits[(traffic, 1.0), published]}",
    )


def _table(rates: Rates, traffic: Traffic) -> StudyTable:
    scales = SCALES[traffic]
    return StudyTable(
        f"{traffic.name.capitalize()} ({traffic.prompt} + {traffic.output} tokens): goodput per GPU, req/s",
        ("", *(f"SLOs x {scale:g}" for scale in scales)),
        [(way, *(spread(rates[traffic, scale][way]) for scale in scales)) for way in rates[traffic, 1.0]],
    )


def _figure(rates: Rates, traffic: Traffic) -> Figure:
    scales = np.array(SCALES[traffic])
    lines = []
    groups = {
        "best xPyD": _splits(rates[traffic, 1.0]),
        **{way: [way] for way in _batchings(rates[traffic, 1.0])},
    }
    for index, (name, ways) in enumerate(groups.items()):
        best = [max(median(rates[traffic, scale][way]) for way in ways) for scale in SCALES[traffic]]
        lines.append({**line(scales, np.array(best), name, line_style(index)), "mode": "lines+markers"})
    return figure(lines, "SLOs times", "req/s per GPU", height=340)
