"""What a run would have cost: GPU hours at their price, and energy by what the GPUs were doing."""

from typing import Any

import numpy as np

from cluster.step_log import StepRow
from metrics.records import FloatArray
from metrics.run import RunningCost, RunResult
from metrics.utilisation import busy_s

_START, _END = StepRow._fields.index("start_s"), StepRow._fields.index("end_s")
_PREFILL_TOKENS = StepRow._fields.index("prefill_tokens")


def cost_of(result: RunResult, completed: int) -> dict[str, Any]:
    """US dollars and joules of the whole run, and per 1,000 finished requests; None where they are not known.

    Every instance is paid for from the start to the end of the run, whatever it does. A step with prompt
    tokens draws prefill power, any other step decode power.
    """
    costs = result.running_costs
    usd = sum(cost.usd_per_hour for cost in costs) * result.duration_s / 3600
    joules = sum(_energy_j(cost, logs, result.duration_s) for cost, logs in zip(costs, result.step_logs, strict=False))
    known_price = bool(costs) and all(cost.usd_per_hour > 0 for cost in costs)
    known_power = bool(costs) and all(cost.prefill_w > 0 for cost in costs)
    return {
        "cost_usd": usd if known_price else None,
        "usd_per_1k_requests": usd / completed * 1e3 if known_price and completed else None,
        "energy_j": joules if known_power else None,
        "joules_per_1k_requests": joules / completed * 1e3 if known_power and completed else None,
    }


def _energy_j(cost: RunningCost, logs: list[FloatArray], duration_s: float) -> float:
    busy = busy_s(logs)
    rows = np.concatenate(logs) if logs else np.empty((0, len(StepRow._fields)))
    steps = rows[:, _END] - rows[:, _START]
    total = steps.sum()
    share = steps[rows[:, _PREFILL_TOKENS] > 0].sum() / total if total else 0.0
    working_w = share * cost.prefill_w + (1 - share) * cost.decode_w
    return float(busy * working_w + max(0.0, duration_s - busy) * cost.idle_w)
