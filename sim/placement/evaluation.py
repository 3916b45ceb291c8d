"""How much instances of an option carry: a search of its own, or only whether it is good enough."""

from dataclasses import asdict, dataclass
from typing import Any

from cluster.errors import UserError
from scenario.loading import to_plain
from scenario.spec import Scenario
from sim.capacity import capacity_of
from sim.goodput import find_goodput
from sim.limits import limit_in_words
from sim.placement.option import Option
from sim.probe import Probe
from sim.sustain import Sampling
from sim.unloaded import unloaded


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`request_rate` is the goodput per instance; None with the reason when there is none worth knowing."""

    request_rate: float | None
    reason: str = ""
    limit: str = ""
    """What stands in the way of a higher rate, in words."""
    num_trials: int = 0


@dataclass(frozen=True, slots=True)
class EvaluationTask:
    """count: instances that share the load, which evens out their queues.

    required: the rate they must carry together to be worth a search; None to search in any case.
    """

    option: Option
    base: Scenario
    required: float | None
    sampling: Sampling
    relative_tolerance: float
    count: int = 1
    hint: float | None = None
    """Where a search begins."""

    def content(self) -> dict[str, Any]:
        """All that the result depends on, but the files that the scenario names."""
        return {
            "kind": "evaluation",
            "role": self.option.role,
            "scenario": {**to_plain(self.option.scenario(self.base, self.count)), "name": ""},
            "required": self.required,
            "hint": self.hint,
            "sampling": asdict(self.sampling),
            "relative_tolerance": self.relative_tolerance,
        }


def evaluate(task: EvaluationTask) -> Evaluation:
    """Search the goodput. SLOs that cannot be met are an answer, not an error."""
    try:
        probe = Probe(
            task.option.scenario(task.base, task.count),
            sampling=task.sampling,
            drift_limit=task.relative_tolerance,
            trim=task.option.trim,
        )
        if task.required is None:
            capacity = capacity_of(probe, hint=task.hint, relative_tolerance=task.relative_tolerance)
            found, limit = capacity.goodput, capacity.limit
        else:
            tolerance = task.relative_tolerance
            found = find_goodput(probe.at, hint=task.required, lowest=task.required, relative_tolerance=tolerance)
            passed, refusal = found.request_rate is not None, found.refusal
            limit = limit_in_words(refusal.verdict, unloaded(probe).usage) if passed and refusal else ""
    except UserError as error:
        return Evaluation(None, str(error))
    if found.request_rate is None:
        refusal = found.refusal
        assert refusal is not None
        why = refusal.verdict.verdict.reason
        return Evaluation(
            None, f"does not carry {refusal.request_rate:.3g} req/s: {why}", num_trials=len(found.history)
        )
    return Evaluation(found.request_rate / task.count, limit=limit, num_trials=len(found.history))
