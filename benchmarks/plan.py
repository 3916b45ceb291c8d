"""How long `baton plan` searches: whole processes, without kept results.

Prints wall seconds with two jobs and with one, and the CPU seconds of all their processes: half of those are
what two free cores take, however busy the machine is. --trace gives the lengths of the second case (the Azure
2023 conversation trace); without it they are lognormal.
"""

import argparse
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PR_SET_CHILD_SUBREAPER = 36
OPT_66B = [
    *("--set", "model=opt-66b", "--set", "slo=chatbot-opt-66b", "--set", "link=ethernet-25"),
    *("--set", "gpu=a100-80gb", "--set", "gpu_link=nvlink-a100", "--gpus", "a100-80gb:32", "--request-rate", "10"),
]
LLAMA_70B = ["--set", "model=llama-3-70b", "--goodput", "ttft:1000", "tpot:20", "--gpus", "h100-sxm:16"]
CASES = {
    "OPT-66B on 4 nodes of 8 A100": (OPT_66B, 60),
    "Llama-3-70B on 16 H100": ([*LLAMA_70B, "--request-rate", "10"], 30),
}


def measure(arguments: list[str], jobs: int) -> tuple[float, float]:
    """Wall and CPU seconds of one search and of all processes that it started."""
    command = [sys.executable, "-m", "cli.main", "plan", "steady-8b", *arguments, "--no-cache", "--jobs", str(jobs)]
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cpu_s, status = 0.0, 0
    while True:
        try:
            pid, ended, usage = os.wait4(-1, 0)
        except ChildProcessError:
            break
        cpu_s += usage.ru_utime + usage.ru_stime
        if pid == process.pid:
            status, wall_s = ended, time.monotonic() - start
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return wall_s, cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", help="a trace whose lengths are drawn in the second case")
    arguments = parser.parse_args()
    # Workers outlive the server that forked them and its parent; without this, nobody here could wait for them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    print(f"{'case':<32}{'jobs':>6}{'wall s':>9}{'CPU s':>9}{'CPU s / 2':>11}{'at most':>9}")
    for name, (words, limit_s) in CASES.items():
        trace = ["--trace", arguments.trace] if arguments.trace and words[1] == "model=llama-3-70b" else []
        for jobs in (2, 1):
            wall_s, cpu_s = measure([*words, *trace], jobs)
            print(f"{name:<32}{jobs:>6}{wall_s:>9.1f}{cpu_s:>9.1f}{cpu_s / 2:>11.1f}{limit_s:>9}", flush=True)


if __name__ == "__main__":
    main()
