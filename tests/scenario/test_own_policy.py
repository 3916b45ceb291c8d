"""A policy in a file of the user's own: found, run, and taken to processes that do not have the file."""

import subprocess
import sys
from pathlib import Path

import pytest
import ray.cloudpickle

from cluster.errors import ConfigError
from scenario.build import planner_tools
from scenario.loading import load_scenario
from sim.variants import run_scenario

POLICY = """
from cluster.role import Role
from planner.decision import Decision, RoleOrder

def eager(observation, tools, memory):
    ticks = (memory or 0) + 1
    donor = observation.movable(Role.DECODE)[0]
    orders = (RoleOrder(donor.index, donor.epoch, Role.PREFILL, "own", f"tick {ticks}"),) if ticks == 5 else ()
    return Decision(orders, f"tick {ticks}", 0, 0), ticks
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(POLICY)
    return tmp_path / "mine.py"


def test_it_runs(file: Path) -> None:
    scenario = load_scenario("demo", {"planner.policy": f"{file}:eager", "workload.num_requests": 200})
    result = run_scenario(scenario)
    assert [(change.decided_s, change.reason) for change in result.role_changes] == [(5.0, "tick 5")]
    assert [words for _, words in result.planner_words[:2]] == ["tick 1", "tick 2"]
    assert result.notices == []


def test_its_path_is_taken_from_the_scenario_file(file: Path) -> None:
    (file.parent / "own.yaml").write_text(
        "{model: llama-3-8b, gpu: h100-sxm, link: infiniband-400, instances: {prefill: 1, decode: 1},"
        " planner: {policy: 'mine.py:eager'},"
        " workload: {phases: [{duration_s: 1, request_rate: 1, prompt: {mean: 1}, output: {mean: 1}}]}}"
    )
    assert load_scenario(file.parent / "own.yaml").planner.policy == f"{file}:eager"


@pytest.mark.parametrize(
    ("policy", "code", "message"),
    [
        ("mine.py:eagre", POLICY, "has no function 'eagre'; did you mean eager?"),
        ("mine.py:Decision", POLICY, "has no function 'Decision'; use eager"),
        ("other.py:eager", POLICY, "write FILE.py:FUNCTION"),
        ("mine.py:eager", "1 / 0", "mine.py does not run: ZeroDivisionError: division by zero"),
        ("mine.py:eager", "def eager(:", "mine.py does not run: SyntaxError: "),
    ],
)
def test_faults_are_one_sentence(tmp_path: Path, policy: str, code: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(ConfigError) as error:
        load_scenario("demo", {"planner.policy": f"{tmp_path}/{policy}"})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_it_travels_without_its_file(file: Path) -> None:
    tools = planner_tools(load_scenario("demo", {"planner.policy": f"{file}:eager"}))
    assert tools.policy is not None
    ray.cloudpickle.register_pickle_by_value(sys.modules[tools.policy.__module__])
    (file.parent / "tools").write_bytes(ray.cloudpickle.dumps(tools))
    file.unlink()
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).policy.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code, file.parent / "tools"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "eager\n"
