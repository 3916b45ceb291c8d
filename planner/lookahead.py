"""The `lookahead` policy: try role changes in a copy of the cluster, and make the one with the best future.

Cheap estimates come first. While every role can carry what is asked of it, nothing is tried; else changes are
ranked by how well the roles would then carry it, and only the best few are run forward, beside doing nothing.
A change is made when its future has clearly more good requests, twice: a constant load settles.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from cluster.role import Role
from planner.decision import Decision, How, RoleOrder
from planner.demand import steady_part
from planner.limits import least_of
from planner.moves import move
from planner.observation import Observation
from planner.tools import Outlook, Tools

PATIENCE_S = 5.0
"""Time beyond the TTFT target in which a backlog should be worked off."""
MIN_FUTURES = 3
"""Doing nothing, and the two changes that look best."""
MIN_HORIZON_S = 2.0
SHARE_OF_SECOND_LOOK = 0.4
"""Of the requests that may be followed in a tick."""
STANDARD_ERRORS = 2.0
"""Of a number of bad requests: a smaller gain may be chance, above all where most requests are bad."""
FLOODED = 0.5
"""Share of good requests below which counts say little, and the least strain wins if it is less than RELIEF of now's."""
RELIEF = 0.9


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
    lately = replace(observation, demand=steady_part(observation.demand, observation.now_s))
    counts = Counts(*(len(observation.serving(role)) for role in (Role.PREFILL, Role.DECODE, Role.MIXED)))
    if observation.changing():
        return _stay("a role change is under way", counts), LookaheadMemory(changing=True)
    if memory.changing:
        memory = LookaheadMemory(settled_s=observation.now_s)
    now_strain = strain(lately, tools, counts)
    in_trouble = _somebody_waits_long(observation, tools) or _requests_go_bad(observation, tools)
    if now_strain <= settings.strain and not in_trouble:
        return _stay(f"every role carries its load (strain {now_strain:.2f})", counts), memory
    if observation.now_s - memory.settled_s < settings.cooldown_s:
        return _stay("the last change is too recent", counts), memory

    candidates = [one for one in _candidates(lately, tools, counts) if in_trouble or one.strain < now_strain]
    if not candidates:
        return _stay(f"no change would help (strain {now_strain:.2f})", counts), memory
    best, now, then = _best(_most_promising(candidates), lately, tools, now_strain)
    if best is None:
        reason = f"nothing is clearly better than {now.good} good of {now.good + now.bad}"
        return _stay(reason, counts), memory
    reason = f"{best.counts} promises {then.good} good requests of {then.good + then.bad}, {counts} {now.good}"
    orders = tuple(replace(order, reason=reason) for order in best.orders)
    return Decision(orders, reason, best.counts.prefill, best.counts.decode), LookaheadMemory(changing=True)


def _best(
    ranked: Sequence[Candidate], observation: Observation, tools: Tools, now_strain: float
) -> tuple[Candidate | None, Outlook, Outlook]:
    """The candidate with the best future, if it is clearly better than doing nothing; and what either promises.

    What wins has to win again, both looks taken together, when other arrivals are drawn for twice as long.
    """
    rollout, settings = tools.rollout, tools.config.lookahead
    assert rollout is not None, "the driver hands a rollout to a planner that looks ahead"
    seed = round(observation.now_s * 1000)
    wished_s = settings.horizon_s + tools.config.switch_time_s
    tries = min(len(ranked), _num_futures(observation, tools) - 1)
    horizon_s = _horizon_s(observation, tools, wished_s, tries + 1, 1 - SHARE_OF_SECOND_LOOK)
    staying = rollout(observation, (), horizon_s, seed)
    outlooks = [rollout(observation, one.orders, horizon_s, seed) for one in ranked[:tries]]
    best, changed = max(zip(ranked, outlooks, strict=False), key=lambda pair: (pair[1].good, -len(pair[0].orders)))
    if _is_clearly_better(changed, staying, settings.margin):
        horizon_s = _horizon_s(observation, tools, 2 * wished_s, 2, SHARE_OF_SECOND_LOOK)
        staying = staying.plus(rollout(observation, (), horizon_s, seed + 1))
        changed = changed.plus(rollout(observation, best.orders, horizon_s, seed + 1))
        return best if _is_clearly_better(changed, staying, settings.margin) else None, staying, changed
    least = min(ranked, key=lambda one: one.strain)
    if changed.good < FLOODED * (changed.good + changed.bad) and least.strain < RELIEF * now_strain:
        return least, staying, changed
    return None, staying, changed


def _is_clearly_better(changed: Outlook, staying: Outlook, margin: float) -> bool:
    noise = STANDARD_ERRORS * sqrt(staying.bad)
    return changed.good - staying.good > max(1.0, noise, margin * (staying.good + staying.bad))


def _most_promising(candidates: Sequence[Candidate]) -> list[Candidate]:
    """By strain, but first the best to each role: an estimate that errs does so for all of one kind."""
    ranked = sorted(candidates, key=lambda one: (one.strain, len(one.orders)))
    best_of_kind: dict[Role, Candidate] = {}
    for one in ranked:
        best_of_kind.setdefault(one.orders[0].role, one)
    first = list(best_of_kind.values())
    return [*first, *(one for one in ranked if one not in first)]


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


def _requests_go_bad(observation: Observation, tools: Tools) -> bool:
    attainment = observation.demand.attainment
    return attainment is not None and attainment < 1.0 - tools.config.lookahead.margin


def _somebody_waits_long(observation: Observation, tools: Tools) -> bool:
    return any(view.oldest_wait_s > 0.5 * tools.targets.ttft_s for view in observation.instances)


def _num_futures(observation: Observation, tools: Tools) -> int:
    """How many futures are looked into at first: fewer where there is much to follow in each."""
    settings = tools.config.lookahead
    followed = _num_unfinished(observation) + observation.demand.request_rate * settings.horizon_s
    affordable = int((1 - SHARE_OF_SECOND_LOOK) * settings.max_followed / max(1.0, followed))
    return min(settings.max_rollouts, max(MIN_FUTURES, affordable))


def _horizon_s(observation: Observation, tools: Tools, wished_s: float, futures: int, share: float) -> float:
    """`wished_s`, or less, down to MIN_HORIZON_S, so that no more requests are followed than a tick has time for."""
    rate = observation.demand.request_rate
    if not rate:
        return wished_s
    to_come = share * tools.config.lookahead.max_followed / futures - _num_unfinished(observation)
    return min(wished_s, max(MIN_HORIZON_S, to_come / rate))


def _num_unfinished(observation: Observation) -> int:
    return sum(
        view.num_waiting + view.num_prefilling + view.num_incoming + view.num_ready + view.num_decoding
        for view in observation.instances
    )


def _candidates(observation: Observation, tools: Tools, counts: Counts) -> Iterator[Candidate]:
    """Some instances of one role to another, as far as the minimum of each allows."""
    for source, role, cause, how in _directions(tools):
        views = observation.movable(source)
        spare = len(observation.serving(source)) - least_of(source, tools.config)
        for number in range(1, min(spare, len(views), tools.config.lookahead.max_moves) + 1):
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


def _stay(reason: str, counts: Counts) -> Decision:
    return Decision((), reason, counts.prefill, counts.decode)
