"""One GPU for both phases against GPUs for each, as the TPOT target tightens towards the time of one decode step."""

from statistics import median

import numpy as np

from metrics.facts import number
from metrics.figure import Figure, figure, line, line_style
from scenario.spec import Scenario
from sim.parallel import Mapper
from sim.studies.serving import (
    LECTURE_BATCHINGS,
    Carried,
    Task,
    Traffic,
    apart,
    batching_name,
    colocated,
    per_gpu,
    search,
    serving,
)
from sim.studies.steps import Steps
from sim.studies.study import Claim, Study, StudyTable, Verdict, judge, spread, told

TARGETS_MS = (20.0, 25.0, 30.0, 40.0)
"""Of TPOT; the lecture tells 40 and its tightest, which is 20 by the rates that it gives."""
RIDGE = ("chunked_prefill", 256)
"""A budget near the ridge point, which the lecture does not try."""
BATCHINGS = (*LECTURE_BATCHINGS, RIDGE)
SEEDS = range(2)
SOURCE, PAPER = "Lecture 7, section 3.1", "DistServe, figure 1"
TIGHT, LOOSE = TARGETS_MS[0], TARGETS_MS[-1]

Rates = dict[tuple[str, float], list[float]]
"""Requests/s per GPU by (what, TPOT target), a value per seed. The prefill half has the target 0."""


def run(parallel: Mapper) -> Study:
    """OPT-13B on A100, prompts of 512 and outputs of 64 tokens, TTFT within 0.25 s."""
    tasks: dict[tuple[str, float, int], Task] = {}
    for seed in SEEDS:
        tasks["prefill", 0, seed] = Task(scenario_of(LOOSE, seed), "prefill")
        for target in TARGETS_MS:
            scenario = scenario_of(target, seed)
            tasks["decode", target, seed] = Task(scenario, "decode")
            for batching in BATCHINGS:
                tasks[batching_name(batching), target, seed] = Task(colocated(scenario, batching))
    wholes = {split: Task(apart(scenario_of(TIGHT, 0), *split)) for split in ((1, 1), (2, 1))}
    *found, one_to_one, two_to_one = parallel(search, [*tasks.values(), *wholes.values()])
    rates: Rates = {}
    for (what, target, _), carried in zip(tasks, found, strict=True):
        rates.setdefault((what, target), []).append(carried.request_rate)
    for target in TARGETS_MS:
        halves = zip(rates["prefill", 0], rates["decode", target], strict=True)
        rates["ideal split", target] = [1 / (1 / prefill + 1 / decode) for prefill, decode in halves]
    best_whole = max(per_gpu(wholes[1, 1].scenario, one_to_one), per_gpu(wholes[2, 1].scenario, two_to_one))
    return Study(
        name="phases",
        title="One GPU for both phases, or GPUs for each",
        method=(
            "OPT-13B on A100, prompts of 512 and outputs of 64 tokens, 90 % of requests within a TTFT of 0.25 s and the "
            f"TPOT target; goodput per GPU, searched with {len(SEEDS)} seeds. The ideal split is what prefill and decode "
            "instances carry alone, put together as if GPUs could be had in fractions: an upper limit of disaggregation."
        ),
        claims=[*_lecture(rates), *_paper(rates, best_whole, one_to_one, two_to_one), _ridge(rates)],
        tables=[
            StudyTable(
                "Goodput per GPU, req/s, by TPOT target: median of seeds (and range)",
                ("", *(f"{target:g} ms" for target in TARGETS_MS)),
                [
                    (what, *(spread(rates[what, target]) for target in TARGETS_MS))
                    for what in ("decode", "ideal split", *map(batching_name, BATCHINGS))
                ],
                note=(
                    f"Prefill alone carries {spread(rates['prefill', 0])} req/s at any of them. A decode step of one "
                    f"sequence takes {1e3 * _steps().step_s(1, 512):.1f} ms."
                ),
            )
        ],
        figures={"Goodput per GPU by TPOT target": _figure(rates)},
    )


def _lecture(rates: Rates) -> list[Claim]:
    prefill = rates["prefill", 0]
    advantage = {target: _over_best(rates, target) for target in TARGETS_MS}
    rises = sorted(advantage, key=lambda target: median(advantage[target]))[-1] == TIGHT
    at_loose, at_tight = (_best(rates, target) for target in (LOOSE, TIGHT))
    steps = _steps()
    return [
        _judged("prefill alone carries", 10.92, prefill, "req/s", holds=True),
        _judged(f"TPOT {LOOSE:g} ms: the best colocated instance carries", 8.36, at_loose, "req/s", holds=True),
        _judged(f"TPOT {TIGHT:g} ms: the best colocated instance carries", 1.68, at_tight, "req/s", holds=True),
        _judged(
            f"TPOT {LOOSE:g} ms: the ideal split over the best colocated instance",
            1.0,
            advantage[LOOSE],
            "",
            holds=max(advantage[LOOSE]) < 1.1,
        ),
        _judged(
            f"TPOT {TIGHT:g} ms: the ideal split over the best colocated instance",
            2.61,
            advantage[TIGHT],
            "",
            holds=rises and min(advantage[TIGHT]) > 1.5,
        ),
        told(
            SOURCE,
            "the closer the target is to the time of a decode step, the more disaggregation wins",
            "1.00 to 2.61 times",
            ", ".join(f"{target:g} ms: {number(median(advantage[target]))}" for target in reversed(TARGETS_MS)),
            holds=rises,
        ),
        told(
            "Lecture 7, section 0.5",
            "the model is optimistic: prefill alone, over what DistServe measured",
            "about 2 times",
            f"{number(median(prefill) / 5.6)} times (one prompt takes {1e3 * steps.prefill_s(512):.1f} ms)",
            holds=1.5 < median(prefill) / 5.6 < 2.5,
        ),
    ]


def _paper(rates: Rates, best_whole: float, one_to_one: Carried, two_to_one: Carried) -> list[Claim]:
    """At the target at which a colocated instance carries what the paper's does."""
    optimism = "no runtime overhead is modelled, so that the same loss takes a tighter target"
    best, prefill = median(_best(rates, TIGHT)), median(rates["prefill", 0])
    decode = median(rates["decode", TIGHT])
    return [
        told(
            PAPER,
            "requests/s of a GPU: for both phases, for prefill, for decode",
            "1.6, 5.6, 10",
            f"{best:.2f}, {prefill:.1f}, {decode:.1f} at TPOT {TIGHT:g} ms",
            holds=best < decode and best < prefill,
            reason=optimism,
        ),
        told(
            PAPER,
            "GPUs for each phase carry, per GPU and over one for both",
            "3.3 req/s, 2.1 times",
            f"{best_whole:.2f} req/s, {best_whole / best:.1f} times (1P1D {one_to_one.request_rate:.1f} req/s, 2P1D "
            f"{two_to_one.request_rate:.1f})",
            holds=best_whole > 1.5 * best,
            reason=f"here decode is what is short, and 1P1D the better split; {optimism}",
        ),
    ]


def _ridge(rates: Rates) -> Claim:
    name = batching_name(RIDGE)
    ratios = {target: median(rates[name, target]) / median(rates["ideal split", target]) for target in TARGETS_MS}
    return Claim(
        source="Baton",
        statement="a token budget near the ridge point beats even the ideal split, unless the target is a step's time",
        ours=f"{name} over the ideal split: "
        + ", ".join(f"{target:g} ms: {ratios[target]:.2f}" for target in TARGETS_MS),
        verdict=Verdict.HOLDS if ratios[TIGHT] < 1 < ratios[LOOSE] else Verdict.DIFFERS,
    )


def _judged(statement: str, published: float, ours: list[float], unit: str, *, holds: bool) -> Claim:
    verdict = judge(published, ours, holds=holds, tolerance=0.07)
    return Claim(
        source=SOURCE,
        statement=statement,
        published=spread([published], unit),
        ours=spread(ours, unit),
        verdict=verdict,
        reason="" if verdict is Verdict.REPRODUCED else "the lecture does not tell its seeds, nor its tightest target",
    )


def _best(rates: Rates, target: float) -> list[float]:
    """Of what the lecture tries, seed by seed."""
    return list(map(max, zip(*(rates[batching_name(one), target] for one in LECTURE_BATCHINGS), strict=True)))


def _over_best(rates: Rates, target: float) -> list[float]:
    pairs = zip(rates["ideal split", target], _best(rates, target), strict=True)
    return [ideal / best for ideal, best in pairs]


def scenario_of(tpot_ms: float, seed: int) -> Scenario:
    traffic = Traffic(name="DistServe's figure 1", prompt=512, output=64, fixed=True)
    return serving(
        traffic, model="opt-13b", gpu="a100-80gb", link="nvlink-a100", ttft_ms=250, tpot_ms=tpot_ms, seed=seed
    )


def _steps() -> Steps:
    return Steps.of("opt-13b", "a100-80gb")


def _figure(rates: Rates) -> Figure:
    targets = np.array(TARGETS_MS, dtype=np.float64)
    lines = [
        {
            **line(targets, np.array([median(rates[what, target]) for target in TARGETS_MS]), what, line_style(index)),
            "mode": "lines+markers",
        }
        for index, what in enumerate(("ideal split", *map(batching_name, BATCHINGS)))
    ]
    return figure(lines, "TPOT target, ms", "req/s per GPU", height=340)
