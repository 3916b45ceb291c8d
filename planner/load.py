"""The `load` policy: move an instance when one role is over its threshold and the other can spare it.

Prefill asks by queued prompt tokens per instance, decode by KV use. Four brakes keep it from flapping: a
role must ask for several ticks in a row, a change is followed by a cooldown, the giving role must stay
under its low threshold with one instance fewer, and while one instance is changing nobody else starts.
"""

from dataclasses import dataclass, replace
from math import inf

from cluster.load import LoadView
from cluster.role import Role
from planner.config import LoadThresholds
from planner.decision import Decision, How, RoleOrder
from planner.observation import Observation
from planner.tools import Tools


@dataclass(frozen=True, slots=True)
class LoadMemory:
    """What the policy carries from tick to tick."""

    asks: Role | None = None
    votes: int = 0
    settled_s: float = -inf
    """When the last change was seen complete."""
    changing: bool = False


def prefill_queue(views: list[LoadView], instances: int) -> float:
    """Queued prompt tokens per prefill instance, were there `instances` of them."""
    return sum(view.queued_tokens for view in views) / instances if instances else inf


def decode_use(views: list[LoadView], instances: int) -> float:
    """KV use of decode, 0 to 1 and above when handoffs wait for room, were there `instances` of them."""
    if not views or not instances:
        return inf
    wanted = sum(view.kv_used_tokens + view.offered_tokens for view in views)
    capacity = sum(view.kv_capacity_tokens for view in views) / len(views)
    return wanted / (instances * capacity)


def load_policy(observation: Observation, tools: Tools, memory: LoadMemory) -> tuple[Decision, LoadMemory]:
    """One tick. Pure: the same arguments give the same answer."""
    config = tools.config
    limits = config.load
    prefill, decode = observation.serving(Role.PREFILL), observation.serving(Role.DECODE)
    if observation.changing():
        return _stay("a role change is under way", prefill, decode), LoadMemory(changing=True)
    if memory.changing:
        memory = LoadMemory(settled_s=observation.now_s)
    if not prefill and not decode:
        return _stay("only mixed instances serve, and they share all work", prefill, decode), memory

    queue, use = prefill_queue(prefill, len(prefill)), decode_use(decode, len(decode))
    asks, reason = _who_asks(queue, use, limits)
    if asks is None:
        return _stay(reason, prefill, decode), replace(memory, asks=None, votes=0)
    votes = memory.votes + 1 if memory.asks is asks else 1
    memory = replace(memory, asks=asks, votes=votes)
    if votes < limits.votes:
        return _stay(f"{reason} (vote {votes} of {limits.votes})", prefill, decode), memory
    if observation.now_s - memory.settled_s < limits.cooldown_s:
        return _stay(f"{reason}, but the last change is too recent", prefill, decode), memory

    donors = observation.movable(Role.DECODE if asks is Role.PREFILL else Role.PREFILL)
    if not donors:
        return _stay(f"{reason}, but no instance of the other role may be moved", prefill, decode), memory
    if asks is Role.PREFILL:
        after = decode_use(decode, len(decode) - 1)
        if len(decode) <= config.min_decode:
            return _stay(f"{reason}, but decode has no more than planner.min_decode", prefill, decode), memory
        if after > limits.kv_use_low:
            spare = f"{reason}, but decode cannot spare one (KV use would be {after:.0%})"
            return _stay(spare, prefill, decode), memory
        donor = min(donors, key=lambda view: (view.kv_used_tokens, view.index))
        reason = f"{reason}; decode KV use stays at {after:.0%} without it"
        step = 1
    else:
        after = prefill_queue(prefill, len(prefill) - 1)
        if len(prefill) <= config.min_prefill:
            return _stay(f"{reason}, but prefill has no more than planner.min_prefill", prefill, decode), memory
        if after > limits.prefill_queue_low:
            spare = f"{reason}, but prefill cannot spare one (its queue would be {after:,.0f} tokens)"
            return _stay(spare, prefill, decode), memory
        donor = min(donors, key=lambda view: (view.queued_tokens, view.kv_used_tokens, view.index))
        reason = f"{reason}; prefill queue stays at {after:,.0f} tokens without it"
        step = -1
    cause = "prefill_queue" if asks is Role.PREFILL else "decode_kv"
    order = RoleOrder(donor.index, donor.epoch, asks, cause, reason, How(config.how))
    return Decision((order,), reason, len(prefill) + step, len(decode) - step), LoadMemory(changing=True)


def _who_asks(queue: float, use: float, limits: LoadThresholds) -> tuple[Role | None, str]:
    over_prefill = queue > limits.prefill_queue_high
    over_decode = use > limits.kv_use_high
    queued = f"{queue:,.0f} tokens queued per prefill instance" if queue < inf else "no instance prefills"
    used = f"decode KV use {use:.0%}" if use < inf else "no instance decodes"
    if over_prefill and over_decode:
        return None, f"both roles are over: {queued}, {used}"
    if over_prefill:
        return Role.PREFILL, queued
    if over_decode:
        return Role.DECODE, used
    return None, f"in balance: {queued}, {used}"


def _stay(reason: str, prefill: list[LoadView], decode: list[LoadView]) -> Decision:
    return Decision((), reason, len(prefill), len(decode))
