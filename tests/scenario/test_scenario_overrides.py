from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from scenario.catalog import BUNDLED
from scenario.loading import load_scenario
from scenario.overrides import parse_overrides
from scenario.spec import Scenario

CASES: list[tuple[list[str], Callable[[Scenario], Any], Any]] = [
    (["engine.token_budget=256"], lambda s: s.engine.token_budget, 256),
    (["engine.token_budget=1e3"], lambda s: s.engine.token_budget, 1000),
    (["instances.prefill=3"], lambda s: (s.instances.prefill, s.instances.decode), (3, 2)),
    (["instances={mixed: 4}"], lambda s: (s.instances.prefill, s.instances.mixed), (0, 4)),
    (["model=opt-13b"], lambda s: (s.model.name, s.model.num_layers), ("opt-13b", 40)),
    (["model.num_layers=2", "model=opt-13b"], lambda s: (s.model.num_layers, s.model.hidden_size), (2, 5120)),
    (["gpu.memory_bytes=40e9"], lambda s: (s.gpu.name, s.gpu.memory_bytes), ("h100-sxm", 40e9)),
    (["gpu=a100-80gb"], lambda s: s.gpu_link.name, "nvlink-a100"),
    (["gpu_link.alpha_s=1e-7"], lambda s: (s.gpu_link.name, s.gpu_link.alpha_s), ("nvlink-h100", 1e-7)),
    (["gpu_link.alpha_s=1", "gpu=a40"], lambda s: (s.gpu_link.name, s.gpu_link.alpha_s), ("pcie-4", 1.0)),
    (["gpu_link=ethernet-25"], lambda s: s.gpu_link.bandwidth_bytes_s, 3.125e9),
    (["slo=chatbot-opt-66b"], lambda s: (s.slo.ttft_ms, s.slo.tpot_ms), (2500, 150)),
    (["slo.tpot_ms=null"], lambda s: (s.slo.ttft_ms, s.slo.tpot_ms), (1000, None)),
    (["workload.phases.0.request_rate=5"], lambda s: [p.request_rate for p in s.workload.phases][:2], [5, 10.5]),
    (["workload.phases=[]", "workload.trace=/t.csv"], lambda s: (s.workload.trace, s.workload.phases), ("/t.csv", [])),
    (["name=a=b"], lambda s: s.name, "a=b"),
    (["live.metrics_host=no"], lambda s: s.live.metrics_host, "no"),
    (["seed=1", "seed=2"], lambda s: s.seed, 2),
]


@pytest.mark.parametrize(("overrides", "read", "value"), CASES)
def test_override(overrides: list[str], read: Callable[[Scenario], Any], value: Any) -> None:
    assert read(load_scenario("demo", overrides)) == value


def test_a_mapping_of_values_overrides_too() -> None:
    assert load_scenario("demo", {"tp": 8, "instances.decode": 5}) == load_scenario(
        "demo", ["tp=8", "instances.decode=5"]
    )


def test_spec_files_are_found_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.yaml").write_text("bandwidth_bytes_s: 1\nalpha_s: 1\n")
    monkeypatch.chdir(tmp_path)
    assert load_scenario("demo", ["link=slow.yaml"]).link.name == "slow"


def test_sections_come_before_what_is_in_them() -> None:
    paths = [change.path for change in parse_overrides(["b.c.d=1", "b=2", "a.x=3", "b.c=4"])]
    assert paths == ["b", "a.x", "b.c", "b.c.d"]


FAULTS = [
    (["engin.token_budget=256"], "engin is not a known key; did you mean engine?"),
    (["engine.token_budgt=2"], "engine.token_budgt is not a known key; did you mean token_budget?"),
    (["workload.phases.7.request_rate=1"], "workload.phases.7.request_rate asks for item 7 of a list of 4; items count from 0"),
    (["workload.phases.x=1"], "workload.phases.x asks for item x of a list of 4; items count from 0"),
    (["instances.prefill.x=1"], "instances.prefill.x looks for 'x' in 2, which is a single value"),
    (["model=llama3-8b"], "there is no model named 'llama3-8b'; did you mean llama-3-8b or llama-3-70b or llama-2-7b?"),
    (["gpu=h100", "gpu.power_w=1"], "there is no gpu named 'h100'; did you mean h100-sxm?"),
    (["tp=2", "gpu.link=nvlink"], "there is no link named 'nvlink'; did you mean nvlink-a100 or nvlink-h100?"),
    (["tp=[1]", "slo.ttft_ms=soon"], "tp is [1], expected an integer (and 1 more)"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "sentence"), FAULTS)
def test_faults_name_the_overrides(tmp_path: Path, overrides: list[str], sentence: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text((BUNDLED / "scenarios" / "demo.yaml").read_text())
    with pytest.raises(ConfigError) as caught:
        load_scenario(file, overrides)
    settings = " ".join(f"--set {override}" for override in overrides)
    assert str(caught.value) == f"{file} with {settings}: {sentence}"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("tp", "--set tp does not say what to set; write path=value, or path=null to unset"),
        ("tp=", "--set tp= does not say what to set; write path=value, or path=null to unset"),
        ("=4", "--set =4 does not say what to set; write path=value, or path=null to unset"),
        ("tp=[1", "--set tp=[1: "),
    ],
)
def test_an_override_that_cannot_be_read(override: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario("demo", [override])
    assert str(caught.value).startswith(sentence)


IDLE = """
model: opt-13b
gpu: a100-80gb
link: ethernet-25
instances: {prefill: 1, decode: 1}
planner: {policy: load, load: {votes: 3}}
engine: {admission: preempt_recompute, block_size: 8}
workload: {trace: t.csv}
"""


def test_an_override_may_take_the_effect_of_other_settings(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(IDLE)
    assert load_scenario(file).planner.load.votes == 3
    static = load_scenario(file, ["planner.policy=static", "engine.admission=reserve_output"])
    assert (static.planner.load.votes, static.engine.block_size) == (2, 16)
    for overrides in (["planner.policy=static", "planner.load.votes=4"], ["planner={load: {votes: 4}}"]):
        with pytest.raises(ConfigError, match=r"planner\.load has no effect while planner\.policy is static"):
            load_scenario(file, overrides)
