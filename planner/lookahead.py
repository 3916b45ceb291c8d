"""The `lookahead` policy: try role changes in a copy of the cluster, and make the one with the best future.

Cheap estimates come first. While every role can carry what is asked of it, nothing is tried; else changes are
ranked by how well the roles would then carry it, and only the best few are run forward, beside doing nothing.
A change is made when its future has clearly more good requests: a constant load settles.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cluster.role import Role
from planner.config import PlannerConfig
from planner.decision import Decision, How, RoleOrder
from planner.demand import steady_part
from planner.moves import move
from planner.observation import Observation
from planner.tools import Tools

PATIENCE_S = 5.0
"""Time beyond the TTFT target in which a backlog should be worked off."""


@dataclass(frozen=True, slots=True)
class LookaheadMemory:
    wants: tuple[int, int] | None = None
    """Prefill and decode counts that the last tick would have liked."""
    votes: int = 0
    settled_s: float = float("-inf")
    changing: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change of roles, and the strain it would leave."""

    orders: tuple[RoleOrder, ...]
    prefill: int
    decode: int
    strain: float


def lookahead_policy(
    observation: Observation, tools: Tools, memory: LookaheadMemory
) -> tuple[Decision, LookaheadMemory]:
    """One tick. Pure, as the rollout it is handed is."""
    settings = tools.config.lookahead
    observation = replace(observation, demand=steady_part(observation.demand, observation.now_s))
    prefill, decode = len(observation.serving(Role.PREFILL)), len(observation.serving(Role.DECODE))
    if observation.changing():
        return _stay("a role change is under way", prefill, decode), LookaheadMemory(changing=True)
    if memory.changing:
        memory = LookaheadMemory(settled_s=observation.now_s)
    now_strain = strain(observation, tools, prefill, decode)
    if now_strain <= settings.strain and not _somebody_waits_long(observation, tools):
        calm = replace(memory, wants=None, votes=0)
        return _stay(f"every role carries its load (strain {now_strain:.2f})", prefill, decode), calm
    if observation.now_s - memory.settled_s < settings.cooldown_s:
        return _stay("the last change is too recent", prefill, decode), memory

    ranked = sorted(_candidates(observation, tools, prefill, decode), key=lambda one: (one.strain, len(one.orders)))
    tried = [one for one in ranked if one.strain < now_strain][: settings.max_rollouts - 1]
    if not tried:
        return _stay(f"no change would help (strain {now_strain:.2f})", prefill, decode), replace(memory, votes=0)
    seed = round(observation.now_s * 1000)
    assert tools.rollout is not None, "the driver hands a rollout to a planner that looks ahead"
    staying = tools.rollout(observation, (), settings.horizon_s, seed)
    outlooks = [tools.rollout(observation, one.orders, settings.horizon_s, seed) for one in tried]
    best, outlook = max(zip(tried, outlooks, strict=True), key=lambda pair: (pair[1].good, -len(pair[0].orders)))
    gain = outlook.good - staying.good
    if gain <= max(1.0, settings.margin * (staying.good + staying.bad)):
        reason = f"nothing is clearly better than {staying.good} good in {settings.horizon_s:g} s"
        return _stay(reason, prefill, decode), replace(memory, wants=None, votes=0)
    wants = (best.prefill, best.decode)
    votes = memory.votes + 1 if memory.wants == wants else 1
    if votes < settings.votes:
        reason = f"{best.prefill}P{best.decode}D looks better (vote {votes} of {settings.votes})"
        return _stay(reason, prefill, decode), replace(memory, wants=wants, votes=votes)
    reason = (
        f"{best.prefill}P{best.decode}D promises {outlook.good} good requests in {settings.horizon_s:g} s, "
        f"{prefill}P{decode}D {staying.good}"
    )
    orders = tuple(replace(order, reason=reason) for order in best.orders)
    return Decision(orders, reason, best.prefill, best.decode), LookaheadMemory(changing=True)


def strain(observation: Observation, tools: Tools, prefill: int, decode: int) -> float:
    """Load over capacity of the role that is worse off, were there so many instances in each.

    Prefill: seconds of prompt work that come in per second, and what waits if it is to be done within the TTFT
    target, per instance. Decode: time per token over its target, with the sequences that decode now or, once
    settled, with those that come.
    """
    engine, demand = tools.engine, observation.demand
    assert engine is not None
    if not prefill or not decode:
        return float("inf")
    rate, prompt, output = demand.request_rate, demand.prompt_tokens, demand.output_tokens
    queued = sum(view.queued_tokens for view in observation.instances)
    backlog_s = engine.seconds_per_prompt(prompt) * queued / prompt if prompt else 0.0
    patience_s = max(tools.targets.ttft_s, 1e-9)
    prefill_strain = (rate * engine.seconds_per_prompt(prompt) + backlog_s / (patience_s + PATIENCE_S)) / prefill
    sequences = sum(view.num_decoding + view.num_ready + view.num_incoming for view in observation.instances)
    context = sum(view.context_tokens for view in observation.instances) / sequences if sequences else 0.0
    tpot_s = max(engine.tpot_s(rate / decode, output, prompt), engine.iteration_s(sequences / decode, context))
    return max(prefill_strain, tpot_s / tools.targets.tpot_s if tools.targets.tpot_s < float("inf") else 0.0)


def _somebody_waits_long(observation: Observation, tools: Tools) -> bool:
    return any(view.oldest_wait_s > 0.5 * tools.targets.ttft_s for view in observation.instances)


def _candidates(observation: Observation, tools: Tools, prefill: int, decode: int) -> Iterator[Candidate]:
    """Some instances of one role to the other, as far as the minimum of each allows."""
    config, settings = tools.config, tools.config.lookahead
    for source, role, cause in (
        (Role.DECODE, Role.PREFILL, "prefill_gain"),
        (Role.PREFILL, Role.DECODE, "decode_gain"),
    ):
        views = observation.serving(source)
        spare = len(views) - _minimum(config, source)
        for count in range(1, min(spare, settings.max_moves) + 1):
            step = count if role is Role.PREFILL else -count
            left = strain(observation, tools, prefill + step, decode - step)
            yield Candidate(move(views, count, role, cause, "", How.MIGRATE), prefill + step, decode - step, left)


def _minimum(config: PlannerConfig, role: Role) -> int:
    return config.min_prefill if role is Role.PREFILL else config.min_decode


def _stay(reason: str, prefill: int, decode: int) -> Decision:
    return Decision((), reason, prefill, decode)
