"""A plan as a whole cluster, simulated: does it hold, could it do with less, and what is short if it does not.

Goodputs of single instances are a guess for the whole: requests must meet both SLOs, the link is shared, and
several instances even out a queue that one cannot.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from cluster.errors import UserError
from scenario.loading import to_plain
from sim.capacity import Capacity, capacity_of
from sim.limits import limit_in_words, short_role
from sim.placement.plan import Check, Plan, instances_for
from sim.placement.question import Question
from sim.probe import Finding, Probe
from sim.sustain import Sampling
from sim.unloaded import unloaded
from sim.usage import Usage

FRESH_SEEDS = (101, 102)
"""Added to the scenario's seed."""
_NOTHING = 1e-9
"""Req/s of a plan that no rate passes; ranks it last."""
_CHECK_FACTOR = 2
"""So many times the requests that a search takes."""


@dataclass(frozen=True, slots=True)
class FitTask:
    plan: Plan
    question: Question

    def content(self) -> dict[str, Any]:
        """All that the result depends on, but the files that the scenario names."""
        question, plan = self.question, self.plan
        return {
            "kind": "fit",
            "scenario": {**to_plain(plan.scenario(question.scenario, question.gpus_per_node)), "name": ""},
            "plan": [plan.units, plan.is_unit, plan.carries, plan.simulated_rate, sorted(plan.too_small)],
            "sized_for": question.sized_for,
            "costs": [question.cost(group.machine) for group in plan.groups],
            "relative_tolerance": question.relative_tolerance,
            "sampling": asdict(question.sampling),
        }


@dataclass(frozen=True, slots=True)
class Fit:
    """What simulating a plan gave. Where it does not hold, its numbers are the next to try."""

    counts: dict[str, int]
    units: int
    simulated_rate: float | None
    limit: str
    too_small: list[list[int]]
    check: dict[str, Any] | None
    """None where it did not hold."""
    failure: str = ""
    """Why no numbers would help; then they are as they were."""

    def applied(self, plan: Plan) -> Plan:
        """The plan with them."""
        return replace(
            plan.with_counts(self.counts),
            units=self.units,
            simulated_rate=self.simulated_rate,
            simulated_limit=self.limit,
            too_small=frozenset(map(tuple, self.too_small)),
            failure=self.failure,
            check=None if self.check is None else Check(**self.check),
        )


def fit(task: FitTask) -> Fit:
    """Simulate a plan as a whole. SLOs it cannot meet are an answer, not an error."""
    plan, question = task.plan, task.question
    try:
        if question.sized_for is None:
            fitted = _highest(plan, question)
        elif plan.is_unit:
            fitted = _units(plan, question, question.sized_for)
        else:
            fitted = _instances(plan, question, question.sized_for)
    except UserError as error:
        fitted = replace(plan, failure=str(error))
    return Fit(
        counts=fitted.counts_by_role,
        units=fitted.units,
        simulated_rate=fitted.simulated_rate,
        limit=fitted.simulated_limit,
        too_small=sorted(map(list, fitted.too_small)),
        failure=fitted.failure,
        check=None if fitted.check is None else asdict(fitted.check),
    )


def _highest(plan: Plan, question: Question) -> Plan:
    """A rate that every fresh seed passes: the first seed's goodput, or what another leaves of it."""
    highest: float | None = None
    for seed in FRESH_SEEDS:
        capacity = _capacity(plan, question, seed, highest=highest)
        best = capacity.goodput.best
        if best is None:
            return replace(plan, simulated_rate=_NOTHING)
        if best.request_rate != highest:
            highest, attainment, limit = best.request_rate, best.verdict.attainment, capacity.limit
        attainment = min(attainment, best.verdict.attainment)
    assert highest is not None
    check = Check(plan.units * highest, attainment, len(FRESH_SEEDS))
    return replace(plan, simulated_rate=highest, simulated_limit=limit, check=check)


def _units(plan: Plan, question: Question, request_rate: float) -> Plan:
    """First the goodput of one unit as a whole, and by it their number; when that is settled, the check."""
    if plan.simulated_rate is None:
        capacity = _capacity(plan, question, 0)
        rate = capacity.goodput.request_rate or _NOTHING
        units = instances_for(request_rate, rate)
        settled = replace(plan, simulated_rate=rate, simulated_limit=capacity.limit, units=units)
        if units > plan.units:
            return settled
        plan = settled
    check, failure = _check(plan, question, request_rate)
    return replace(plan, check=check) if failure is None else replace(plan, units=plan.units + 1)


def _instances(plan: Plan, question: Question, request_rate: float) -> Plan:
    """Fewer instances as long as the rest holds; one more of the role that is short when it does not."""
    alone = unloaded(_probe(plan, question, 0)).usage
    finding = _probe(plan, question, 0).at(request_rate)
    if not finding.passed:
        return _with_more(plan, finding, alone)
    limit = plan.simulated_limit
    for group in sorted(plan.groups, key=lambda one: -question.cost(one.machine)):
        plan, stopped_by = _with_fewest(plan, question, group.role, request_rate, alone)
        limit = limit or stopped_by
    check, failure = _check(plan, question, request_rate)
    if failure is not None:
        return _with_more(plan, failure, alone)
    return replace(plan, simulated_limit=limit, check=check)


def _with_more(plan: Plan, finding: Finding, alone: Usage) -> Plan:
    role = short_role(finding, alone)
    more = plan.with_counts(plan.counts_by_role | {role: plan.counts_by_role[role] + 1})
    counts = tuple(group.count for group in plan.groups)
    return replace(more, simulated_limit=limit_in_words(finding, alone), too_small=plan.too_small | {counts})


def _with_fewest(plan: Plan, question: Question, role: str, request_rate: float, alone: Usage) -> tuple[Plan, str]:
    """Take instances of a role away while the rest holds; also what stops it, in words."""
    count = plan.counts_by_role[role]
    step = max(1, count // 8)
    while count > 1:
        step = min(step, count - 1)
        fewer = plan.with_counts(plan.counts_by_role | {role: count - step})
        finding = None if fewer.is_too_small else _probe(fewer, question, 0).at(request_rate)
        if finding is not None and finding.passed:
            plan, count = fewer, count - step
        elif step > 1:
            step = 1
        else:
            return plan, "" if finding is None else limit_in_words(finding, alone)
    return plan, ""


def _check(plan: Plan, question: Question, request_rate: float) -> tuple[Check, Finding | None]:
    """Fresh seeds at the rate; also the finding of the first that failed."""
    findings = []
    for seed in FRESH_SEEDS:
        finding = _probe(plan, question, seed, factor=_CHECK_FACTOR).at(request_rate / plan.units)
        findings.append(finding)
        if not finding.passed:
            break
    attainment = min(finding.attainment for finding in findings)
    last = findings[-1]
    return Check(request_rate, attainment, len(findings)), None if last.passed else last


def _capacity(plan: Plan, question: Question, seed: int, *, highest: float | None = None) -> Capacity:
    """The goodput of the whole, or of one unit; with `highest`, which is tried first, no more than that."""
    hint = highest or replace(plan, simulated_rate=None).carries / plan.units
    tolerance = question.relative_tolerance
    return capacity_of(_probe(plan, question, seed), hint=hint, highest=highest, relative_tolerance=tolerance)


def _probe(plan: Plan, question: Question, seed: int, *, factor: int = 1) -> Probe:
    """`seed` is added to the scenario's own."""
    scenario = plan.scenario(question.scenario, question.gpus_per_node)
    sampling = Sampling(factor * question.sampling.num_requests, factor * question.sampling.max_requests)
    seeded = replace(scenario, seed=scenario.seed + seed)
    return Probe(seeded, sampling=sampling, drift_limit=question.relative_tolerance)
