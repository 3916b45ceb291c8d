"""Planner policies on one footing: against the best static split, and against one who knows each stretch of traffic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from metrics.figure import GREY, Figure, figure, line, line_style
from scenario.spec import Scenario
from sim.parallel import Mapper
from sim.studies.rebalance_cases import TRACES_VARIABLE, Case, of_azure, of_phases
from sim.studies.rebalance_roles import roles_figure
from sim.studies.rebalance_run import SETTLING_S, Job, Outcome, measure, num_good
from sim.studies.rebalance_ways import all_mixed, assignments, policies, static_splits
from sim.studies.study import Claim, Study, StudyTable, Verdict

OURS = "lookahead"
DRAWN = ("load, migrating", "throughput", "splitwise", "replan", "arrow", "lookahead")
SWITCH_TIMES_S = (0.0, 5.0, 15.0, 30.0, 60.0, 120.0)
SWEPT = ("load, migrating", "throughput", "lookahead, not mixing", "lookahead")
ARRIVALS_ERRORS = (0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
SHARE_OF_CLAIRVOYANT = 0.95
SLACK = 0.01
"""How far below the best static split a planner may be, as a share of its goodput."""


@dataclass(frozen=True, slots=True)
class Results:
    """Of one case."""

    case: Case
    splits: list[Outcome]
    mixed: Outcome
    planned: dict[str, Outcome]
    clairvoyant: float
    """Goodput, req/s, with the best assignment for each stretch and no cost of changing."""
    assignments: list[str]
    """The assignment it takes, per stretch."""

    @property
    def best_split(self) -> Outcome:
        return max(self.splits, key=lambda one: one.good)


def run(parallel: Mapper) -> Study:
    cases = [
        of_phases("a", "Demo: chat, summarisation, generation", "demo"),
        of_phases("b", "Summarisation against generation", "alternating-8x70b"),
        *of_azure(),
        of_phases("d, diurnal", "A day in fast motion", "diurnal-8x70b"),
        of_phases("d, bursty", "Bursts", "bursty-8x70b"),
        of_phases("e", "Constant load", "constant-8x70b"),
    ]
    all_results = compare(cases, parallel)
    notes = [] if len(cases) > 5 else [f"Case (c) needs the Azure traces: set {TRACES_VARIABLE} to their folder."]
    return Study(
        name="rebalance",
        title="Role rebalancing",
        method=" ".join(
            (
                "Every policy on the same requests. Goodput counts the requests that meet every SLO, per second of the "
                "workload. The clairvoyant runs each stretch of one kind of traffic alone on the assignment of roles "
                "that is best for it (splits, all mixed, and even numbers of mixed instances beside a split) and "
                "changes at no cost; regret is what a policy falls short of it. The corrections of throughput are 1 here: "
                "a simulated step takes just what the engine model expects.",
                *notes,
            )
        ),
        claims=[*_claims(all_results)],
        tables=[
            *map(_table, all_results),
            _switch_time_table(cases[0], parallel),
            _error_table(cases[0], parallel),
        ],
        figures={title: one for results in all_results for title, one in _figures(results).items()},
    )


def compare(cases: Sequence[Case], parallel: Mapper) -> list[Results]:
    """Every way and the clairvoyant on every case, whose titles tell them apart."""
    jobs = [
        Job(case, name, scenario)
        for case in cases
        for ways in (policies(case.scenario), all_mixed(case.scenario), static_splits(case.scenario))
        for name, scenario in ways.items()
    ]
    jobs.sort(key=lambda job: job.scenario.planner.policy != OURS)
    outcomes = dict(zip(((job.case.title, job.way) for job in jobs), parallel(measure, jobs), strict=True))
    per_stretch = [
        Job(stretch, name, scenario)
        for case in cases
        for stretch in case.stretches()
        for name, scenario in assignments(case.scenario).items()
    ]
    good = iter(zip(per_stretch, parallel(num_good, per_stretch), strict=True))
    results = []
    for case in cases:
        ways = assignments(case.scenario)
        best = [max((next(good) for _ in ways), key=lambda one: one[1]) for _ in case.ends_s]
        (mixed_name,) = all_mixed(case.scenario)
        results.append(
            Results(
                case,
                [outcomes[case.title, name] for name in static_splits(case.scenario)],
                outcomes[case.title, mixed_name],
                {name: outcomes[case.title, name] for name in policies(case.scenario)},
                sum(count for _, count in best) / case.span_s,
                [job.way for job, _ in best],
            )
        )
    return results


def _claims(all_results: Sequence[Results]) -> list[Claim]:
    claims = []
    for results in all_results:
        if results.case.name == "e":
            continue
        share = results.planned[OURS].goodput / results.clairvoyant
        claims.append(
            _claim(
                f"({results.case.name}) {OURS} has at least {SHARE_OF_CLAIRVOYANT:.0%} of the clairvoyant's goodput",
                f"{share:.1%}: {results.planned[OURS].goodput:.2f} of {results.clairvoyant:.2f} req/s",
                share >= SHARE_OF_CLAIRVOYANT,
                _where_it_falls_short(results),
            )
        )
    by_name = {results.case.name: results for results in all_results}
    others = {name: one for name, one in by_name["b"].planned.items() if not name.startswith(OURS)}
    second = max(others.values(), key=lambda one: one.good)
    ours = by_name["b"].planned[OURS]
    claims.append(
        _claim(
            f"(b) {OURS} is above every other policy",
            f"{ours.goodput:.2f} req/s; next is {second.way} with {second.goodput:.2f}",
            ours.good > second.good,
        )
    )
    late = by_name["e"].planned[OURS].num_late_changes
    claims.append(_claim(f"(e) {OURS} changes no role after {SETTLING_S:.0f} s", f"{late} changes", not late))
    worst = min(all_results, key=lambda one: one.planned[OURS].good / one.best_split.good)
    ratio = worst.planned[OURS].good / worst.best_split.good
    claims.append(
        _claim(
            f"{OURS} is nowhere more than {SLACK:.0%} below the best static split",
            f"worst in ({worst.case.name}): {ratio:.1%} of {worst.best_split.way}",
            ratio >= 1 - SLACK,
        )
    )
    return claims


def _where_it_falls_short(results: Results) -> str:
    ours = results.planned[OURS]
    return (
        f"{ours.missed_ttft:.1%} of its requests miss TTFT and {ours.missed_tpot:.1%} TPOT, where the clairvoyant's "
        f"{results.assignments[0]} is there from the first second; it has to find out, and keeps one instance of either role"
    )


def _claim(statement: str, ours: str, holds: bool, shortfall: str = "") -> Claim:
    if holds:
        return Claim(source="Baton", statement=statement, ours=ours, verdict=Verdict.HOLDS)
    return Claim(source="Baton", statement=statement, ours=ours, verdict=Verdict.DIFFERS, reason=shortfall)


def _table(results: Results) -> StudyTable:
    case = results.case
    columns = (
        "way",
        "goodput req/s",
        "good",
        "regret",
        "role changes",
        "requests migrated",
        "KV migrated GB",
        "draining GPU-s",
    )
    split = results.best_split
    named = {
        f"best static split, {split.way}": split,
        f"no disaggregation, {results.mixed.way}": results.mixed,
        **results.planned,
    }
    rows = [_row(name, outcome, results.clairvoyant) for name, outcome in named.items()]
    share = results.clairvoyant * case.span_s / len(case.trace)
    rows.append(("clairvoyant", f"{results.clairvoyant:.2f}", f"{share:.1%}", *["-"] * 5))
    kept = [
        way for way, before in zip(results.assignments, [None, *results.assignments], strict=False) if way != before
    ]
    note = f"{len(case.trace):,} requests in {case.span_s:,.0f} s. The clairvoyant takes {', '.join(kept)}."
    return StudyTable(f"({case.name}) {case.title}", columns, rows, note)


def _row(name: str, outcome: Outcome, clairvoyant: float) -> tuple[str, ...]:
    return (
        name,
        f"{outcome.goodput:.2f}",
        f"{outcome.attainment:.1%}",
        f"{1 - outcome.goodput / clairvoyant:.1%}",
        str(outcome.num_role_changes),
        f"{outcome.num_migrations:,}",
        f"{outcome.gb_migrated:,.0f}",
        f"{outcome.idle_gpu_s:,.0f}",
    )


def _switch_time_table(case: Case, parallel: Mapper) -> StudyTable:
    ways = policies(case.scenario)
    jobs = [Job(case, name, _switching_in(ways[name], time_s)) for time_s in SWITCH_TIMES_S for name in SWEPT]
    rates = [f"{outcome.goodput:.2f}" for outcome in parallel(measure, jobs)]
    rows = [
        (f"{time_s:g}", *rates[len(SWEPT) * number : len(SWEPT) * (number + 1)])
        for number, time_s in enumerate(SWITCH_TIMES_S)
    ]
    title = f"({case.name}) Goodput, req/s, by the time an instance takes to switch after draining"
    note = (
        "To become mixed, or a decode instance again, takes no switch: the instance goes on and gets other work. "
        "Where a switch takes long, lookahead mixes instead."
    )
    return StudyTable(title, ("switch time s", *SWEPT), rows, note)


def _error_table(case: Case, parallel: Mapper) -> StudyTable:
    scenario = policies(case.scenario)[OURS]
    outcomes = parallel(measure, [Job(case, OURS, scenario, error) for error in ARRIVALS_ERRORS])
    rows: list[tuple[str, ...]] = [
        (f"{error:g}", f"{one.goodput:.2f}", f"{one.attainment:.1%}", str(one.num_role_changes))
        for error, one in zip(ARRIVALS_ERRORS, outcomes, strict=True)
    ]
    title = f"({case.name}) {OURS} whose rollouts expect so many times the arrivals"
    return StudyTable(title, ("times", "goodput req/s", "good", "role changes"), rows)


def _switching_in(scenario: Scenario, time_s: float) -> Scenario:
    return replace(scenario, planner=replace(scenario.planner, switch_time_s=time_s))


def _figures(results: Results) -> dict[str, Figure]:
    case = results.case
    drawn: Mapping[str, Outcome] = {
        f"static {results.best_split.way}": results.best_split,
        **{name: results.planned[name] for name in DRAWN},
    }
    ours = results.planned[OURS]
    lines = [
        line(ours.middle_s, ours.sent_rate, "sent", {"color": GREY, "dash": "dot", "width": 1.5}),
        *(
            line(one.middle_s, one.good_rate, name, {**line_style(number), "width": 3.0 if one is ours else 1.5})
            for number, (name, one) in enumerate(drawn.items())
        ),
    ]
    span = {"range": [0, case.span_s]}
    return {
        f"({case.name}) Goodput over time": figure(lines, "time of arrival, s", "good req/s", height=340, xaxis=span),
        f"({case.name}) Roles over time": roles_figure(
            {name: one.spans for name, one in drawn.items()}, case.scenario.instances.total, xaxis=span
        ),
    }
