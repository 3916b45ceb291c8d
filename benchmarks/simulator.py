"""How fast the simulator is: whole `baton simulate` processes, start-up, results and report included.

Prints requests and output tokens per CPU second, peak memory, and how cost grows with requests and with
instances. CPU seconds, because wall time on a shared machine says little. --trace gives the lengths to draw
from (the Azure 2023 conversation trace); without it lengths are lognormal with the same means.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CASES = {
    "2P2D at 12 req/s": (12, {"instances.prefill": 2, "instances.decode": 2}),
    "4P4D at 40 req/s": (40, {"instances.prefill": 4, "instances.decode": 4}),
    "4 colocated, chunked prefill": (12, {"instances.prefill": 0, "instances.decode": 0, "instances.mixed": 4}),
    "32P32D at 320 req/s": (320, {"instances.prefill": 32, "instances.decode": 32}),
}


def measure(num_requests: int, rate: float, settings: dict[str, object], trace: str | None) -> dict[str, float]:
    """One process; CPU seconds and memory as the operating system accounts them."""
    if trace is None:
        phase = (
            f"{{name: bench, duration_s: {num_requests / rate * 1.1}, request_rate: {rate}, "
            "prompt: {mean: 880, maximum: 3000}, output: {mean: 224, maximum: 1000}}"
        )
        workload = ["--set", f"workload.phases=[{phase}]", "--num-requests", str(num_requests)]
    else:
        workload = ["--trace", trace, "--resample", str(num_requests), "--request-rate", str(rate)]
        workload += ["--set", "workload.max_total_tokens=4000"]
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cli.main", "simulate", "steady-8b", *workload, *sets, "--quiet"]
        process = subprocess.Popen([*command, "--out", f"{folder}/run"], cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(command)} failed")
        summary = json.loads(Path(folder, "run/summary.json").read_text())
    cpu_s = usage.ru_utime + usage.ru_stime
    return {
        "requests": num_requests,
        "cpu_s": cpu_s,
        "requests_per_cpu_s": num_requests / cpu_s,
        "output_tokens_per_cpu_s": summary["total_output_tokens"] / cpu_s,
        "peak_mb": usage.ru_maxrss / 1024,
    }


def median(rows: list[dict[str, float]]) -> dict[str, float]:
    return sorted(rows, key=lambda row: row["cpu_s"])[len(rows) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", help="a trace whose lengths are drawn")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--growth", type=int, default=4, help="also run so many times the requests")
    parser.add_argument("--json", metavar="FILE", help="write the figures here, too")
    arguments = parser.parse_args()

    results: dict[str, dict[str, float]] = {}
    print(f"{'case':<32}{'requests':>10}{'CPU s':>8}{'req/CPU s':>12}{'tokens/CPU s':>14}{'peak MB':>9}")

    def case(name: str, num_requests: int, rate: float, settings: dict[str, object]) -> dict[str, float]:
        row = median([measure(num_requests, rate, settings, arguments.trace) for _ in range(arguments.repeats)])
        results[name] = row
        print(
            f"{name:<32}{num_requests:>10,}{row['cpu_s']:>8.2f}{row['requests_per_cpu_s']:>12,.0f}"
            f"{row['output_tokens_per_cpu_s']:>14,.0f}{row['peak_mb']:>9.0f}",
            flush=True,
        )
        return row

    for name, (rate, settings) in CASES.items():
        case(name, arguments.requests, rate, settings)
    first, (rate, settings) = next(iter(CASES)), next(iter(CASES.values()))
    more = case(f"{first}, {arguments.growth} N", arguments.growth * arguments.requests, rate, settings)
    ratio = more["cpu_s"] / results[first]["cpu_s"] / arguments.growth
    many = results["32P32D at 320 req/s"]["cpu_s"] / results["4P4D at 40 req/s"]["cpu_s"]
    print(f"cost per request at {arguments.growth} N over N: {ratio:.2f}")
    print(f"cost per request of 64 instances over 8: {many:.2f}")
    if arguments.json:
        figures = {"cases": results, "growth_ratio": ratio, "ratio_64_over_8_instances": many}
        Path(arguments.json).write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
