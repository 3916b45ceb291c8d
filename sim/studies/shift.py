"""The shifting workload of the demo: no static split is right for all phases, and a planner beats them all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.link import LinkSpec
from metrics.figure import figure, line, line_style
from metrics.records import FloatArray
from metrics.summary import Summary, summarize
from metrics.windows import Windows
from scenario.loading import load_scenario, load_spec
from scenario.spec import Scenario
from sim.parallel import Mapper
from sim.studies.study import Claim, Study, StudyTable, Verdict
from sim.variants import run_scenario, splits, summary_of, with_phases, with_policy, with_split

BARE_RATES = {1: 14.0, 2: 20.0}
"""By phase, the rates at which the same splits win and lose when communication costs nothing."""
SETTLED_S = 60.0
"""How long a phase alone is run."""
NUM_WINDOWS = 40


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole scenario: its summary, and good requests per second of arrival time."""

    summary: Summary
    middle_s: FloatArray
    good_rate: FloatArray


def run(parallel: Mapper) -> Study:
    """Every static split per phase and over the whole scenario, and the `load` planner over the whole."""
    scenario = with_policy(load_scenario("demo"), "static")
    bare = replace(scenario, gpu_link=load_spec(LinkSpec, "ideal"))
    ways = [
        *(with_split(scenario, *split) for split in splits(scenario.instances.total)),
        with_policy(scenario, "load"),
    ]
    names = [_name(one) for one in ways]
    wholes = parallel(measure, ways)
    goodputs = [one.summary["request_goodput"] for one in wholes]
    *static, load = goodputs
    best = static.index(max(static))
    return Study(
        name="shift",
        title="A workload that shifts",
        method=(
            "The scenario demo: Llama-3-70B on four instances of 4 H100, and traffic that shifts from chat to "
            "summarisation to generation and back. Static splits against the planner policy load."
        ),
        claims=[
            Claim(
                source="Baton",
                statement="load beats every static split",
                ours=f"goodput {load:.2f} req/s; the best static split, {names[best]}, {static[best]:.2f} req/s",
                verdict=Verdict.HOLDS if load > static[best] else Verdict.DIFFERS,
            )
        ],
        tables=[
            _per_phase(
                parallel,
                f"One phase alone, {SETTLED_S:.0f} s: share of requests that meet the SLOs",
                [_alone(scenario, index) for index in range(len(scenario.workload.phases))],
            ),
            _per_phase(
                parallel,
                f"The same on the bare roofline (gpu_link ideal: no tensor-parallel communication), {SETTLED_S:.0f} s",
                [_alone(bare, index, request_rate=rate) for index, rate in BARE_RATES.items()],
            ),
            StudyTable(
                "The whole scenario",
                ("planner", "starts as", "goodput req/s", "good", "TTFT p99 ms", "TPOT p99 ms", "role changes"),
                [_row(way, one.summary) for way, one in zip(ways, wholes, strict=True)],
                note="Goodput counts requests that meet every SLO, over the time until the last request ended.",
            ),
        ],
        figures={
            "Good requests over time": figure(
                [
                    line(one.middle_s, one.good_rate, name, line_style(index))
                    for index, (name, one) in enumerate(zip(names, wholes, strict=True))
                ],
                "time of arrival, s",
                "good req/s",
                height=320,
            )
        },
    )


def measure(scenario: Scenario) -> Whole:
    result = run_scenario(scenario)
    windows = Windows.of(result.records, scenario.slo, num_windows=NUM_WINDOWS)
    return Whole(summarize(result, scenario.slo), windows.middle_s, windows.good_rate)


def _alone(scenario: Scenario, index: int, request_rate: float | None = None) -> Scenario:
    """One phase of the workload for a while, at its own rate unless another is given."""
    phase = scenario.workload.phases[index]
    rate = phase.request_rate if request_rate is None else request_rate
    return with_phases(scenario, [replace(phase, duration_s=SETTLED_S, request_rate=rate)])


def _per_phase(parallel: Mapper, title: str, scenarios: Sequence[Scenario]) -> StudyTable:
    """Attainment of every split, a row per scenario of one phase."""
    ways = splits(scenarios[0].instances.total)
    summaries = parallel(summary_of, [with_split(one, *way) for one in scenarios for way in ways])
    shares = [f"{one['attainment']:.0%}" for one in summaries]
    rows = []
    for index, scenario in enumerate(scenarios):
        (phase,) = scenario.workload.phases
        traffic = (phase.name, f"{phase.request_rate:g}", f"{phase.prompt.mean:g}", f"{phase.output.mean:g}")
        rows.append((*traffic, *shares[len(ways) * index : len(ways) * (index + 1)]))
    return StudyTable(title, ("phase", "req/s", "prompt", "output", *(f"{x}P{y}D" for x, y in ways)), rows)


def _split(scenario: Scenario) -> str:
    return f"{scenario.instances.prefill}P{scenario.instances.decode}D"


def _name(scenario: Scenario) -> str:
    return _split(scenario) if scenario.planner.policy == "static" else scenario.planner.policy


def _row(scenario: Scenario, summary: Summary) -> tuple[str, ...]:
    return (
        scenario.planner.policy,
        _split(scenario),
        f"{summary['request_goodput']:.2f}",
        f"{summary['attainment']:.1%}",
        f"{summary['p99_ttft_ms']:,.0f}",
        f"{summary['p99_tpot_ms']:.1f}",
        str(summary["num_role_changes"]),
    )
