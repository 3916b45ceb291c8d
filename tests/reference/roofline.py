"""The step-time model once more, from its description alone: FLOPs and bytes summed over every sequence."""

from itertools import count
from math import floor

from cluster.model import ModelSpec
from scenario.hardware import Hardware

BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}


class Stage:
    """`layers` layers of a model on tp GPUs; `first` embeds tokens, `last` makes logits."""

    def __init__(self, model: ModelSpec, hardware: Hardware, layers: int, *, first: bool, last: bool) -> None:
        self.model, self.gpu, self.link = model, hardware.gpu, hardware.gpu_link
        self.tp, self.layers, self.first, self.last = hardware.tp, layers, first, last
        self.power_cap = hardware.power_cap
        self.width = BYTES[model.weight_dtype]
        heads, kv_heads = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
        self.attention_params = layers * model.hidden_size * (heads + 2 * kv_heads + heads)
        self.gate_params = layers * model.hidden_size * model.num_experts
        self.mlp_params = layers * model.mlp_matrices * model.hidden_size * model.intermediate_size
        self.head_params = model.vocab_size * model.hidden_size
        self.kv_bytes = 2 * layers * kv_heads * BYTES[model.kv_dtype]
        self.row_bytes = 2 * model.hidden_size

    def step_s(self, chunks: list[tuple[int, int, bool]], contexts: list[int]) -> float:
        """Seconds of one step over (past, new tokens, ends its prompt) of chunks and contexts of decodes."""
        tokens = sum(new for _, new, _ in chunks) + len(contexts)
        compute, memory = self.parts_s(chunks, contexts)
        overhead = self.gpu.step_overhead_s * self.layers / self.model.num_layers
        ring_s = 0.0
        if self.tp > 1:
            payload = 2 * (self.tp - 1) / self.tp * tokens * self.row_bytes
            ring_s = 2 * (self.tp - 1) * self.link.alpha_s + payload / (
                self.link.bandwidth_bytes_s * self.link.efficiency
            )
        return max(compute, memory) + overhead + 2 * self.layers * ring_s

    def parts_s(self, chunks: list[tuple[int, int, bool]], contexts: list[int]) -> tuple[float, float]:
        """Compute and memory seconds."""
        model, gpu = self.model, self.gpu
        tokens = sum(new for _, new, _ in chunks) + len(contexts)
        logits = sum(ends for _, _, ends in chunks) + len(contexts)
        mlps_used = model.experts_per_token or 1
        flops = 2 * (self.attention_params + self.gate_params + mlps_used * self.mlp_params) * tokens
        moved = self.width * (self.attention_params + self.gate_params + self.mlps_read(tokens) * self.mlp_params)
        if self.last:
            flops += 2 * self.head_params * logits
            moved += self.width * self.head_params if logits else 0
        if self.first:
            moved += self.row_bytes * tokens
        for past, new, _ in chunks:
            flops += 4 * self.layers * model.num_heads * model.head_dim * new * (past + new / 2)
            moved += self.kv_bytes * (past + new)
        for context in contexts:
            flops += 4 * self.layers * model.num_heads * model.head_dim * context
            moved += self.kv_bytes * context
        peak = self.tp * gpu.peak_flops * gpu.compute_efficiency * self.power_cap**0.7356
        if model.weight_dtype == "fp8":
            peak *= gpu.fp8_speedup
        return flops / peak, moved / (self.tp * gpu.bandwidth_bytes_s * gpu.memory_efficiency)

    def mlps_read(self, tokens: int) -> float:
        """How many MLPs of a layer a step reads: one, or the experts that its tokens hit in expectation."""
        experts = self.model.num_experts
        return experts * (1 - (1 - self.model.experts_per_token / experts) ** tokens) if experts else 1


def stages_of(model: ModelSpec, hardware: Hardware) -> list[Stage]:
    """The pipeline stages of an instance, the longer ones first."""
    each, extra = divmod(model.num_layers, hardware.pp)
    layers = [each + (stage < extra) for stage in range(hardware.pp)]
    last = hardware.pp - 1
    return [Stage(model, hardware, n, first=stage == 0, last=stage == last) for stage, n in enumerate(layers)]


def saturation_tokens(model: ModelSpec, hardware: Hardware) -> int:
    """The shortest prompt that alone is bound by compute."""
    whole = Stage(model, hardware, model.num_layers, first=True, last=True)
    for tokens in count(1):
        compute, memory = whole.parts_s([(0, tokens, True)], [])
        if compute >= memory:
            return tokens
    raise AssertionError


def weight_bytes(stage: Stage) -> int:
    """Stored weights of a stage: with the embedding on the first, and the head on the last unless it is tied to it."""
    mlps = max(1, stage.model.num_experts)
    params = stage.attention_params + stage.gate_params + mlps * stage.mlp_params
    tables = stage.first + stage.last
    if stage.first and stage.last and stage.model.tied_embeddings:
        tables = 1
    return stage.width * (params + tables * stage.head_params)


def kv_capacity(model: ModelSpec, hardware: Hardware) -> int:
    """KV tokens an instance holds: those of its fullest stage."""
    usable = hardware.tp * hardware.gpu.usable_memory * hardware.gpu.memory_bytes
    return min(floor((usable - weight_bytes(stage)) / stage.kv_bytes) for stage in stages_of(model, hardware))


def memory_for(model: ModelSpec, hardware: Hardware, kv_tokens: int) -> float:
    """The `memory_bytes` of a GPU with which an instance holds exactly `kv_tokens`."""
    needed = max(weight_bytes(stage) + (kv_tokens + 0.5) * stage.kv_bytes for stage in stages_of(model, hardware))
    return needed / (hardware.tp * hardware.gpu.usable_memory)
