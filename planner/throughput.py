"""The `throughput` policies: as many instances of each role as predicted demand takes, each at its best within the SLO.

After the SLA planner of NVIDIA Dynamo, on a fixed number of instances: what is needed is scaled to what there is.
`throughput_corrected` is its older form: it trusts the engine model only as far as latencies bear it out. Two brakes
are ours: a split that carries the predicted demand is left alone, and so is one that a change would hardly relieve.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, inf

from cluster.role import Role
from planner.config import PlannerConfig
from planner.decision import Decision, How
from planner.engine import EngineModel
from planner.history import History, Load, expected
from planner.moves import towards
from planner.observation import Observation
from planner.tools import Tools

Split = tuple[int, int]
"""Prefill and decode instances."""


@dataclass(frozen=True, slots=True)
class ThroughputMemory:
    history: History = field(default_factory=History)
    wants: Split | None = None
    """The split it is going to; None when it is there."""
    reason: str = "demand has not been seen for long enough"
    settled_s: float = -inf
    """When it last arrived."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """Observed over expected latency. As in Dynamo, TTFT only ever lowers the load, for queueing inflates it."""

    ttft: float = 1.0
    itl: float = 1.0


def prefill_capacity(engine: EngineModel, prompt_tokens: float, ttft_s: float) -> float:
    """Requests/s of one instance: the largest b / TTFT(b) over batches of b prompts whose TTFT is within the target.

    A prompt that is too long for the target even alone is taken alone; infinite when there are no prompts.
    """
    if prompt_tokens <= 0:
        return inf
    best = 0.0
    for batch in range(1, engine.max_batch + 1):
        step_s = engine.prefill_s(prompt_tokens, batch)
        if step_s > ttft_s and best:
            break
        best = max(best, batch / step_s)
    return best


def decode_capacity(engine: EngineModel, prompt_tokens: float, output_tokens: float, itl_s: float) -> float:
    """Requests/s of one instance: the largest b / (OSL x ITL(b)) at context ISL + OSL/2 with ITL(b) within the target.

    b also has to fit the KV. A single sequence is taken even when it is over the target; infinite without outputs.
    """
    if output_tokens <= 0:
        return inf
    context = prompt_tokens + output_tokens / 2
    largest = max(1, min(engine.max_batch, int(engine.kv_capacity_tokens / context)))
    best = 0.0
    for batch in range(1, largest + 1):
        iteration_s = engine.iteration_s(batch, context)
        if iteration_s > itl_s and best:
            break
        best = max(best, batch / (output_tokens * iteration_s))
    return best


def fit(needed: Split, config: PlannerConfig, total: int) -> Split:
    """`needed`, which is at least the minimum of each role, in proportion on `total` instances.

    When they are too few neither role gets more than it needs, and when they are enough neither gets less.
    """
    prefill = round(total * needed[0] / sum(needed))
    prefill = max(config.min_prefill, min(prefill, total - config.min_decode))
    return prefill, total - prefill


def throughput_policy(
    observation: Observation, tools: Tools, memory: ThroughputMemory, *, corrected: bool = False
) -> tuple[Decision, ThroughputMemory]:
    """One tick. Demand is judged once per interval of the predictor, changes are made one tick after the other."""
    config = tools.config
    split = len(observation.serving(Role.PREFILL)), len(observation.serving(Role.DECODE))
    history = memory.history.followed_by(observation.demand, observation.now_s, config.predictor.interval_s)
    is_new = history is not memory.history
    memory = replace(memory, history=history)
    if observation.changing():
        return Decision((), "a role change is under way", *split), memory
    if memory.wants is not None and (memory.wants == split or sum(memory.wants) != sum(split)):
        memory = replace(memory, wants=None, settled_s=observation.now_s)
    if is_new and observation.now_s - memory.settled_s >= config.throughput.cooldown_s:
        load = expected((*tools.past, *history.loads), config.predictor)
        corrections = observed_corrections(observation, tools) if corrected else Corrections()
        wants, reason = wanted(load, split, tools, corrections)
        memory = replace(memory, wants=wants, reason=reason)
    if memory.wants is None:
        return Decision((), memory.reason, *split), memory
    cause = "prefill_throughput" if memory.wants[0] > split[0] else "decode_throughput"
    orders = towards(memory.wants, observation, config.max_changes_per_tick, cause, memory.reason, How(config.how))
    return Decision(orders, memory.reason, *memory.wants), memory


corrected_throughput_policy = partial(throughput_policy, corrected=True)


def wanted(load: Load, split: Split, tools: Tools, corrections: Corrections) -> tuple[Split | None, str]:
    """The split that `load` calls for, None when it is best to stay, and why."""
    engine, targets = tools.engine, tools.targets
    assert engine is not None, "the driver hands an engine model to a planner that computes capacities"
    rate = load.request_rate
    work = (
        rate * min(1.0, corrections.ttft) / prefill_capacity(engine, load.prompt_tokens, targets.ttft_s),
        rate / decode_capacity(engine, load.prompt_tokens, load.output_tokens, targets.tpot_s / corrections.itl),
    )
    needed = max(tools.config.min_prefill, ceil(work[0])), max(tools.config.min_decode, ceil(work[1]))
    reason = (
        f"{rate:.1f} req/s of {load.prompt_tokens:,.0f} + {load.output_tokens:,.0f} tokens expected, "
        f"which takes {needed[0]}P{needed[1]}D"
    )
    if needed[0] <= split[0] and needed[1] <= split[1]:
        return None, reason
    better = fit(needed, tools.config, sum(split))
    if _strain(work, better) >= (1.0 - tools.config.throughput.margin) * _strain(work, split):
        return None, f"{reason}; {better[0]}P{better[1]}D would hardly help"
    return better, reason


def observed_corrections(observation: Observation, tools: Tools) -> Corrections:
    """Mean TTFT of what ended lately, and iterations under way, over what the engine model expects of them.

    An iteration of an instance that has just changed its role says nothing yet; 1 where there is nothing to compare.
    """
    engine, demand = tools.engine, observation.demand
    assert engine is not None
    ttft = itl = 1.0
    if demand.mean_ttft_s is not None:
        ttft = demand.mean_ttft_s / engine.prefill_s(demand.ended_prompt_tokens)
    settled = [
        view
        for view in observation.serving(Role.DECODE)
        if view.num_decoding
        and view.iteration_s
        and (not view.epoch or observation.now_s - view.serving_since_s >= tools.config.throughput.warm_up_s)
    ]
    if settled:
        due_s = sum(engine.iteration_s(view.num_decoding, view.context_tokens / view.num_decoding) for view in settled)
        itl = sum(view.iteration_s for view in settled) / due_s
    return Corrections(ttft, itl)


def _strain(work: tuple[float, float], split: Split) -> float:
    """Work over instances of the role that is worse off."""
    return max(amount / count if count else inf for amount, count in zip(work, split, strict=True))
