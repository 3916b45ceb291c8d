"""The search for a plan: evaluate options, cheap ones first, combine them, and simulate the best as wholes.

A machine with several stages, or another way of batching, is searched only where one instance carries what
it must for its role to cost no more than `_SLACK` times the best so far: a single rate decides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from math import floor
from typing import Any, Protocol, TypeVar

from cluster.errors import ConfigError
from cluster.role import Role
from sim.placement.answer import Answer
from sim.placement.bounds import upper_bound
from sim.placement.cache import ResultCache
from sim.placement.designs import COLOCATED, DISAGGREGATED, excess, plans_of, rank_of, ranked
from sim.placement.evaluation import Evaluation, EvaluationTask, evaluate
from sim.placement.fitting import Fit, FitTask, fit
from sim.placement.leading import AT_A_TIME, HOPELESS, distinct, leading_plans
from sim.placement.machine import Infeasible, segments, shapes
from sim.placement.option import Option, colocated, halves
from sim.placement.plan import Group, Plan, instances_for
from sim.placement.question import Question
from sim.placement.words import what_is_missing
from sim.traffic import Traffic

_SLACK = 1.25
_NUM_LENGTHS = 2000
"""Requests whose lengths stand for all."""
_BATCH = 12
"""Options evaluated between two looks at the best so far."""
_MOST_ROUNDS = 12
_REACH = 1.5
"""How many times the GPUs there are a plan may need, and still turn out to fit."""


class Task(Protocol):
    def content(self) -> Mapping[str, Any]: ...


T = TypeVar("T", bound=Task)
R = TypeVar("R")


class Mapper(Protocol):
    """`sim.parallel.map_parallel` with where it runs settled."""

    def __call__(
        self, function: Callable[[T], R], items: Sequence[T], /, *, on_done: Callable[[int, R], None] | None = None
    ) -> list[R]: ...


Progress = Callable[[int, str], None]
"""Told how many of `PlanSearch.num_steps` are done, and the best plan so far in words."""


class PlanSearch:
    """One search; `run` does it. Raises ConfigError, with what is missing, when no plan is feasible."""

    def __init__(self, question: Question, *, mapper: Mapper, cache: ResultCache) -> None:
        self._question = question
        self._map = mapper
        self._cache = cache
        self._progress: Progress = _untold
        self._infeasible: list[Infeasible] = []
        self._competing = self._options()
        self._requests = Traffic(question.scenario).trace(1.0, _NUM_LENGTHS)
        self._evaluated: dict[Option, Evaluation] = {}
        self._num_done = 0
        self._best = ""

    @property
    def num_steps(self) -> int:
        """Roughly, at most: it ends as soon as no better plan is left to simulate."""
        return sum(map(len, self._competing)) + AT_A_TIME * _MOST_ROUNDS

    def run(self, progress: Progress) -> Answer:
        self._progress = progress
        for batch in _in_batches(self._competing):
            self._evaluate(batch)
            self._best = self._best_in_words()
        found = self._found()
        pooled = self._pooled(found, plans_of(self._question, found))
        plans, beyond = self._simulated(plans_of(self._question, pooled))
        answer = Answer(
            question=self._question,
            plans=[plan for plan in plans if plan.check is not None],
            guesses=[plan for plan in plans if plan.check is None],
            beyond=beyond,
            evaluated=list(self._evaluated.items()),
            infeasible=self._infeasible,
        )
        if not answer.plans:
            raise ConfigError(what_is_missing(answer))
        return answer

    def _options(self) -> list[list[Option]]:
        """By what they compete for; in each list the cheapest to evaluate first."""
        question = self._question
        competing: dict[tuple[str, bool], list[Option]] = {}
        for pool in question.pools:
            machines, unfit = shapes(question.scenario.model, pool, question.gpus_per_node)
            self._infeasible += unfit
            spread = segments(question.scenario.model, pool, question.gpus_per_node)
            options: list[Option] = []
            if DISAGGREGATED in question.kinds:
                options += halves(question, machines, spread)
            if COLOCATED in question.kinds:
                options += colocated(question, machines)
            for option in options:
                competing.setdefault((option.role, option.is_near), []).append(option)
        return list(competing.values())

    def _evaluate(self, options: Sequence[Option]) -> None:
        question = self._question
        tasks: dict[Option, EvaluationTask] = {}
        for option in options:
            required = self._required(option)
            bound, cause = upper_bound(option.scenario(question.scenario), Role(option.role), self._requests)
            if required == 0.0:
                self._evaluated[option] = Evaluation(None, "one instance costs more than all of the best plan's")
            elif required is not None and required > bound:
                why = f"carries no more than {bound:.3g} req/s by {cause}, and {required:.3g} are needed"
                self._evaluated[option] = Evaluation(None, why)
            else:
                base, sampling = question.scenario, question.sampling
                tasks[option] = EvaluationTask(option, base, required, sampling, question.relative_tolerance)
        results = self._run(evaluate, list(tasks.values()), Evaluation)
        self._evaluated |= dict(zip(tasks, results, strict=True))

    def _required(self, option: Option) -> float | None:
        """What an instance must carry to be of interest; None for anything, 0 where nothing is enough."""
        question = self._question
        rivals = [
            (question.cost(other.machine), evaluation.request_rate)
            for other, evaluation in self._evaluated.items()
            if (other.role, other.is_near) == (option.role, option.is_near) and evaluation.request_rate
        ]
        if not rivals or (option.machine.pp == 1 and not option.is_unusual):
            return None
        cost = question.cost(option.machine)
        rate = question.sized_for
        if rate is None:
            return cost * max(other / price for price, other in rivals) / _SLACK
        best = min(price * instances_for(rate, other) for price, other in rivals)
        most = floor(_SLACK * best / cost)
        return rate / most if most else 0.0

    def _found(self) -> list[Group]:
        return [
            Group(option, 1, evaluation.request_rate, evaluation.limit)
            for option, evaluation in self._evaluated.items()
            if evaluation.request_rate
        ]

    def _pooled(self, found: Sequence[Group], plans: Sequence[Plan]) -> list[Group]:
        """The goodput of options that are in a plan worth a look, as many together as there."""
        question = self._question
        least = min((rank_of(question, plan) for plan in plans), default=0.0)
        most_gpus = _REACH * sum(pool.count for pool in question.pools)
        counts: dict[Option, int] = {}
        for plan in plans:
            if rank_of(question, plan) <= least + HOPELESS * abs(least) and plan.num_gpus <= most_gpus:
                for group in plan.groups:
                    counts.setdefault(group.option, group.count)
        pools = [replace(group, count=counts[group.option]) for group in found if counts.get(group.option, 1) > 1]
        tasks = [
            EvaluationTask(
                pool.option,
                question.scenario,
                required=None,
                sampling=question.sampling,
                relative_tolerance=question.relative_tolerance,
                count=pool.count,
                hint=pool.count * pool.goodput,
            )
            for pool in pools
        ]
        results = self._run(evaluate, tasks, Evaluation)
        better = {
            pool.option: replace(pool, count=1, goodput=result.request_rate, limit=result.limit)
            for pool, result in zip(pools, results, strict=True)
            if result.request_rate is not None and result.request_rate > pool.goodput
        }
        return [better.get(group.option, group) for group in found]

    def _simulated(self, plans: Sequence[Plan]) -> tuple[list[Plan], list[tuple[Plan, str]]]:
        """Simulate, of each design, whichever plan seems best until one that held is; those beyond a limit apart.

        A plan that does not hold goes on with an instance more, and so at another rank.
        """
        question = self._question
        beyond: list[tuple[Plan, str]] = []
        for _ in range(_MOST_ROUNDS):
            broken = [(plan, excess(question, plan)) for plan in plans]
            beyond += [(plan, why) for plan, why in broken if why]
            plans = ranked(question, (plan for plan, why in broken if not why))
            leading = leading_plans(question, plans)
            if not leading:
                break
            fits = self._run(fit, [FitTask(plan, question) for plan in leading], Fit)
            settled = {id(plan): made.applied(plan) for plan, made in zip(leading, fits, strict=True)}
            plans = distinct(ranked(question, [settled.get(id(plan), plan) for plan in plans]))
        return list(plans), beyond

    def _run(self, function: Callable[[T], R], tasks: Sequence[T], kind: Callable[..., R]) -> list[R]:
        """Results from the cache or, together, from where tasks run."""
        results: dict[int, R] = {}
        for index, task in enumerate(tasks):
            kept = self._cache.get(task.content())
            if kept is not None:
                results[index] = kind(**kept)
                self._step()
        missing = [index for index in range(len(tasks)) if index not in results]

        def take(number: int, result: R) -> None:
            index = missing[number]
            results[index] = result
            self._cache.put(tasks[index].content(), asdict(result))  # type: ignore[call-overload]
            self._step()

        self._map(function, [tasks[index] for index in missing], on_done=take)
        return [results[index] for index in range(len(tasks))]

    def _step(self) -> None:
        self._num_done += 1
        self._progress(self._num_done, self._best)

    def _best_in_words(self) -> str:
        plans = plans_of(self._question, self._found())
        return f"best so far: {plans[0].counts}, {plans[0].num_gpus} GPUs" if plans else ""


def _untold(num_done: int, best: str) -> None:
    """Nobody listens."""


def _in_batches(competing: Sequence[Sequence[Option]]) -> list[list[Option]]:
    """The usual options of every role first, and then the others a few at a time."""
    usual = [option for options in competing for option in options if not option.is_unusual and option.machine.pp == 1]
    rest = [option for options in competing for option in options if option not in set(usual)]
    return [usual, *(rest[at : at + _BATCH] for at in range(0, len(rest), _BATCH))]
