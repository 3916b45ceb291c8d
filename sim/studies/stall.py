"""A long prompt among running decodes: whole prompts stall every sequence, chunks do not, and medians hide it."""

from dataclasses import dataclass, replace

import numpy as np

from metrics.facts import number
from metrics.figure import gap_figure
from metrics.gantt import Bars, gantt
from metrics.gaps import gaps_over_time, longest_gaps
from metrics.latency import ttft_s
from metrics.records import FloatArray
from metrics.stats import Stats
from scenario.loading import load_scenario
from scenario.spec import Scenario
from sim.parallel import Mapper
from sim.studies.study import Claim, Study, StudyTable, Verdict
from sim.variants import run_scenario

POLICIES = ("prefill_first", "mixed_batch", "chunked_prefill")
ARRIVES_S = 0.5
"""When the long prompt comes; only gaps that end later count."""
NUM_GAPS = 2_000
SOURCE = "Lecture 7, section 1.3"


@dataclass(frozen=True, slots=True)
class Stall:
    """What a policy did; times in ms."""

    policy: str
    gaps: Stats
    """Of those that end after the long prompt has come."""
    stalled: int
    """Sequences with a gap of more than five times the median."""
    ttft_ms: float
    """Of the long prompt."""
    gap_end_s: FloatArray
    gap_ms: FloatArray
    bars: Bars


def run(parallel: Mapper) -> Study:
    """Three colocated policies on the scenario stall-8b."""
    stalls = parallel(measure, scenarios())
    prefill_first, mixed_batch, chunked = stalls
    whole = (prefill_first, mixed_batch)
    medians = [one.gaps.p50 or 0.0 for one in stalls]
    is_steady = max(medians) < 1.05 * min(medians)
    return Study(
        name="stall",
        title="A long prompt stalls running decodes",
        method=(
            "Llama-3-8B on one H100. 32 sequences with prompts of 512 tokens arrive within 0.4 s and decode when a "
            "prompt of 4,096 tokens arrives at 0.5 s. Gaps that end after 0.5 s count. chunked_prefill has a budget of "
            "512 tokens. The lecture gives no context length; 512 is the one of its section 1.2."
        ),
        claims=[
            *(
                Claim(
                    source=SOURCE,
                    statement=f"{one.policy}: the step with the whole prompt takes 90-odd ms, and all 32 sequences wait",
                    published="90 to 99 ms, 32 sequences",
                    ours=f"{number(one.gaps.max)} ms, {one.stalled} sequences",
                    verdict=Verdict.REPRODUCED if _is_as_told(one) else Verdict.DIFFERS,
                )
                for one in whole
            ),
            Claim(
                source=SOURCE,
                statement="chunked_prefill does not stall them",
                published="no stall",
                ours=f"longest gap {number(chunked.gaps.max)} ms, {chunked.stalled} sequences stalled",
                verdict=Verdict.REPRODUCED if not chunked.stalled else Verdict.DIFFERS,
            ),
            Claim(
                source=SOURCE,
                statement="the median gap hardly changes: it hides the stall",
                published="almost the same",
                ours=f"{number(min(medians))} to {number(max(medians))} ms",
                verdict=Verdict.REPRODUCED if is_steady else Verdict.DIFFERS,
            ),
        ],
        tables=[
            StudyTable(
                f"Token gaps after {ARRIVES_S} s, and the long prompt's TTFT, ms",
                ("policy", "ITL p50", "ITL p99", "ITL max", "sequences stalled", "TTFT of the long prompt"),
                [_row(one) for one in stalls],
                note="A stall is a gap of more than five times the median. chunked_prefill pays with the long prompt's TTFT.",
            )
        ],
        figures={
            title: figure
            for title, figure in (
                (
                    "Longest token gap over time",
                    gap_figure([(one.policy, one.gap_end_s, one.gap_ms) for one in stalls]),
                ),
                ("What the instance did", gantt([(one.policy, one.bars) for one in stalls])),
            )
            if figure is not None
        },
    )


def _is_as_told(one: Stall) -> bool:
    return 90 <= (one.gaps.max or 0) < 100 and one.stalled == 32


def scenarios() -> list[Scenario]:
    """The scenario under each of the policies."""
    scenario = load_scenario("stall-8b")
    return [replace(scenario, engine=replace(scenario.engine, policy=policy)) for policy in POLICIES]


def measure(scenario: Scenario) -> Stall:
    result = run_scenario(scenario)
    end_s, gap_s, count = (np.concatenate(part) for part in zip(*gaps_over_time(result), strict=True))
    after = end_s > ARRIVES_S
    gaps = Stats.of(1e3 * gap_s[after], count[after])
    assert gaps.p50 is not None
    gap_end_s, longest_s = longest_gaps(result, NUM_GAPS)
    return Stall(
        policy=scenario.engine.policy,
        gaps=gaps,
        stalled=int(count[after & (1e3 * gap_s > 5 * gaps.p50)].sum()),
        ttft_ms=1e3 * float(ttft_s(result.records)[-1]),
        gap_end_s=gap_end_s,
        gap_ms=1e3 * longest_s,
        bars=Bars.of(result),
    )


def _row(one: Stall) -> tuple[str, ...]:
    gaps = one.gaps
    return (one.policy, number(gaps.p50), number(gaps.p99), number(gaps.max), str(one.stalled), number(one.ttft_ms))
