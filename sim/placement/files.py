"""The folder of a plan: report.html, plan.json, and scenarios that `simulate` and `replay` run as they are.

scenario.yaml is the recommended one; colocated.yaml and disaggregated.yaml are the best of either kind.
"""

from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Any

from metrics.files import check_folder, to_json, write_files
from metrics.page import plots, render_page, table
from metrics.summary import baton_version
from scenario.loading import dump_scenario
from scenario.spec import Scenario
from sim.placement.answer import Answer
from sim.placement.designs import best_of
from sim.placement.figures import answer_figures
from sim.placement.fitting import FRESH_SEEDS
from sim.placement.plan import Plan
from sim.placement.question import KINDS, Question
from sim.placement.words import (
    LEGEND,
    OPTION_COLUMNS,
    PLAN_COLUMNS,
    cut_short,
    option_row,
    plan_row,
    question_in_words,
    recommendation,
    who_wins,
)
from sim.traffic import at_rate

INDEX = "plan.json"
SCHEMA = "baton.plan/1"
_MOST_GUESSES = 20


class PlanFolder:
    """`out_dir`, which must be empty or hold an earlier plan; raises ConfigError when not."""

    def __init__(self, out_dir: str | Path) -> None:
        self.path = Path(out_dir)
        check_folder(self.path, index=INDEX, schema=SCHEMA)

    def write(self, answer: Answer) -> None:
        best = {kind: best_of(answer.plans, kind) for kind in KINDS}
        scenario = dump_scenario(scenario_of(answer.question, answer.plans[0]))
        write_files(
            self.path,
            {
                "scenario.yaml": [scenario.encode()],
                **{
                    f"{kind}.yaml": None
                    if plan is None
                    else [dump_scenario(scenario_of(answer.question, plan)).encode()]
                    for kind, plan in best.items()
                },
                "report.html": [render_answer(answer, scenario)],
                INDEX: [to_json(as_json(answer))],
            },
        )


def scenario_of(question: Question, plan: Plan) -> Scenario:
    """The cluster of a plan that held (or one of its units) with its share of the traffic, drawn with a fresh seed."""
    assert plan.check is not None
    base = question.scenario
    whole = plan.scenario(base, question.gpus_per_node)
    share = at_rate(whole, question.load_of(plan.check.request_rate) / plan.units, question.sampling.max_requests)
    return replace(share, seed=base.seed + FRESH_SEEDS[0])


def as_json(answer: Answer) -> dict[str, Any]:
    """Everything, as plain data."""
    question = answer.question
    return {
        "schema": SCHEMA,
        "version": baton_version(),
        "question": question_in_words(question),
        "objective": question.objective,
        "request_rate": question.request_rate,
        "headroom": question.headroom,
        "slo": asdict(question.scenario.slo),
        "recommendation": recommendation(answer),
        "comparison": who_wins(answer),
        "plans": [_plan_json(question, plan) for plan in answer.plans],
        "not_simulated": [_plan_json(question, plan) for plan in answer.guesses],
        "beyond_limits": [{**_plan_json(question, plan), "limit_broken": why} for plan, why in answer.beyond],
        "instances": [
            {"instance": option.label, "num_gpus": option.machine.num_gpus, **asdict(evaluation)}
            for option, evaluation in answer.evaluated
        ],
        "infeasible": [asdict(one) for one in answer.infeasible],
    }


def _plan_json(question: Question, plan: Plan) -> dict[str, Any]:
    return {
        "design": plan.design,
        "instances": plan.counts,
        "units": plan.units,
        "groups": [
            {
                "role": group.role,
                "gpu": group.machine.gpu.name,
                "tp": group.machine.tp,
                "pp": group.machine.pp,
                "power_cap": group.machine.power_cap,
                "count": group.count,
                "batching": group.option.batching or None,
                "goodput": group.goodput,
            }
            for group in plan.groups
        ],
        "num_gpus": plan.num_gpus,
        "usd_per_hour": plan.usd_per_hour or None,
        "watts": plan.watts or None,
        "goodput_per_gpu": plan.goodput_per_gpu,
        "rounding_loss": None if question.sized_for is None else plan.rounding_loss(question.sized_for),
        "carries": plan.carries,
        "short_first": plan.limit,
        "check": None if plan.check is None else asdict(plan.check),
    }


def render_answer(answer: Answer, scenario_yaml: str) -> bytes:
    """The page as UTF-8; it loads nothing."""
    question = answer.question
    figures = answer_figures(answer)
    held = [plan_row(question, plan) for plan in answer.plans]
    parts = [
        f"<p>{escape(recommendation(answer))}</p><p>{escape(who_wins(answer))}</p>",
        f"<h2>Plans that held when simulated as wholes</h2>{table(PLAN_COLUMNS, held)}",
        f'<p class="quiet">{escape(LEGEND)}</p>',
        f"<h2>Plots</h2>{plots(figures)}",
    ]
    if answer.guesses:
        rows = [plan_row(question, plan) for plan in answer.guesses[:_MOST_GUESSES]]
        parts.append(f"<h2>By the goodput of single instances</h2>{table(PLAN_COLUMNS, rows)}")
        parts.append('<p class="quiet">Not simulated as wholes: a plan of the same design is as good or better.</p>')
    if answer.beyond:
        rows = [(*plan_row(question, plan)[:3], why) for plan, why in answer.beyond[:_MOST_GUESSES]]
        parts.append(f"<h2>Beyond a limit</h2>{table((*PLAN_COLUMNS[:3], 'why not'), rows)}")
    rows = [option_row(option, evaluation) for option, evaluation in answer.evaluated]
    parts.append(f'<h2>Instances</h2>{table(OPTION_COLUMNS, rows)}<p class="quiet">{escape(cut_short(answer))}</p>')
    if answer.infeasible:
        rows = [(one.what, one.reason) for one in answer.infeasible]
        parts.append(f"<h2>What cannot be</h2>{table(('machine', 'why not'), rows)}")
    parts.append(
        f'<h2>Scenario</h2><details class="card"><summary>To simulate or replay</summary>'
        f"<pre>{escape(scenario_yaml)}</pre></details>"
    )
    title = f"A plan for {question.scenario.model.name}"
    return render_page(title, question_in_words(question), "\n".join(parts), figures.values())
