"""An answer in words: rows of plans, the recommendation, who wins by how much, and what cannot be."""

from metrics.facts import number, percent
from sim.placement.answer import Answer
from sim.placement.designs import COLOCATED, DISAGGREGATED, best_of, cost_of, rank_of
from sim.placement.evaluation import Evaluation
from sim.placement.option import Option
from sim.placement.plan import Plan
from sim.placement.question import Question

PLAN_COLUMNS = ("plan", "instances", "GPUs", "$/h", "kW", "req/s per GPU", "rounding", "carries", "good", "short first")
LEGEND = (
    "req/s per GPU: if instances could be had in fractions. Rounding: GPUs beyond those fractions. Carries: the highest "
    "rate found, in req/s. Good: requests within every SLO, in the worst run. Short first: what ends a higher rate."
)
OPTION_COLUMNS = ("instance", "GPUs", "req/s", "per GPU", "short first, or why not")

_LEAST = {"gpus": "fewest GPUs", "usd": "least $/h", "watts": "least W"}
_ROLES = {COLOCATED: ("mixed",), DISAGGREGATED: ("prefill", "decode")}
UNITS = {"gpus": "GPUs", "usd": "$/h", "watts": "W", "rate": "GPUs"}
"""What an objective counts."""


def question_in_words(question: Question) -> str:
    """What was asked, in one line."""
    scenario, slo = question.scenario, question.scenario.slo
    targets = [f"{name} {value:g} ms" for name, value in _targets(question).items()]
    within = f"{100 * slo.attainment:g} % of requests within {' and '.join(targets)}" if targets else "no SLO"
    there = ", ".join(f"{pool.count} {pool.gpu.name}" for pool in question.pools)
    rate = question.request_rate
    wanted = (
        "the highest rate" if rate is None else f"{_rate_in_words(question, rate)} for the {_LEAST[question.objective]}"
    )
    return f"{scenario.model.name}, {wanted}, {within}; on {there} in nodes of {question.gpus_per_node}"


def plan_row(question: Question, plan: Plan) -> tuple[str, ...]:
    """Values of PLAN_COLUMNS."""
    rate = question.sized_for
    return (
        design_in_words(plan),
        plan.counts,
        str(plan.num_gpus),
        number(plan.usd_per_hour or None),
        number(plan.watts / 1e3 or None),
        number(plan.goodput_per_gpu),
        "-" if rate is None else f"+{100 * plan.rounding_loss(rate):.0f} %",
        number(plan.carries),
        "not simulated" if plan.check is None else percent(plan.check.attainment),
        plan.limit,
    )


def design_in_words(plan: Plan) -> str:
    return f"{plan.design} {plan.groups[0].option.batching}" if plan.design == COLOCATED else plan.design


def plan_in_words(plan: Plan) -> str:
    return f"{design_in_words(plan)}, {plan.counts}, {plan.num_gpus} GPU{'' if plan.num_gpus == 1 else 's'}"


def recommendation(answer: Answer) -> str:
    """The first plan, and how it was put to the test."""
    plan = answer.plans[0]
    check = plan.check
    assert check is not None
    served = answer.question.load_of(check.request_rate)
    return (
        f"Recommended for {number(served)} req/s: {plan_in_words(plan)}. Simulated as a whole with {check.num_seeds} fresh "
        f"seeds it holds {number(check.request_rate)} req/s, with {percent(check.attainment)} of requests good in the worst run."
    )


def who_wins(answer: Answer) -> str:
    """Disaggregated against colocated, whichever it is."""
    question = answer.question
    if len(question.kinds) == 1:
        return f"Only {question.kinds[0]} plans were searched."
    apart, colocated = best_of(answer.plans, DISAGGREGATED), best_of(answer.plans, COLOCATED)
    if apart is None or colocated is None:
        return _none_held(answer, DISAGGREGATED if apart is None else COLOCATED)
    if question.request_rate is None:
        ours, theirs, unit, better = apart.carries, colocated.carries, "req/s", "more"
        is_ours, margin = ours > theirs, max(ours, theirs) / min(ours, theirs) - 1
    else:
        ours, theirs = cost_of(question, apart), cost_of(question, colocated)
        unit, better = UNITS[question.objective], "less"
        is_ours, margin = ours < theirs, 1 - min(ours, theirs) / max(ours, theirs)
    if ours == theirs:
        return f"A tie: disaggregated or colocated, {number(ours)} {unit}."
    first, second = (ours, theirs) if is_ours else (theirs, ours)
    winner = "Disaggregation" if is_ours else "Colocation"
    return f"{winner} wins: {number(first)} {unit} against {number(second)}, {100 * margin:.0f} % {better}."


def cut_short(answer: Answer) -> str:
    """How much was not searched to the end, and why that is no loss."""
    num_found = sum(evaluation.request_rate is not None for _, evaluation in answer.evaluated)
    num_cut = len(answer.evaluated) - num_found
    return (
        f"{len(answer.evaluated)} kinds of instance were tried; {num_cut} were cut short, because one of them could not "
        "carry its share of a plan as good as the best, or meet the SLOs at all."
    )


def what_is_missing(answer: Answer) -> str:
    """Why an answer has no plan that held, and what would give one."""
    question = answer.question
    rate = question.request_rate
    wanted = "any load" if rate is None else _rate_in_words(question, rate)
    if answer.guesses:
        plan = answer.guesses[0]
        return (
            f"no plan for {wanted} held when simulated: in the last, {plan.counts}, what is short is {plan.limit}; "
            "allow more GPUs, a lower rate or looser SLOs"
        )
    if answer.beyond:
        plan, why = min(answer.beyond, key=lambda one: rank_of(question, one[0]))
        return f"no plan for {wanted} is within the limits: the least, {plan.counts}, {why}; raise the limit, lower the rate or loosen the SLOs"
    if not answer.evaluated:
        return f"{question.scenario.model.name} fits on no machine: {'; '.join(f'{one.what}, {one.reason}' for one in answer.infeasible)}"
    reasons = [_unable(answer, kind) for kind in question.kinds]
    if not all(reasons):
        return "not even the smallest plan is within the limits; allow more GPUs, dollars or watts"
    return f"no kind of instance serves {question.scenario.model.name} within its SLOs; the largest, {reasons[-1]}"


def _none_held(answer: Answer, kind: str) -> str:
    """That no plan of a kind held, and why as far as is known."""
    question = answer.question
    beyond = [(plan, why) for plan, why in answer.beyond if best_of([plan], kind)]
    if beyond:
        plan, why = min(beyond, key=lambda one: rank_of(question, one[0]))
        return f"No {kind} plan held: the least, {plan.counts}, {why}."
    guess = best_of(answer.guesses, kind)
    if guess is not None:
        return (
            f"No {kind} plan held: the best by its instances, {guess.counts} with {guess.num_gpus} GPUs, is no match."
        )
    reason = _unable(answer, kind)
    return f"No {kind} plan held{f': {reason}' if reason else ''}."


def _unable(answer: Answer, kind: str) -> str:
    """Why the largest instance of a role that none fills carries nothing; empty where all roles of a kind are filled."""
    able = {option.role for option, evaluation in answer.evaluated if evaluation.request_rate}
    unable = [
        (option, evaluation.reason)
        for role in _ROLES[kind]
        for option, evaluation in answer.evaluated
        if option.role == role and role not in able
    ]
    if not unable:
        return ""
    option, reason = max(unable, key=lambda one: (one[0].role == "prefill", one[0].machine.num_gpus))
    return f"{option.label}: {reason}"


def option_row(option: Option, evaluation: Evaluation) -> tuple[str, ...]:
    """Values of OPTION_COLUMNS."""
    rate, gpus = evaluation.request_rate, option.machine.num_gpus
    return (
        option.label,
        str(gpus),
        number(rate),
        number(None if rate is None else rate / gpus),
        evaluation.limit if rate is not None else evaluation.reason,
    )


def _rate_in_words(question: Question, rate: float) -> str:
    headroom = f" and {100 * question.headroom:g} % headroom" if question.headroom else ""
    return f"{number(rate)} req/s{headroom}"


def _targets(question: Question) -> dict[str, float]:
    slo = question.scenario.slo
    targets = {"TTFT": slo.ttft_ms, "TPOT": slo.tpot_ms, "E2E": slo.e2e_ms}
    return {name: value for name, value in targets.items() if value is not None}
