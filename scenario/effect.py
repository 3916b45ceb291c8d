"""Settings that do nothing in a given scenario, because another one switched them off."""

from collections.abc import Iterator
from typing import NamedTuple

from scenario.own_policy import is_own
from scenario.spec import Scenario

THROUGHPUT = ("throughput", "throughput_corrected")
PLANNER_SECTIONS = {
    "load": ("load",),
    "splitwise": ("splitwise",),
    "predictor": THROUGHPUT,
    "throughput": THROUGHPUT,
    "replan": ("replan",),
    "conditional": ("conditional",),
    "lookahead": ("lookahead",),
}
"""Sections of the planner's settings, and the policies that read them."""


class Idle(NamedTuple):
    """`path` does nothing while `cause` has the value it has."""

    path: str
    cause: str
    value: str

    def __str__(self) -> str:
        return f"{self.path} has no effect while {self.cause} is {self.value}; remove it or change {self.cause}"


def idle_settings(scenario: Scenario) -> Iterator[Idle]:
    """Every setting without effect, whether or not it was given."""
    for section, policies in PLANNER_SECTIONS.items():
        if scenario.planner.policy not in policies and not is_own(scenario.planner.policy):
            yield Idle(f"planner.{section}", "planner.policy", scenario.planner.policy)
    if scenario.planner.policy == "arrow":
        yield Idle("router", "planner.policy", "arrow")
    if scenario.engine.reserves_output:
        yield Idle("engine.block_size", "engine.admission", "reserve_output")
    if scenario.live.compute == "tiny":
        yield Idle("live.kv_bytes_scale", "live.compute", "tiny")
    if all(scenario.hardware_of(role).pp == 1 for role in set(scenario.roles)):
        yield Idle("stage_link", "pp", "1")
    for index, phase in enumerate(scenario.workload.phases):
        path = f"workload.phases.{index}"
        if phase.arrivals != "gamma":
            yield Idle(f"{path}.burstiness", f"{path}.arrivals", phase.arrivals)
        for name, lengths in (("prompt", phase.prompt), ("output", phase.output)):
            if lengths.kind == "fixed":
                yield Idle(f"{path}.{name}.sigma", f"{path}.{name}.kind", "fixed")
                yield Idle(f"{path}.{name}.maximum", f"{path}.{name}.kind", "fixed")
