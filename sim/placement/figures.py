"""Plots of an answer: what each design carries at what cost, and which machines suit which role."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from metrics.figure import GREEN, ROLE_COLORS, Figure, figure, line, line_style, mark
from sim.placement.answer import Answer
from sim.placement.designs import cost_of
from sim.placement.plan import Plan, instances_for
from sim.placement.question import Question
from sim.placement.words import UNITS, plan_in_words

_REACH = 2.0
"""The cost axis ends at so many times the cost of the dearest plan that held."""


def answer_figures(answer: Answer) -> dict[str, Figure]:
    """Title and figure of every plot."""
    return {
        f"What each design carries, by {UNITS[answer.question.objective]}": _frontiers(answer),
        "Goodput of one instance, per GPU": _goodputs(answer),
    }


def _frontiers(answer: Answer) -> Figure:
    """The most that a cost buys, a line per design; plans that held as points, the rate asked for dashed."""
    question = answer.question
    reach = _REACH * max(cost_of(question, plan) for plan in answer.plans)
    series = []
    for index, (design, examples) in enumerate(_by_design([*answer.plans, *answer.guesses]).items()):
        cost, rate = _frontier(question, examples, reach)
        style = {**line_style(index), "shape": "hv"}
        series.append(
            line(cost, rate, design, style, hovertemplate=f"{design}: %{{y:.3g}} req/s for %{{x:.4g}}<extra></extra>")
        )
    series.append(_held(question, answer.plans))
    shapes = {} if question.request_rate is None else {"shapes": [mark(question.request_rate, axis="y")]}
    return figure(series, UNITS[question.objective], "req/s", height=380, xaxis={"rangemode": "tozero"}, **shapes)


def _held(question: Question, plans: Sequence[Plan]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "held when simulated",
        "x": [cost_of(question, plan) for plan in plans],
        "y": [round(plan.carries, 4) for plan in plans],
        "text": [plan_in_words(plan) for plan in plans],
        "marker": {"color": GREEN, "size": 10, "symbol": "diamond", "line": {"width": 1, "color": "#ffffff"}},
        "hovertemplate": "%{text}: %{y:.3g} req/s for %{x:.4g}<extra></extra>",
    }


def _by_design(plans: Sequence[Plan]) -> dict[str, list[Plan]]:
    designs: dict[str, list[Plan]] = {}
    for plan in plans:
        designs.setdefault(plan.design, []).append(plan)
    return designs


def _frontier(question: Question, examples: Sequence[Plan], reach: float) -> tuple[Any, Any]:
    """Cost and rate of every size that carries more than all that cost less."""
    points = sorted({point for plan in examples for point in _sizes(question, plan, reach)})
    cost, rate, most = [0.0], [0.0], 0.0
    for price, carried in points:
        if carried > most:
            most = carried
            cost.append(price)
            rate.append(carried)
    return np.array([*cost, reach]), np.array([*rate, most])


def _sizes(question: Question, plan: Plan, reach: float) -> Iterator[tuple[float, float]]:
    """(cost, rate) of the plan with any numbers of instances, or of units."""
    if plan.is_unit or len(plan.groups) == 1:
        count = plan.units if plan.is_unit else plan.groups[0].count
        price, carried = cost_of(question, plan) / count, plan.carries / count
        yield from ((copies * price, copies * carried) for copies in range(1, int(reach / price) + 1))
        return
    prefill, decode = plan.groups
    prices = question.cost(prefill.machine), question.cost(decode.machine)
    for num_prefill in range(1, int(reach / prices[0]) + 1):
        enough = instances_for(num_prefill * prefill.goodput, decode.goodput)
        for num_decode in {max(1, enough - 1), enough}:
            cost = num_prefill * prices[0] + num_decode * prices[1]
            if cost <= reach:
                yield cost, min(num_prefill * prefill.goodput, num_decode * decode.goodput)


def _goodputs(answer: Answer) -> Figure:
    """Bars by machine, of each role; of colocated batchings the best."""
    bars = []
    for role, is_near in (("prefill", False), ("decode", False), ("mixed", False)):
        best: dict[str, float] = {}
        for option, evaluation in answer.evaluated:
            if (option.role, option.is_near) == (role, is_near) and evaluation.request_rate is not None:
                per_gpu = evaluation.request_rate / option.machine.num_gpus
                best[option.machine.label] = max(per_gpu, best.get(option.machine.label, 0.0))
        bars.append(
            {
                "type": "bar",
                "name": role if role != "mixed" else "colocated",
                "x": list(best),
                "y": [round(value, 4) for value in best.values()],
                "marker": {"color": ROLE_COLORS[role]},
                "hovertemplate": "%{x}: %{y:.3g} req/s per GPU",
            }
        )
    return figure(bars, "", "req/s per GPU", height=340, barmode="group", xaxis={"type": "category"})
