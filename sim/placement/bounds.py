"""An upper bound on what an instance carries, from the cost model alone: no simulation, and no doubt."""

from math import inf

import numpy as np

from cluster.role import Role
from scenario.build import build_cost, kv_capacity
from scenario.spec import Scenario
from workload.trace import Trace


def upper_bound(scenario: Scenario, role: Role, requests: Trace) -> tuple[float, str]:
    """The most requests/s that one instance of a role can carry, and what allows no more."""
    bounds = {
        "KV memory and seats": _seat_bound(scenario, role, requests),
        "the link": _link_bound(scenario, role, requests),
    }
    least = min(bounds, key=lambda name: bounds[name])
    return bounds[least], least


def _seat_bound(scenario: Scenario, role: Role, requests: Trace) -> float:
    """For which an instance that decodes has room.

    A request of p + o tokens holds them for o - 1 iterations, none of which is shorter than that of one sequence
    without context. By Little's law rate x mean of (p + o) (o - 1) x iteration is no more than the KV pool, and
    rate x mean of (o - 1) x iteration no more than the seats. Infinite where admission does not reserve the output.
    """
    if role is Role.PREFILL or not scenario.engine.reserves_output:
        return inf
    iteration_s = build_cost(scenario, role).decode_run(1, 0).first_s
    later = np.maximum(requests.output_tokens - 1, 0).astype(np.float64)
    held = float(((requests.prompt_tokens + requests.output_tokens) * later).mean())
    if not held:
        return inf
    seats = scenario.engine.max_batch * scenario.hardware_of(role).pp
    return min(kv_capacity(scenario, role) / held, seats / float(later.mean())) / iteration_s


def _link_bound(scenario: Scenario, role: Role, requests: Trace) -> float:
    """Whose prompts' KV can enter a decode instance."""
    if role is not Role.DECODE:
        return inf
    moved = requests.prompt_tokens[requests.output_tokens > 1].sum() / len(requests)
    return scenario.link.effective_bytes_s / float(moved * scenario.model.kv_bytes_per_token) if moved else inf
