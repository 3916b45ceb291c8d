"""The ways of serving one workload on a fixed number of instances: assignments of roles, and planner policies."""

from dataclasses import replace
from typing import Any

from planner.config import PlannerConfig
from scenario.spec import InstanceCounts, Scenario
from sim.variants import splits, with_split

RIDGE_BUDGET = 256
"""Tokens of a step that computes prompts beside decodes: about where Llama-3-70B on H100 turns from memory to compute."""
PROMPT_BATCH_TOKENS = 2048
"""Largest prompt batch that Splitwise forms."""

Ways = dict[str, Scenario]
"""By name."""


def static_splits(scenario: Scenario) -> Ways:
    """Every xPyD, for good."""
    still = replace(scenario, planner=PlannerConfig())
    return {_name(*split): with_split(still, *split) for split in splits(scenario.instances.total)}


def all_mixed(scenario: Scenario) -> Ways:
    """No disaggregation: every instance does chunked prefill beside its decodes."""
    return _with_mixed(scenario, InstanceCounts(mixed=scenario.instances.total))


def assignments(scenario: Scenario, *, step: int = 2) -> Ways:
    """Splits, all mixed, and `step`, 2 x `step`, ... mixed instances beside each split of the rest."""
    total = scenario.instances.total
    ways = static_splits(scenario) | all_mixed(scenario)
    for mixed in range(step, total - 1, step):
        for prefill, decode in splits(total - mixed):
            ways |= _with_mixed(scenario, InstanceCounts(prefill=prefill, decode=decode, mixed=mixed))
    return ways


def policies(scenario: Scenario) -> Ways:
    """Every planner policy from the scenario's own split, each with what its authors give it beside the policy.

    Splitwise pairs prompt and token machines at arrival and limits prompt batches. `lookahead` may use mixed
    instances, whose steps stay at RIDGE_BUDGET, and moves two at a time.
    """
    paired = replace(scenario, router=replace(scenario.router, pairs=True))
    mixing = replace(paired, engine=replace(scenario.engine, token_budget=RIDGE_BUDGET))
    batched = replace(paired, engine=replace(scenario.engine, prefill_batch_tokens=PROMPT_BATCH_TOKENS))
    return {
        "load, draining": _planned(scenario, policy="load"),
        "load, migrating": _planned(scenario, policy="load", how="migrate"),
        "throughput": _planned(scenario, policy="throughput", how="migrate"),
        "throughput, corrected": _planned(scenario, policy="throughput_corrected", how="migrate"),
        "splitwise": _planned(batched, policy="splitwise"),
        "replan": _planned(scenario, policy="replan", how="migrate"),
        "arrow": _planned(scenario, policy="arrow"),
        "conditional": _planned(scenario, policy="conditional"),
        "lookahead, not mixing": _planned(scenario, policy="lookahead", max_changes_per_tick=2),
        "lookahead": _planned(mixing, policy="lookahead", max_changes_per_tick=2),
    }


def _planned(scenario: Scenario, **fields: Any) -> Scenario:
    return replace(scenario, planner=PlannerConfig(**fields))


def _with_mixed(scenario: Scenario, counts: InstanceCounts) -> Ways:
    way = replace(
        scenario,
        instances=counts,
        planner=PlannerConfig(),
        router=replace(scenario.router, pairs=bool(counts.prefill)),
        engine=replace(scenario.engine, token_budget=RIDGE_BUDGET),
    )
    return {_name(counts.prefill, counts.decode, counts.mixed): way}


def _name(prefill: int, decode: int, mixed: int = 0) -> str:
    parts = ((prefill, "P"), (decode, "D"), (mixed, "M"))
    return "".join(f"{count}{letter}" for count, letter in parts if count)
