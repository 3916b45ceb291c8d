"""The goodput of a scenario: where to begin, and the search over simulated rates."""

from collections.abc import Callable

from cluster.role import Role
from scenario.build import kv_capacity
from scenario.spec import Scenario
from sim.goodput import GoodputResult, Trial, find_goodput
from sim.probe import Finding, Probe
from sim.sustain import Sampling
from sim.unloaded import Unloaded, unloaded

_FIRST_LOAD = 0.5


def goodput_of(
    scenario: Scenario,
    *,
    hint: float | None = None,
    lowest: float | None = None,
    highest: float | None = None,
    relative_tolerance: float = 0.02,
    sampling: Sampling | None = None,
    on_trial: Callable[[Trial[Finding]], None] | None = None,
) -> GoodputResult[Finding]:
    """The highest rate (requests/s) that a scenario sustains, its traffic rescaled from rate to rate.

    Raises ConfigError when the SLOs cannot be met at any rate, and what loading the workload raises.
    """
    probe = Probe(scenario, sampling=sampling, drift_limit=relative_tolerance)
    alone = unloaded(probe)
    return find_goodput(
        probe.at,
        hint=hint or first_rate(scenario, alone),
        lowest=lowest,
        highest=highest,
        relative_tolerance=relative_tolerance,
        on_trial=on_trial,
    )


def first_rate(scenario: Scenario, alone: Unloaded) -> float:
    """Half of what prompts would allow if they were all there is, or of what KV memory and seats would if every
    request took no longer than alone: whichever is less.
    """
    stages = sum(scenario.hardware_of(role).pp for role in scenario.roles if role is not Role.DECODE)
    seats = sum(
        min(scenario.engine.max_batch * scenario.hardware_of(role).pp, kv_capacity(scenario, role) / alone.num_tokens)
        for role in scenario.roles
        if role is not Role.PREFILL
    )
    return _FIRST_LOAD * min(stages / alone.prefill_s, seats / alone.e2e_s)
