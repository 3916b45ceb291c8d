"""The `splitwise` policy: a mixed pool that borrows machines from the pool that can spare them, and returns them.

After Splitwise (ISCA 2024, section 4.2): when even the shortest prompt queue is over its threshold, a token
machine joins the mixed pool and takes prompts, too; when every token machine is full, a prompt machine
does. A borrowed machine goes home when it has no work of the other kind left. Nobody drains: a machine of
the mixed pool batches both kinds of work.
"""

from dataclasses import dataclass, replace

from cluster.load import LoadView
from cluster.role import Role
from planner.decision import Decision, How, RoleOrder
from planner.observation import Observation
from planner.tools import Tools


@dataclass(frozen=True, slots=True)
class SplitwiseMemory:
    """Where borrowed machines belong: (instance, role) pairs."""

    homes: tuple[tuple[int, Role], ...] = ()


def splitwise_policy(
    observation: Observation, tools: Tools, memory: SplitwiseMemory
) -> tuple[Decision, SplitwiseMemory]:
    """One tick: send home who is done, else borrow one machine if a pool is over its threshold."""
    config, limits = tools.config, tools.config.splitwise
    prompt, token = observation.serving(Role.PREFILL), observation.serving(Role.DECODE)
    mixed, homes = observation.serving(Role.MIXED), dict(memory.homes)
    prompt_donors, token_donors = observation.movable(Role.PREFILL), observation.movable(Role.DECODE)
    orders = [
        _order(view, homes[view.index], "return", f"no {_other(homes[view.index])} work left")
        for view in observation.movable(Role.MIXED)
        if view.index in homes and not _guest_work(view, homes[view.index])
    ]
    if orders:
        left = tuple((index, home) for index, home in memory.homes if index not in {o.instance for o in orders})
        return _decision(orders, observation), replace(memory, homes=left)

    queue = min((view.queued_tokens for view in prompt + mixed), default=0)
    use = min((_kv_demand(view) for view in token + mixed), default=0.0)
    if queue > limits.prompt_queue_high and len(token) > config.min_decode and token_donors:
        donor = min(token_donors, key=lambda view: (view.kv_used_tokens, view.index))
        order = _order(donor, Role.MIXED, "prompt_queue", f"the shortest prompt queue is {queue:,} tokens")
    elif use > limits.kv_use_high and len(prompt) > config.min_prefill and prompt_donors:
        donor = min(prompt_donors, key=lambda view: (view.queued_tokens, view.index))
        order = _order(donor, Role.MIXED, "token_kv", f"the emptiest token machine is at {use:.0%} of its KV")
    else:
        return _decision([], observation), memory
    return _decision([order], observation), replace(memory, homes=(*memory.homes, (donor.index, donor.role)))


def _kv_demand(view: LoadView) -> float:
    return (view.kv_used_tokens + view.offered_tokens) / view.kv_capacity_tokens


def _guest_work(view: LoadView, home: Role) -> bool:
    """Whether a borrowed machine still has work of the kind it was borrowed for."""
    if home is Role.DECODE:
        return bool(view.num_waiting or view.num_prefilling or view.num_outgoing)
    return bool(view.num_decoding or view.num_ready or view.num_incoming or view.num_offers)


def _other(home: Role) -> str:
    return "prompt" if home is Role.DECODE else "token"


def _order(view: LoadView, role: Role, cause: str, reason: str) -> RoleOrder:
    return RoleOrder(view.index, view.epoch, role, cause, reason, how=How.FLIP)


def _decision(orders: list[RoleOrder], observation: Observation) -> Decision:
    reason = "; ".join(order.reason for order in orders) or "no pool is over its threshold"
    counts = [len(observation.serving(role)) for role in (Role.PREFILL, Role.DECODE)]
    return Decision(tuple(orders), reason, *counts)
