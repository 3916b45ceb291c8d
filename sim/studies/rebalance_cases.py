"""The workloads that planners are compared on, with the times at which each changes its kind."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cluster.errors import WorldError
from scenario.build import request_limit_tokens, smallest_kv_capacity
from scenario.loading import load_scenario
from scenario.requests import requests_of
from scenario.spec import Scenario
from workload.load import fit_lengths
from workload.readers import read_trace
from workload.trace import Trace, TraceInfo

TRACES_VARIABLE = "BATON_TRACES"
"""Environment variable with the folder of the two Azure traces of 2023, under their public names."""
CONVERSATION, CODE = "azure_llm_2023_conv.csv", "azure_llm_2023_code.csv"
AZURE_CLUSTER = "constant-8x70b"
BLOCK_S, NUM_BLOCKS = 75.0, 3
IN_TURNS = {CONVERSATION: 40.0, CODE: 8.0}
"""Requests per second of each trace alone."""
MIXED = {CONVERSATION: 24.0, CODE: 4.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Requests for the cluster of a scenario. ends_s: when each stretch of one kind of traffic ends."""

    name: str
    title: str
    scenario: Scenario
    trace: Trace
    too_long: npt.NDArray[np.bool_]
    ends_s: tuple[float, ...]

    @property
    def span_s(self) -> float:
        return self.ends_s[-1]

    def stretches(self) -> list["Case"]:
        """Each stretch as a case of its own, counted from its start."""
        parts = []
        for start_s, end_s in zip((0.0, *self.ends_s), self.ends_s, strict=False):
            first, last = np.searchsorted(self.trace.arrival_s, (start_s, end_s))
            parts.append(
                Case(
                    name=self.name,
                    title=self.title,
                    scenario=self.scenario,
                    trace=self.trace.window(start_s, end_s),
                    too_long=self.too_long[first:last],
                    ends_s=(end_s - start_s,),
                )
            )
        return parts


def of_phases(name: str, title: str, scenario_name: str) -> Case:
    """The workload of a built-in scenario, whose phases are the stretches."""
    scenario = load_scenario(scenario_name)
    trace, too_long, _ = requests_of(scenario)
    ends_s = tuple(accumulate(phase.duration_s for phase in scenario.workload.phases))
    return Case(name=name, title=title, scenario=scenario, trace=trace, too_long=too_long, ends_s=ends_s)


def of_azure() -> list[Case]:
    """The two Azure traces in turns and mixed, sped up to load the cluster; none where TRACES_VARIABLE is not set.

    WorldError when the folder it names does not hold them.
    """
    folder = os.environ.get(TRACES_VARIABLE)
    if not folder:
        return []
    traces = {name: _read(Path(folder) / name) for name in (CONVERSATION, CODE)}
    blocks = [
        _first(traces[name], rate, NUM_BLOCKS * BLOCK_S).window(turn * BLOCK_S, (turn + 1) * BLOCK_S)
        for turn in range(NUM_BLOCKS)
        for name, rate in IN_TURNS.items()
    ]
    ends_s = tuple(BLOCK_S * (number + 1) for number in range(len(blocks)))
    in_turns = _merged(blocks, starts_s=(0.0, *ends_s[:-1]))
    whole_s = len(blocks) * BLOCK_S
    mixed = _merged([_first(traces[name], rate, whole_s) for name, rate in MIXED.items()], starts_s=(0.0, 0.0))
    return [
        _settled("c, in turns", "Azure conversation and code in turns", in_turns, ends_s),
        _settled("c, mixed", "Azure conversation and code mixed", mixed, (whole_s,)),
    ]


def _read(path: Path) -> Trace:
    if not path.is_file():
        raise WorldError(f"{TRACES_VARIABLE}: there is no {path}; name the folder that holds {CONVERSATION} and {CODE}")
    return read_trace(path)


def _first(trace: Trace, request_rate: float, duration_s: float) -> Trace:
    """The first requests of a trace, as many as `request_rate` gives in `duration_s`, at that rate."""
    return trace.head(round(request_rate * duration_s)).at_rate(request_rate)


def _merged(traces: Sequence[Trace], starts_s: Sequence[float]) -> Trace:
    """All requests in order of arrival; entry i of `traces` begins at entry i of `starts_s`."""
    arrival_s = np.concatenate([start_s + one.arrival_s for start_s, one in zip(starts_s, traces, strict=True)])
    order = np.argsort(arrival_s, kind="stable")
    prompts = np.concatenate([one.prompt_tokens for one in traces])
    outputs = np.concatenate([one.output_tokens for one in traces])
    info = TraceInfo(source="Azure 2023, conversation and code", format="csv", unit="s", num_rows=len(order))
    return Trace(arrival_s[order], prompts[order], outputs[order], info)


def _settled(name: str, title: str, trace: Trace, ends_s: tuple[float, ...]) -> Case:
    scenario = load_scenario(AZURE_CLUSTER)
    trace, too_long, _ = fit_lengths(
        trace,
        max_context=request_limit_tokens(scenario),
        kv_capacity=smallest_kv_capacity(scenario),
        on_too_long=scenario.workload.on_too_long,
    )
    return Case(name=name, title=title, scenario=scenario, trace=trace, too_long=too_long, ends_s=ends_s)
