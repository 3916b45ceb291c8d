"""What a live run takes of its host: how late steps are with many instances, and Ray calls and CPU per request.

`steps`: colocated instances that prefill in small chunks, each chunk a step with a timer of its own. `requests`: the
demo cluster, with handoffs and reports; `layerwise`: the same with KV that is pushed in groups of layers.
"""

import argparse
import json
from typing import Any

from actors.replay import replay
from metrics.run import RunResult
from scenario.loading import load_scenario
from scenario.requests import requests_of

CHUNK_TOKENS = 128
CHUNKS = 62


def run(name: str, changes: dict[str, Any]) -> RunResult:
    scenario = load_scenario(name, {"live.metrics_port": 0, "planner.policy": "static", **changes})
    trace, too_long, _ = requests_of(scenario)
    return replay(scenario, trace, too_long, address=None)


def steps(instances: int, steps_per_s: float, duration_s: float) -> dict[str, Any]:
    phase = {
        "duration_s": duration_s,
        "request_rate": instances * steps_per_s / CHUNKS,
        "arrivals": "constant",
        "prompt": {"kind": "fixed", "mean": CHUNK_TOKENS * CHUNKS},
        "output": {"kind": "fixed", "mean": 2},
    }
    changes = {
        "instances.mixed": instances,
        "engine.token_budget": CHUNK_TOKENS,
        "workload": {"phases": [phase]},
        "live.kv_bytes_scale": 0,
    }
    result = run("colocated-8b", changes)
    num_steps = sum(len(log) for logs in result.step_logs for log in logs)
    return {
        "instances": instances,
        "steps_per_s_and_instance": round(num_steps / result.duration_s / instances, 1),
        "lateness_ms": result.live["lateness_ms"],
        "cpu_cores": round((result.live["actors_cpu_s"] + result.cpu_s) / result.wall_s, 2),
        "notes": result.notices,
    }


def requests(duration_s: float, **handoff: str) -> dict[str, Any]:
    phase = {
        "duration_s": duration_s,
        "request_rate": 10,
        "prompt": {"mean": 1000, "maximum": 7000},
        "output": {"mean": 200, "maximum": 1000},
    }
    result = run("demo", {"workload.phases": [phase], "handoff": handoff})
    return {
        "requests": result.num_requests,
        "ray_calls_per_request": result.live["ray_calls_per_request"],
        "cpu_s_per_1k_requests": result.live["cpu_s_per_1k_requests"],
        "lateness_ms": result.live["lateness_ms"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--steps-per-s", type=float, default=100, help="for each instance")
    parser.add_argument("--duration", type=float, default=20, metavar="S")
    arguments = parser.parse_args()
    report = {
        "steps": steps(arguments.instances, arguments.steps_per_s, arguments.duration),
        "requests": requests(2 * arguments.duration),
        "layerwise": requests(2 * arguments.duration, initiative="push", mode="layerwise"),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
