"""What a search found: plans that held, those that were not needed, and what cannot be."""

from dataclasses import dataclass

from sim.placement.evaluation import Evaluation
from sim.placement.machine import Infeasible
from sim.placement.option import Option
from sim.placement.plan import Plan
from sim.placement.question import Question


@dataclass(frozen=True, slots=True)
class Answer:
    """All lists are ranked. `plans` held when simulated as wholes with fresh seeds; `guesses` go by the goodput of
    single instances and were not simulated, for something of their design is as good.
    """

    question: Question
    plans: list[Plan]
    guesses: list[Plan]
    beyond: list[tuple[Plan, str]]
    """Plans that break a limit of the question, and which."""
    evaluated: list[tuple[Option, Evaluation]]
    infeasible: list[Infeasible]
