"""What requests get when each has the whole cluster to itself: the best that any rate can give."""

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from cluster.errors import ConfigError
from cluster.request import Status
from metrics.latency import e2e_s, tpot_s, ttft_s
from metrics.records import Column, FloatArray
from metrics.slo import SloSpec, meets
from scenario.build import request_limit_tokens
from scenario.spec import Scenario
from sim.probe import Probe
from sim.sustain import SLO_FIELDS, each_target
from sim.usage import Usage

NUM_REQUESTS = 250
_GAP_S = 1e4
_LATENCIES = {"TTFT": ttft_s, "TPOT": tpot_s, "E2E": e2e_s}


@dataclass(frozen=True, slots=True)
class Unloaded:
    """Of requests that were served alone; the times are means."""

    attainment: float
    usage: Usage
    prompt_tokens: float
    output_tokens: float

    @property
    def prefill_s(self) -> float:
        return self.usage.parts_s["prefill"]

    @property
    def stay_s(self) -> float:
        """First step to last token."""
        return sum(self.usage.parts_s.values())


def unloaded(probe: Probe) -> Unloaded:
    """Serve some of the probe's requests one at a time.

    Raises ConfigError when fewer than the target share of them are good even so, and says which step of
    what length takes longer than which SLO.
    """
    trace, too_long = probe.requests(1.0, NUM_REQUESTS)
    trace = replace(trace, arrival_s=np.arange(len(trace), dtype=np.float64) * _GAP_S)
    result = probe.run(trace, too_long, is_static=True)
    records = result.records
    slo = probe.scenario.slo
    attainment = float(meets(records, slo).mean())
    if attainment < slo.attainment:
        raise ConfigError(_why_not(probe.scenario, records))
    return Unloaded(
        attainment=attainment,
        usage=Usage.of(result, slo),
        prompt_tokens=float(records[:, Column.PROMPT_TOKENS].mean()),
        output_tokens=float(records[:, Column.OUTPUT_TOKENS].mean()),
    )


def _why_not(scenario: Scenario, records: FloatArray) -> str:
    slo = scenario.slo
    rejected = float((records[:, Column.STATUS] == Status.REJECTED).mean())
    if 1 - rejected < slo.attainment:
        return (
            f"{100 * rejected:.1f} % of the requests are longer than the {request_limit_tokens(scenario):,} tokens that "
            f"{scenario.model.name} serves here and are rejected, so that no rate has {100 * slo.attainment:g} % good "
            "ones; set workload.on_too_long to truncate, or draw shorter ones with workload.max_total_tokens"
        )
    served = records[records[:, Column.STATUS] == Status.FINISHED]
    shares = {name: float(meets(served, target).mean()) for name, target in each_target(slo).items()}
    name = min(shares, key=lambda one: shares[one])
    field = SLO_FIELDS[name]
    met = f"{100 * shares[name]:.0f} % of requests meet" if shares[name] else "no request meets"
    return (
        f"slo.{field} is {getattr(slo, field):g} ms, which {met} even when each has the cluster to itself: "
        f"{_slowest_step(name, served, slo)}; raise slo.{field}, or give an instance more or faster GPUs"
    )


def _slowest_step(name: str, served: FloatArray, slo: SloSpec) -> str:
    """Of the request at the rank that would have to meet the target."""
    latency_s = _LATENCIES[name](served)
    ranks = np.argsort(latency_s)[: np.count_nonzero(~np.isnan(latency_s))]
    at = ranks[ceil(slo.attainment * len(ranks)) - 1]
    row, taken_ms = served[at], 1e3 * latency_s[at]
    prompt, output = int(row[Column.PROMPT_TOKENS]), int(row[Column.OUTPUT_TOKENS])
    if name == "TTFT":
        return f"the prefill step of a prompt of {prompt:,} tokens takes {taken_ms:.3g} ms"
    if name == "E2E":
        return f"a request of {prompt:,} + {output:,} tokens takes {taken_ms:,.0f} ms"
    transfer_s = row[Column.KV_ARRIVED_S] - row[Column.FIRST_TOKEN_S]
    moving_ms = 0.0 if np.isnan(transfer_s) else 1e3 * float(transfer_s) / (output - 1)
    step = (
        f"a decode step of one sequence at {prompt:,} to {prompt + output:,} tokens takes {taken_ms - moving_ms:.3g} ms"
    )
    if not moving_ms:
        return step
    return f"{step}, and its KV transfer adds {moving_ms:.3g} ms to each of its {output - 1:,} tokens"
