"""A Hugging Face config.json into a ModelSpec, where a ModelSpec can describe the architecture."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError
from cluster.model import ModelSpec
from cluster.suggestion import did_you_mean
from scenario.strict_yaml import dump_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How one `model_type` spells its figures, and what a missing key stands for in transformers."""

    num_layers: str = "num_hidden_layers"
    num_heads: str = "num_attention_heads"
    intermediate_size: str | None = "intermediate_size"
    """None: four times the hidden size."""
    max_context: str = "max_position_embeddings"
    default_context: int | None = None
    num_kv_heads: int | None = None
    """Default of num_key_value_heads; None: as many as there are heads."""
    head_dim: int | None = None
    """Default of head_dim; None: hidden size over heads."""
    mlp_matrices: int = 3
    tied_embeddings: bool = False
    num_experts: str | None = None
    window_switch: str | None = None
    """Key that must be true for sliding_window to count; None: it counts whenever it is there."""


FAMILIES = {
    "llama": Family(),
    "mistral": Family(num_kv_heads=8),
    "qwen2": Family(num_kv_heads=32, window_switch="use_sliding_window"),
    "qwen3": Family(num_kv_heads=32, head_dim=128, window_switch="use_sliding_window"),
    "opt": Family(intermediate_size="ffn_dim", mlp_matrices=2, tied_embeddings=True),
    "bloom": Family(
        num_layers="n_layer",
        num_heads="n_head",
        intermediate_size=None,
        max_context="seq_length",
        default_context=2048,
        mlp_matrices=2,
        tied_embeddings=True,
    ),
    "mixtral": Family(num_kv_heads=8, num_experts="num_local_experts"),
    "qwen3_moe": Family(
        num_kv_heads=4,
        intermediate_size="moe_intermediate_size",
        num_experts="num_experts",
        window_switch="use_sliding_window",
    ),
}

# A second spelling of a key that real files use.
_SYNONYMS = {
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "hidden_size": "n_embed",
}

# Served in 16 bits whatever the checkpoint holds.
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "bf16"}


def import_hf_config(source: str | Path | Mapping[str, Any], name: str) -> ModelSpec:
    """The model that a config.json (or its content) describes.

    The context ends where an active sliding window does: up to there every token is kept and attended to,
    which is what a ModelSpec says. Raises ConfigError with the model_type and what keeps it from being
    described: an unknown family, latent attention, shared experts, unequal layers, a quantization.
    """
    config, where = (source, name) if isinstance(source, Mapping) else (_read_json(Path(source)), str(source))
    model_type = config.get("model_type")
    where = f"{where} (model_type {model_type})"
    family = FAMILIES.get(str(model_type))
    reason = _undescribable(config)
    if reason is None and family is None:
        reason = f"is of no family that can be imported; {did_you_mean(str(model_type), FAMILIES)}"
    if reason is not None or family is None:
        raise ConfigError(f"{where} {reason}")

    hidden_size = _figure(config, "hidden_size", where)
    num_heads = _figure(config, family.num_heads, where)
    dtype = _dtype(config, where)
    num_experts = _figure(config, family.num_experts, where) if family.num_experts else 0
    return ModelSpec(
        name=name,
        num_layers=_figure(config, family.num_layers, where),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=_figure(config, "num_key_value_heads", where, family.num_kv_heads or num_heads),
        head_dim=_figure(config, "head_dim", where, family.head_dim or hidden_size // num_heads),
        intermediate_size=(
            _figure(config, family.intermediate_size, where) if family.intermediate_size else 4 * hidden_size
        ),
        mlp_matrices=family.mlp_matrices,
        vocab_size=_figure(config, "vocab_size", where),
        tied_embeddings=bool(config.get("tie_word_embeddings", family.tied_embeddings)),
        max_context=_context(config, family, where),
        weight_dtype=_weight_dtype(config, dtype, where),
        kv_dtype=dtype,
        num_experts=num_experts,
        experts_per_token=_figure(config, "num_experts_per_tok", where) if num_experts else 0,
    )


def write_model(spec: ModelSpec, folder: Path) -> Path:
    """Write `folder`/models/<name>.yaml, whole or not at all, replacing one of that name; returns the file.

    Scenarios find the model by name when `folder` is one of scenario.catalog.config_folders.
    """
    if not spec.name or Path(spec.name).name != spec.name:
        raise ConfigError(f"model name {spec.name!r} makes no file name; leave out separators")
    defaults = {field.name: field.default for field in fields(spec)}
    given = {key: value for key, value in asdict(spec).items() if key != "name" and value != defaults[key]}
    file = folder / "models" / f"{spec.name}.yaml"
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(dump_yaml(given), encoding="utf-8")
        draft.replace(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None
    return file


def _read_json(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{file} holds no JSON object; give a model's config.json")
    return config


def _undescribable(config: Mapping[str, Any]) -> str | None:
    if "text_config" in config:
        return "is multimodal: only its text_config can be imported, from a file of its own"
    if config.get("kv_lora_rank"):
        return "has latent attention (kv_lora_rank), whose KV per token a ModelSpec does not describe"
    if config.get("model_type") == "qwen2_moe" or config.get("n_shared_experts"):
        return "has shared experts beside the routed ones, which a ModelSpec does not describe"
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        return "mixes dense and sparse layers, while a ModelSpec has layers of one kind"
    if config.get("word_embed_proj_dim") not in (None, config.get("hidden_size")):
        return "projects embeddings of another width (word_embed_proj_dim), which a ModelSpec does not describe"
    return None


def _figure(config: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    candidates = (config.get(key), config.get(_SYNONYMS.get(key, key)), default)
    value = next((one for one in candidates if one is not None), None)
    if value is None:
        raise ConfigError(f"{where}: {key} is missing")
    if type(value) is not int or value < 1:
        raise ConfigError(f"{where}: {key} is {value!r}, expected an integer of at least 1")
    return value


def _context(config: Mapping[str, Any], family: Family, where: str) -> int:
    context = _figure(config, family.max_context, where, family.default_context)
    if config.get(family.window_switch or "sliding_window"):
        context = min(context, _figure(config, "sliding_window", where, context))
    return context


def _dtype(config: Mapping[str, Any], where: str) -> str:
    dtype = config.get("torch_dtype") or config.get("dtype") or "bfloat16"
    if dtype not in _DTYPES:
        raise ConfigError(f"{where}: torch_dtype is {dtype!r}; use one of {', '.join(_DTYPES)}")
    return _DTYPES[dtype]


def _weight_dtype(config: Mapping[str, Any], dtype: str, where: str) -> str:
    quantization = config.get("quantization_config")
    if not quantization:
        return dtype
    method = quantization.get("quant_method")
    groups = quantization.get("config_groups") or {}
    weights = [group.get("weights") or {} for group in groups.values()]
    if method in ("fp8", "fbgemm_fp8") or (
        weights and all(one.get("num_bits") == 8 and one.get("type") == "float" for one in weights)
    ):
        return "fp8"
    raise ConfigError(f"{where}: weights quantized by {method} are not bf16, fp16 or fp8; import the original model")
