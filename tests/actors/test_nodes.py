"""Several Ray nodes: KV crosses them, one of them dies, and a job brings its own code and needs the token."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SHORT = (
    "workload.phases=[{name: short, duration_s: 14, request_rate: 6, prompt: {mean: 300, maximum: 600}, "
    "output: {mean: 100, maximum: 200}}]"
)
SETTINGS = ["--set", SHORT, "--set", "planner.policy=static", "--set", "live.metrics_port=0"]
ON_NODES = """
import sys
from ray.cluster_utils import Cluster
from cli.main import main

cluster = Cluster()
try:
    cluster.add_node(num_cpus=2, object_store_memory=128 << 20, include_dashboard=False)
    for _ in range(2):
        cluster.add_node(num_cpus=2, object_store_memory=128 << 20)
    sys.exit(main([*sys.argv[1:], "--address", cluster.address]))
finally:
    cluster.shutdown()
"""


def run_on_nodes(*words: str) -> dict:
    """Run a command on a cluster of three nodes, of which the driver has the first; returns its summary."""
    done = subprocess.run(
        [sys.executable, "-c", ON_NODES, *words, *SETTINGS, "--json", "--quiet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", ["object_store", "tcp"])
def test_a_node_dies(way: str) -> None:
    settings = ["--set", "gpus_per_node=4", "--set", f"live.kv_between_nodes={way}"]
    summary = run_on_nodes("chaos", "demo", "--fault", "kill-node@5", *settings)
    (fault,) = summary["live"]["faults"]
    assert fault["target"].startswith("node of instance-")
    assert fault["recovery_s"] > fault["detection_s"] > 0
    assert summary["completed"] > 50
    assert summary["failed"] == 0
    dead = [recovery["who"] for recovery in summary["live"]["recoveries"]]
    assert fault["target"].removeprefix("node of ") in dead
    assert summary["live"]["kv_payloads_verified"] >= summary["completed"] - summary["live"]["requests_disturbed"]


@pytest.fixture
def head(tmp_path: Path) -> Iterator[dict[str, str]]:
    """`ray start --head` with a token; the environment in which it answers, and its ports."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef" * 4)
    gcs, dashboard, agent = free_port(), free_port(), free_port()
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    ray = str(Path(sys.executable).with_name("ray"))
    words = ["start", "--head", "--block", f"--port={gcs}", f"--dashboard-port={dashboard}", "--num-cpus=2"]
    process = subprocess.Popen(
        [ray, *words, f"--dashboard-agent-listen-port={agent}", "--object-store-memory=134217728"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 120
        while not (listens(gcs) and listens(dashboard)):
            assert process.poll() is None, "ray start failed"
            assert time.monotonic() < until, "ray start takes too long"
            time.sleep(0.5)
        yield {**environment, "RAY": ray, "GCS": f"127.0.0.1:{gcs}", "DASHBOARD": f"http://127.0.0.1:{dashboard}"}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_job_brings_its_code_and_the_token_is_asked_for(head: dict[str, str]) -> None:
    replay = ["replay", "demo", *SETTINGS, "--quiet", "--json"]
    submit = [head["RAY"], "job", "submit", "--address", head["DASHBOARD"], "--working-dir", "."]
    until = time.monotonic() + 120
    while True:
        done = subprocess.run(
            [*submit, "--", sys.executable, "-m", "cli.main", *replay, "--address", "auto"],
            cwd=ROOT,
            env=head,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if "No available agent" not in done.stderr or time.monotonic() > until:
            break
        time.sleep(2.0)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert '"driver": "replay"' in done.stdout

    without = {**head, "RAY_AUTH_MODE": "disabled"}
    refused = subprocess.run(
        [sys.executable, "-m", "cli.main", *replay, "--address", head["GCS"]],
        cwd=ROOT,
        env=without,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert refused.returncode == 1
    assert "export RAY_AUTH_MODE=token" in refused.stderr.splitlines()[-1]
