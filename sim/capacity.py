"""The goodput of a scenario: where to begin, and the search over simulated rates."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from cluster.role import Role
from scenario.build import kv_capacity
from scenario.spec import Scenario
from sim.goodput import GoodputResult, Trial, find_goodput
from sim.limits import limit_in_words
from sim.probe import Finding, Probe
from sim.unloaded import Unloaded, unloaded

_FIRST_LOAD = 0.5


@dataclass(frozen=True, slots=True)
class Capacity:
    """A search, and the same requests served one at a time beside it."""

    goodput: GoodputResult[Finding]
    alone: Unloaded

    @property
    def limit(self) -> str:
        """What stands in the way of a higher rate, in words; empty when nothing does."""
        refusal = self.goodput.refusal
        return "" if refusal is None else limit_in_words(refusal.verdict, self.alone.usage)


def capacity_of(
    probe: Probe,
    *,
    hint: float | None = None,
    lowest: float | None = None,
    highest: float | None = None,
    relative_tolerance: float = 0.02,
    on_trial: Callable[[Trial[Finding]], None] | None = None,
) -> Capacity:
    """The highest rate (requests/s) that a scenario sustains, its traffic rescaled from rate to rate.

    Raises ConfigError when the SLOs cannot be met at any rate.
    """
    alone = unloaded(probe)
    goodput = find_goodput(
        probe.at,
        hint=hint or first_rate(probe.scenario, alone),
        lowest=lowest,
        highest=highest,
        relative_tolerance=relative_tolerance,
        on_trial=on_trial,
    )
    return Capacity(goodput, alone)


def first_rate(scenario: Scenario, alone: Unloaded) -> float:
    """Half of the least of three rates: what prefill allows if prompts are all there is, what the links of decode
    instances carry, and what KV memory and seats allow if every request takes no longer than alone.
    """
    count, hardware = scenario.roles.count, scenario.hardware_of
    prefill = sum(hardware(role).pp for role in scenario.roles if role is not Role.DECODE) / alone.prefill_s
    kv_bytes = alone.prompt_tokens * scenario.model.kv_bytes_per_token
    links = count(Role.DECODE) * scenario.link.effective_bytes_s / kv_bytes or inf
    tokens = alone.prompt_tokens + alone.output_tokens
    seats = sum(
        min(scenario.engine.max_batch * hardware(role).pp, kv_capacity(scenario, role) / tokens)
        for role in scenario.roles
        if role is not Role.PREFILL
    )
    return _FIRST_LOAD * min(prefill, links, seats / alone.stay_s)
