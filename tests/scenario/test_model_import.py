import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.model import ModelSpec
from scenario.loading import load_scenario, load_spec
from scenario.model_import import import_hf_config, write_model

LLAMA_3_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "rope_theta": 500000.0,
}  # fmt: skip
LLAMA_2_7B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008,
    "vocab_size": 32000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
MISTRAL_7B = {
    "model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": 4096,
    "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN_2_5_7B = {
    "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768, "sliding_window": 131072,
    "use_sliding_window": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN_3_0_6B = {
    "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 40960,
    "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN_3_30B_A3B = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
    "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936, "max_position_embeddings": 40960,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
MIXTRAL_8X7B = {
    "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
    "max_position_embeddings": 32768, "sliding_window": None, "dtype": "bfloat16",
}  # fmt: skip
OPT_13B = {
    "model_type": "opt", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "ffn_dim": 20480,
    "word_embed_proj_dim": 5120, "vocab_size": 50272, "max_position_embeddings": 2048, "torch_dtype": "float16",
}  # fmt: skip
BLOOM_176B = {"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880}


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("llama-3-8b", LLAMA_3_8B),
        ("llama-2-7b", LLAMA_2_7B),
        ("qwen2.5-7b", QWEN_2_5_7B),
        ("mixtral-8x7b", MIXTRAL_8X7B),
        ("opt-13b", OPT_13B),
        ("bloom-176b", BLOOM_176B),
    ],
)
def test_imports_give_the_bundled_models(name: str, config: dict[str, Any]) -> None:
    assert import_hf_config(config, name) == load_spec(ModelSpec, name)


@pytest.mark.parametrize(
    ("config", "params", "kv_bytes", "max_context"),
    [
        (MISTRAL_7B, 7.24e9, 131_072, 4096),
        (MISTRAL_7B | {"sliding_window": None}, 7.24e9, 131_072, 32768),
        (QWEN_3_0_6B, 0.596e9, 114_688, 40960),
        (QWEN_3_0_6B | {"use_sliding_window": True, "sliding_window": 4096}, 0.596e9, 114_688, 4096),
        (QWEN_3_30B_A3B, 30.5e9, 98_304, 40960),
    ],
)
def test_what_imports_weigh(config: dict[str, Any], params: float, kv_bytes: int, max_context: int) -> None:
    model = import_hf_config(config, "x")
    assert model.total_params == pytest.approx(params, rel=0.005)
    assert (model.kv_bytes_per_token, model.max_context) == (kv_bytes, max_context)


FP8_GROUPS = {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}


@pytest.mark.parametrize(
    ("changes", "weight_dtype", "kv_dtype"),
    [
        ({}, "bf16", "bf16"),
        ({"torch_dtype": "float16"}, "fp16", "fp16"),
        ({"torch_dtype": "float32"}, "bf16", "bf16"),
        ({"torch_dtype": None}, "bf16", "bf16"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8", "bf16"),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": FP8_GROUPS}}, "fp8", "bf16"),
    ],
)
def test_dtypes(changes: dict[str, Any], weight_dtype: str, kv_dtype: str) -> None:
    model = import_hf_config(LLAMA_3_8B | changes, "x")
    assert (model.weight_dtype, model.kv_dtype) == (weight_dtype, kv_dtype)


FAULTS = [
    ({"model_type": "mamba"}, "(model_type mamba) is of no family that can be imported; "
     "use bloom, llama, mistral, mixtral, opt, qwen2, qwen3, qwen3_moe"),
    ({"model_type": "llama4"}, "(model_type llama4) is of no family that can be imported; did you mean llama?"),
    ({}, "(model_type None) is of no family that can be imported; use bloom, llama, mistral, mixtral, opt, qwen2, qwen3, qwen3_moe"),
    ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "(model_type deepseek_v3) has latent attention (kv_lora_rank), whose KV "
     "per token a ModelSpec does not describe"),
    ({"model_type": "qwen2_moe"}, "(model_type qwen2_moe) has shared experts beside the routed ones, which a ModelSpec does not "
     "describe"),
    ({"model_type": "llava", "text_config": {}}, "(model_type llava) is multimodal: only its text_config can be imported, from a "
     "file of its own"),
    (QWEN_3_30B_A3B | {"mlp_only_layers": [0]}, "(model_type qwen3_moe) mixes dense and sparse layers, while a ModelSpec has layers "
     "of one kind"),
    (OPT_13B | {"word_embed_proj_dim": 512}, "(model_type opt) projects embeddings of another width (word_embed_proj_dim), which a "
     "ModelSpec does not describe"),
    ({"model_type": "llama"}, "(model_type llama): hidden_size is missing"),
    (LLAMA_3_8B | {"vocab_size": "big"}, "(model_type llama): vocab_size is 'big', expected an integer of at least 1"),
    (LLAMA_3_8B | {"num_attention_heads": 0}, "(model_type llama): num_attention_heads is 0, expected an integer of at least 1"),
    (LLAMA_3_8B | {"torch_dtype": "int4"}, "(model_type llama): torch_dtype is 'int4'; use one of bfloat16, float16, float32"),
    (LLAMA_3_8B | {"quantization_config": {"quant_method": "awq"}}, "(model_type llama): weights quantized by awq are not bf16, fp16 "
     "or fp8; import the original model"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "sentence"), FAULTS)
def test_refusals_say_why(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        import_hf_config(config, "x")
    assert str(caught.value) == f"x {sentence}"


def test_a_config_file_becomes_a_model_that_scenarios_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "config.json"
    source.write_text(json.dumps(QWEN_3_30B_A3B))
    model = import_hf_config(source, "my-moe")
    file = write_model(model, tmp_path / "configs")
    assert file == tmp_path / "configs" / "models" / "my-moe.yaml"
    assert list(file.parent.iterdir()) == [file]
    monkeypatch.chdir(tmp_path)
    assert load_scenario("demo", ["model=my-moe"]).model == model


def test_files_that_are_no_config(tmp_path: Path) -> None:
    source = tmp_path / "config.json"
    for content, reason in (("{", "is not JSON: "), ("[]", "holds no JSON object; give a model's config.json")):
        source.write_text(content)
        with pytest.raises(ConfigError, match=reason):
            import_hf_config(source, "x")
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file or directory"):
        import_hf_config(tmp_path / "none.json", "x")
    with pytest.raises(ConfigError, match="model name 'a/b' makes no file name; leave out separators"):
        write_model(import_hf_config(LLAMA_3_8B, "a/b"), tmp_path)
