"""What a planner's tick costs: CPU milliseconds per tick of every policy that decides at ticks, over a whole run.

The bound is what 8 instances allow a planner that ticks once a second: 200 ms. Absolute times depend on the machine.
"""

import argparse
import json
from collections.abc import Callable
from time import process_time

import numpy as np

from planner.decision import Decision
from planner.observation import Observation
from planner.planner import Planner
from scenario.loading import load_scenario
from scenario.requests import requests_of
from scenario.spec import Scenario
from sim.run import simulate
from sim.studies.rebalance_ways import policies

LEAST_MS = 0.01
"""A policy whose median tick is shorter decides nothing at ticks."""


def measure(scenario: Scenario) -> dict[str, float]:
    """One run of the scenario's workload; times in ms of this process."""
    ticks_s: list[float] = []
    plain: Callable[[Planner, Observation], Decision] = Planner.tick

    def timed(planner: Planner, observation: Observation) -> Decision:
        start_s = process_time()
        decision = plain(planner, observation)
        ticks_s.append(process_time() - start_s)
        return decision

    trace, too_long, _ = requests_of(scenario)
    Planner.tick = timed  # type: ignore[method-assign]
    start_s = process_time()
    try:
        result = simulate(scenario, trace, too_long)
    finally:
        Planner.tick = plain  # type: ignore[method-assign]
    p50, p99, largest = np.percentile(ticks_s, (50, 99, 100)) * 1e3
    return {
        "ticks": len(ticks_s),
        "mean_ms": float(np.mean(ticks_s)) * 1e3,
        "p50_ms": p50,
        "p99_ms": p99,
        "max_ms": largest,
        "share_of_run": sum(ticks_s) / (process_time() - start_s),
        "role_changes": len(result.role_changes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="?", default="alternating-8x70b")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {name: measure(way) for name, way in policies(load_scenario(arguments.scenario)).items()}
    results = {name: one for name, one in results.items() if one["p50_ms"] >= LEAST_MS}
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'policy':<24}{'ticks':>7}{'mean ms':>9}{'p50':>8}{'p99':>8}{'max':>8}{'of run':>8}{'changes':>9}")
    for name, one in results.items():
        print(
            f"{name:<24}{one['ticks']:>7}{one['mean_ms']:>9.1f}{one['p50_ms']:>8.1f}{one['p99_ms']:>8.1f}"
            f"{one['max_ms']:>8.1f}{one['share_of_run']:>8.0%}{one['role_changes']:>9}"
        )


if __name__ == "__main__":
    main()
