"""The shifting workload of the demo: no static split is right for all phases, and a planner beats them all."""

from dataclasses import replace

from cluster.link import LinkSpec
from metrics.summary import Summary
from scenario.loading import load_scenario, load_spec
from scenario.spec import Scenario
from sim.studies.study import Study, StudyTable
from sim.variants import splits, summary_of, with_phases, with_policy, with_split

BARE_RATES = {1: 14.0, 2: 20.0}
"""By phase, the rates at which the same splits win and lose when communication costs nothing."""
SETTLED_S = 60.0
"""How long a phase alone is run."""


def run(scenario_name: str = "demo") -> Study:
    """Every static split per phase and over the whole scenario, and the `load` planner over the whole."""
    scenario = with_policy(load_scenario(scenario_name), "static")
    total = scenario.instances.total
    per_phase = StudyTable(
        f"One phase alone, {SETTLED_S:.0f} s: share of requests that meet the SLOs",
        ("phase", "req/s", "prompt", "output", *(f"{prefill}P{decode}D" for prefill, decode in splits(total))),
        [_phase_row(scenario, index) for index in range(len(scenario.workload.phases))],
    )
    bare = StudyTable(
        f"The same on the bare roofline (gpu_link ideal: no tensor-parallel communication), {SETTLED_S:.0f} s",
        per_phase.columns,
        [
            _phase_row(replace(scenario, gpu_link=load_spec(LinkSpec, "ideal")), index, request_rate=rate)
            for index, rate in BARE_RATES.items()
        ],
    )
    static = {split: summary_of(with_split(scenario, *split)) for split in splits(total)}
    start = scenario.instances
    load = summary_of(with_policy(scenario, "load"))
    whole = StudyTable(
        "The whole scenario",
        ("planner", "starts as", "goodput req/s", "good", "TTFT p99 ms", "TPOT p99 ms", "role changes"),
        [_row("static", f"{prefill}P{decode}D", summary) for (prefill, decode), summary in static.items()]
        + [_row("load", f"{start.prefill}P{start.decode}D", load)],
        note="Goodput counts requests that meet every SLO, over the time until the last request ended.",
    )
    best = max(static, key=lambda split: static[split]["request_goodput"])
    best_goodput, goodput = static[best]["request_goodput"], load["request_goodput"]
    holds = goodput > best_goodput
    verdict = (
        f"load reaches {goodput:.2f} req/s, the best static split ({best[0]}P{best[1]}D) {best_goodput:.2f}: "
        f"{'load beats every static split' if holds else 'a static split is as good'}"
    )
    return Study("shift", [per_phase, bare, whole], verdict, holds)


def _phase_row(scenario: Scenario, index: int, request_rate: float | None = None) -> tuple[str, ...]:
    phase = replace(scenario.workload.phases[index], duration_s=SETTLED_S)
    if request_rate is not None:
        phase = replace(phase, request_rate=request_rate)
    alone = with_phases(scenario, [phase])
    shares = [summary_of(with_split(alone, *split))["attainment"] for split in splits(scenario.instances.total)]
    lengths = (f"{phase.prompt.mean:g}", f"{phase.output.mean:g}")
    return (phase.name, f"{phase.request_rate:g}", *lengths, *(f"{share:.0%}" for share in shares))


def _row(planner: str, split: str, summary: Summary) -> tuple[str, ...]:
    return (
        planner,
        split,
        f"{summary['request_goodput']:.2f}",
        f"{summary['attainment']:.1%}",
        f"{summary['p99_ttft_ms']:,.0f}",
        f"{summary['p99_tpot_ms']:.1f}",
        str(summary["num_role_changes"]),
    )
