"""The planner both drivers run: a policy by name, its memory, and limits that hold whatever it says."""

from collections.abc import Callable
from typing import Any

from cluster.errors import ConfigError
from cluster.role import Role
from cluster.suggestion import did_you_mean
from planner.config import PlannerConfig
from planner.decision import Decision, RoleOrder
from planner.load import LoadMemory, load_policy
from planner.lookahead import LookaheadMemory, lookahead_policy
from planner.observation import Observation
from planner.replan import ReplanMemory, replan_policy
from planner.splitwise import SplitwiseMemory, splitwise_policy
from planner.throughput import ThroughputMemory, corrected_throughput_policy, throughput_policy
from planner.tools import Tools

Policy = Callable[[Observation, Tools, Any], tuple[Decision, Any]]


def static_policy(observation: Observation, tools: Tools, memory: None) -> tuple[Decision, None]:
    """Never moves anybody at a tick. `arrow` and `conditional` decide in the router, at each arrival."""
    prefill, decode = observation.serving(Role.PREFILL), observation.serving(Role.DECODE)
    return Decision((), tools.config.policy, len(prefill), len(decode)), memory


def _no_memory() -> None:
    return None


POLICIES: dict[str, tuple[Policy, Callable[[], Any]]] = {
    "static": (static_policy, _no_memory),
    "load": (load_policy, LoadMemory),
    "throughput": (throughput_policy, ThroughputMemory),
    "throughput_corrected": (corrected_throughput_policy, ThroughputMemory),
    "splitwise": (splitwise_policy, SplitwiseMemory),
    "replan": (replan_policy, ReplanMemory),
    "arrow": (static_policy, _no_memory),
    "conditional": (static_policy, _no_memory),
    "lookahead": (lookahead_policy, LookaheadMemory),
}
"""Policy and its first memory, by name."""


class Planner:
    """Call `tick` every `config.interval_s`; carry out the orders it returns."""

    def __init__(self, tools: Tools) -> None:
        config = tools.config
        if config.policy not in POLICIES:
            raise ConfigError(f"planner.policy is {config.policy!r}; {did_you_mean(config.policy, POLICIES)}")
        self.config = config
        self._tools = tools
        self._policy, first_memory = POLICIES[config.policy]
        self._memory = first_memory()

    def tick(self, observation: Observation) -> Decision:
        """What the policy decides; nothing while it would have to decide by reports older than the demand window."""
        if observation.staleness_s > self.config.window_s:
            counts = (len(observation.serving(role)) for role in (Role.PREFILL, Role.DECODE))
            return Decision((), f"the oldest load report is {observation.staleness_s:.1f} s old", *counts)
        decision, self._memory = self._policy(observation, self._tools, self._memory)
        orders = within_limits(decision.orders, observation, self.config)
        if orders == decision.orders:
            return decision
        return Decision(orders, decision.reason, decision.target_prefill, decision.target_decode)


def within_limits(
    orders: tuple[RoleOrder, ...], observation: Observation, config: PlannerConfig
) -> tuple[RoleOrder, ...]:
    """The orders, in order, that keep every role at its minimum and the tick at its maximum of changes."""
    serving = {role: len(observation.serving(role)) for role in Role}
    least = {Role.PREFILL: config.min_prefill, Role.DECODE: config.min_decode, Role.MIXED: 0}
    views = {view.index: view for view in observation.instances}
    kept: list[RoleOrder] = []
    for order in orders:
        view = views.get(order.instance)
        if view is None or view not in observation.serving(view.role) or view.role is order.role:
            continue
        if len(kept) < config.max_changes_per_tick and serving[view.role] > least[view.role]:
            serving[view.role] -= 1
            kept.append(order)
    return tuple(kept)
