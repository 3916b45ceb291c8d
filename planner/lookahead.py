"""The `lookahead` policy: try role changes in a copy of the cluster, and make the one with the best future.

Cheap estimates come first. While every role can carry what is asked of it, nothing is tried; else changes are
ranked by how well the roles would then carry it, and only the best few are run forward, beside doing nothing.
A change is made when its future has clearly more good requests: a constant load settles.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cluster.role import Role
from planner.decision import Decision, How, RoleOrder
from planner.demand import steady_part
from planner.moves import move
from planner.observation import Observation
from planner.tools import Tools

PATIENCE_S = 5.0
"""Time beyond the TTFT target in which a backlog should be worked off."""
MIN_FUTURES = 3
"""Doing nothing, and the two changes that look best."""
MIN_HORIZON_S = 2.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Serving instances by role."""

    prefill: int
    decode: int
    mixed: int = 0

    def __str__(self) -> str:
        return f"{self.prefill}P{self.decode}D" + (f"{self.mixed}M" if self.mixed else "")


@dataclass(frozen=True, slots=True)
class LookaheadMemory:
    wants: Counts | None = None
    """What the last tick would have liked."""
    votes: int = 0
    settled_s: float = float("-inf")
    changing: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change of roles, and the strain it would leave."""

    orders: tuple[RoleOrder, ...]
    counts: Counts
    strain: float


def lookahead_policy(
    observation: Observation, tools: Tools, memory: LookaheadMemory
) -> tuple[Decision, LookaheadMemory]:
    """One tick. Pure, as the rollout it is handed is."""
    settings = tools.config.lookahead
    observation = replace(observation, demand=steady_part(observation.demand, observation.now_s))
    counts = Counts(*(len(observation.serving(role)) for role in (Role.PREFILL, Role.DECODE, Role.MIXED)))
    if observation.changing():
        return _stay("a role change is under way", counts), LookaheadMemory(changing=True)
    if memory.changing:
        memory = LookaheadMemory(settled_s=observation.now_s)
    now_strain = strain(observation, tools, counts)
    if now_strain <= settings.strain and not _somebody_waits_long(observation, tools):
        calm = replace(memory, wants=None, votes=0)
        return _stay(f"every role carries its load (strain {now_strain:.2f})", counts), calm
    if observation.now_s - memory.settled_s < settings.cooldown_s:
        return _stay("the last change is too recent", counts), memory

    ranked = sorted(_candidates(observation, tools, counts), key=lambda one: (one.strain, len(one.orders)))
    num_futures, horizon_s = _effort(observation, tools)
    tried = [one for one in ranked if one.strain < now_strain][: num_futures - 1]
    if not tried:
        return _stay(f"no change would help (strain {now_strain:.2f})", counts), replace(memory, votes=0)
    seed = round(observation.now_s * 1000)
    assert tools.rollout is not None, "the driver hands a rollout to a planner that looks ahead"
    staying = tools.rollout(observation, (), horizon_s, seed)
    outlooks = [tools.rollout(observation, one.orders, horizon_s, seed) for one in tried]
    best, outlook = max(zip(tried, outlooks, strict=True), key=lambda pair: (pair[1].good, -len(pair[0].orders)))
    gain = outlook.good - staying.good
    if gain <= max(1.0, settings.margin * (staying.good + staying.bad)):
        reason = f"nothing is clearly better than {staying.good} good in {horizon_s:.3g} s"
        return _stay(reason, counts), replace(memory, wants=None, votes=0)
    votes = memory.votes + 1 if memory.wants == best.counts else 1
    if votes < settings.votes:
        reason = f"{best.counts} looks better (vote {votes} of {settings.votes})"
        return _stay(reason, counts), replace(memory, wants=best.counts, votes=votes)
    reason = f"{best.counts} promises {outlook.good} good requests in {horizon_s:.3g} s, {counts} {staying.good}"
    orders = tuple(replace(order, reason=reason) for order in best.orders)
    return Decision(orders, reason, best.counts.prefill, best.counts.decode), LookaheadMemory(changing=True)


def strain(observation: Observation, tools: Tools, counts: Counts) -> float:
    """Load over capacity of the role that is worse off, were there so many instances in each.

    Prefill: seconds of prompt work that come in per second, and what waits if it is to be worked off soon, per
    instance; a mixed instance counts for the prompt tokens it computes beside its decodes. Decode: time per
    token over its target, with the sequences that decode now or, once settled, with those that come.
    """
    engine, demand, targets = tools.engine, observation.demand, tools.targets
    assert engine is not None
    deciders, prefillers = counts.decode + counts.mixed, counts.prefill + counts.mixed
    if not deciders or not prefillers:
        return float("inf")
    rate, prompt, output = demand.request_rate, demand.prompt_tokens, demand.output_tokens
    sequences = sum(view.num_decoding + view.num_ready + view.num_incoming for view in observation.instances)
    context = sum(view.context_tokens for view in observation.instances) / sequences if sequences else 0.0
    batch = max(sequences / deciders, min(float(engine.max_batch), _settled(tools, observation, deciders)))
    context = max(context, prompt + output / 2)

    seconds_per_prompt = engine.seconds_per_prompt(prompt)
    queued = sum(view.queued_tokens for view in observation.instances)
    backlog_s = seconds_per_prompt * queued / prompt if prompt else 0.0
    work = rate * seconds_per_prompt + backlog_s / (min(targets.ttft_s, 60.0) + PATIENCE_S)
    share = 0.0
    if counts.mixed and prompt:
        share = engine.mixed_prompt_tokens_per_s(batch, context, prompt) * seconds_per_prompt / prompt
    prefill_strain = work / max(counts.prefill + counts.mixed * share, 1e-9)
    if targets.tpot_s == float("inf"):
        return prefill_strain
    tpot_s = max(engine.tpot_s(rate / deciders, output, prompt), engine.iteration_s(sequences / deciders, context))
    if counts.mixed and prompt:
        tpot_s = max(tpot_s, engine.mixed_step_s(batch, context, prompt))
    return max(prefill_strain, tpot_s / targets.tpot_s)


def _settled(tools: Tools, observation: Observation, deciders: int) -> float:
    demand = observation.demand
    assert tools.engine is not None
    context = demand.prompt_tokens + demand.output_tokens / 2
    return tools.engine.settled_batch(demand.request_rate / deciders, demand.output_tokens, context)


def _somebody_waits_long(observation: Observation, tools: Tools) -> bool:
    return any(view.oldest_wait_s > 0.5 * tools.targets.ttft_s for view in observation.instances)


def _effort(observation: Observation, tools: Tools) -> tuple[int, float]:
    """How many futures may be tried, and how long each is: what keeps a tick short where there is much to follow."""
    settings = tools.config.lookahead
    running = sum(
        view.num_waiting + view.num_prefilling + view.num_incoming + view.num_ready + view.num_decoding
        for view in observation.instances
    )
    rate = observation.demand.request_rate
    followed = running + rate * settings.horizon_s
    number = int(min(settings.max_rollouts, max(MIN_FUTURES, settings.max_followed / max(1.0, followed))))
    to_come = max(0.0, settings.max_followed / number - running)
    horizon_s = min(settings.horizon_s, to_come / rate) if rate else settings.horizon_s
    return number, max(horizon_s, min(MIN_HORIZON_S, settings.horizon_s))


def _candidates(observation: Observation, tools: Tools, counts: Counts) -> Iterator[Candidate]:
    """Some instances of one role to another, as far as the minimum of each allows."""
    for source, role, cause, how in _directions(tools):
        views = observation.serving(source)
        spare = len(views) - _minimum(tools, source)
        for number in range(1, min(spare, tools.config.lookahead.max_moves) + 1):
            after = _moved(counts, source, role, number)
            yield Candidate(move(views, number, role, cause, "", how), after, strain(observation, tools, after))


def _directions(tools: Tools) -> Iterator[tuple[Role, Role, str, How]]:
    yield Role.DECODE, Role.PREFILL, "prefill_gain", How.MIGRATE
    yield Role.PREFILL, Role.DECODE, "decode_gain", How.MIGRATE
    if tools.may_mix:
        yield Role.DECODE, Role.MIXED, "mix", How.FLIP
        yield Role.PREFILL, Role.MIXED, "mix", How.FLIP
        yield Role.MIXED, Role.PREFILL, "unmix", How.MIGRATE
        yield Role.MIXED, Role.DECODE, "unmix", How.FLIP


def _moved(counts: Counts, source: Role, role: Role, number: int) -> Counts:
    moved = {Role.PREFILL: counts.prefill, Role.DECODE: counts.decode, Role.MIXED: counts.mixed}
    moved[source] -= number
    moved[role] += number
    return Counts(moved[Role.PREFILL], moved[Role.DECODE], moved[Role.MIXED])


def _minimum(tools: Tools, source: Role) -> int:
    """How many must stay: KV on its way needs somebody whose role it is to take it."""
    config = tools.config
    return {Role.PREFILL: config.min_prefill, Role.DECODE: config.min_decode}.get(source, 0)


def _stay(reason: str, counts: Counts) -> Decision:
    return Decision((), reason, counts.prefill, counts.decode)
