"""The data that ships: every file loads, and says what was published."""

from pathlib import Path

import pytest

from cluster.cost import kv_capacity_tokens
from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from cluster.model import ModelSpec
from metrics.slo import SloSpec
from scenario.catalog import names
from scenario.loading import load_scenario, load_spec

HERE = Path(__file__).parent

PUBLISHED_PARAMS = {
    "bloom-176b": 176.2e9,
    "falcon-180b": 179.5e9,
    "llama-2-70b": 69.0e9,
    "llama-2-7b": 6.74e9,
    "llama-3-70b": 70.6e9,
    "llama-3-8b": 8.03e9,
    "mistral-7b": 7.24e9,
    "mixtral-8x7b": 46.7e9,
    "opt-13b": 12.85e9,
    "opt-175b": 175e9,
    "opt-66b": 66e9,
    "qwen2.5-32b": 32.8e9,
    "qwen2.5-7b": 7.62e9,
    "yi-34b": 34.39e9,
}

KV_BYTES_PER_TOKEN = {
    "bloom-176b": 4_014_080,
    "falcon-180b": 163_840,
    "llama-2-70b": 327_680,
    "llama-2-7b": 524_288,
    "llama-3-70b": 327_680,
    "llama-3-8b": 131_072,
    "mistral-7b": 131_072,
    "mixtral-8x7b": 131_072,
    "opt-13b": 819_200,
    "opt-175b": 4_718_592,
    "opt-66b": 2_359_296,
    "qwen2.5-32b": 262_144,
    "qwen2.5-7b": 57_344,
    "yi-34b": 245_760,
}


def test_every_model_is_in_the_tables() -> None:
    assert names("models", HERE) == sorted(PUBLISHED_PARAMS) == sorted(KV_BYTES_PER_TOKEN)


@pytest.mark.parametrize("name", PUBLISHED_PARAMS)
def test_model_weighs_what_was_published(name: str) -> None:
    model = load_spec(ModelSpec, name)
    assert model.name == name
    assert model.total_params == pytest.approx(PUBLISHED_PARAMS[name], rel=0.005)
    assert model.kv_bytes_per_token == KV_BYTES_PER_TOKEN[name]


def test_mixtral_uses_12_9_billion_parameters_a_token() -> None:
    model = load_spec(ModelSpec, "mixtral-8x7b")
    assert model.active_body_params + 2 * model.head_params == pytest.approx(12.9e9, rel=0.005)


def test_opt_kv_figures() -> None:
    assert kv_capacity_tokens(load_spec(ModelSpec, "opt-13b"), load_spec(GpuSpec, "a100-80gb")) == 56_542
    assert 512 * load_spec(ModelSpec, "opt-66b").kv_bytes_per_token == pytest.approx(1.208e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "teraflops", "gigabytes_s", "gigabytes", "link", "watts"),
    [
        ("a100-80gb", 312, 2039, 80, "nvlink-a100", 400),
        ("a40", 149.7, 696, 48, "pcie-4", 300),
        ("h100-sxm", 989, 3350, 80, "nvlink-h100", 700),
        ("h200-sxm", 989, 4800, 141, "nvlink-h100", 700),
        ("l40s", 362.05, 864, 48, "pcie-4", 350),
    ],
)
def test_gpu_data_sheet(
    name: str, teraflops: float, gigabytes_s: float, gigabytes: float, link: str, watts: float
) -> None:
    gpu = load_spec(GpuSpec, name)
    assert (gpu.peak_flops, gpu.bandwidth_bytes_s) == pytest.approx((teraflops * 1e12, gigabytes_s * 1e9))
    assert (gpu.memory_bytes, gpu.link, gpu.power_w) == (gigabytes * 1e9, link, watts)
    assert load_spec(LinkSpec, gpu.link).name == link


@pytest.mark.parametrize(
    ("name", "gigabytes_s", "alpha_us"),
    [
        ("ethernet-25", 3.125, 20),
        ("ideal", 1e9, 0),
        ("infiniband-400", 50, 5),
        ("nvlink-a100", 300, 2),
        ("nvlink-h100", 450, 2),
        ("pcie-4", 32, 5),
    ],
)
def test_link(name: str, gigabytes_s: float, alpha_us: float) -> None:
    link = load_spec(LinkSpec, name)
    assert link.bandwidth_bytes_s == gigabytes_s * 1e9
    assert link.alpha_s == pytest.approx(alpha_us * 1e-6)


@pytest.mark.parametrize(
    ("name", "ttft_ms", "tpot_ms"),
    [
        ("chatbot-opt-13b", 250, 100),
        ("chatbot-opt-175b", 4000, 200),
        ("chatbot-opt-66b", 2500, 150),
        ("code-completion-opt-66b", 125, 200),
        ("summarization-opt-66b", 15000, 150),
    ],
)
def test_slo(name: str, ttft_ms: float, tpot_ms: float) -> None:
    assert load_spec(SloSpec, name) == SloSpec(ttft_ms=ttft_ms, tpot_ms=tpot_ms, attainment=0.9)


def test_the_tables_above_are_complete() -> None:
    assert [len(names(kind, HERE)) for kind in ("gpus", "links", "slos")] == [5, 6, 5]


@pytest.mark.parametrize(
    ("name", "num_gpus", "model", "planner"),
    [
        ("colocated-8b", 1, "llama-3-8b", "static"),
        ("demo", 16, "llama-3-70b", "load"),
        ("steady-8b", 4, "llama-3-8b", "static"),
    ],
)
def test_scenario(name: str, num_gpus: int, model: str, planner: str) -> None:
    scenario = load_scenario(name)
    assert (scenario.name, scenario.num_gpus, scenario.model.name) == (name, num_gpus, model)
    assert scenario.planner.policy == planner
    assert scenario.gpu_link.name == scenario.gpu.link


def test_every_scenario_loads() -> None:
    for name in names("scenarios", HERE):
        assert load_scenario(name).name == name
