"""The planner both drivers run: a policy by name, its memory, and limits that hold whatever it says."""

from collections.abc import Callable
from dataclasses import replace
from traceback import extract_tb
from typing import Any, NamedTuple

from cluster.errors import ConfigError
from cluster.role import Role
from cluster.suggestion import did_you_mean
from planner.decision import Decision, How
from planner.limits import within_limits
from planner.load import LoadMemory, load_policy
from planner.lookahead import LookaheadMemory, lookahead_policy
from planner.observation import Observation
from planner.pins import orders_by_hand
from planner.replan import ReplanMemory, replan_policy
from planner.splitwise import SplitwiseMemory, splitwise_policy
from planner.throughput import ThroughputMemory, corrected_throughput_policy, throughput_policy
from planner.tools import Policy, Tools


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


class Failure(NamedTuple):
    """A policy raised an error."""

    at_s: float
    what: str


class Planner:
    """Call `tick` every `config.interval_s`; carry out the orders it returns."""

    def __init__(self, tools: Tools) -> None:
        config = tools.config
        if tools.policy is None and config.policy not in POLICIES:
            raise ConfigError(f"planner.policy is {config.policy!r}; {did_you_mean(config.policy, POLICIES)}")
        self.config = config
        self._tools = tools
        self._policy, first_memory = (tools.policy, _no_memory) if tools.policy else POLICIES[config.policy]
        self._memory = first_memory()
        self.failures: list[Failure] = []

    def tick(self, observation: Observation) -> Decision:
        """What is to be done: first what was set by hand, then what the policy decides; its word is enough in a dry run.

        Nothing while it would have to be decided by reports older than the demand window.
        """
        config = self.config
        if observation.staleness_s > config.window_s:
            return _nothing(observation, f"the oldest load report is {observation.staleness_s:.1f} s old")
        decision = self._decide(observation)
        by_hand = orders_by_hand(observation, How(config.how))
        orders = within_limits((*by_hand, *(() if config.dry_run else decision.orders)), observation, config)
        reason = f"{decision.reason} (dry run)" if config.dry_run and decision.orders else decision.reason
        reason = "; ".join([*(f"instance {one.instance} is set by hand" for one in by_hand), reason])
        return replace(decision, orders=orders, reason=reason)

    def _decide(self, observation: Observation) -> Decision:
        # Whatever is wrong with a policy, the cluster goes on as it is.
        try:
            decision, self._memory = self._policy(observation, self._tools, self._memory)
        except Exception as error:
            self.failures.append(Failure(observation.now_s, _described(error)))
            return _nothing(observation, f"the policy failed: {self.failures[-1].what}")
        return decision

    def notices(self) -> list[str]:
        """What a reader of the results must not miss."""
        if not self.failures:
            return []
        first = self.failures[0]
        return [
            f"the planner's policy failed at {len(self.failures)} ticks, which changed nothing; first at "
            f"{first.at_s:.1f} s: {first.what}"
        ]


def _nothing(observation: Observation, reason: str) -> Decision:
    counts = (len(observation.serving(role)) for role in (Role.PREFILL, Role.DECODE))
    return Decision((), reason, *counts)


def _described(error: Exception) -> str:
    where = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {where.filename}, line {where.lineno}: {error}"
