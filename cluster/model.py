"""What a model weighs: parameter counts and KV bytes from its public architecture figures."""

from dataclasses import dataclass

from cluster.errors import ConfigError

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A decoder-only transformer.

    Counts are matmul parameters only: no norms, no biases. `mlp_matrices` is 3 for a gated MLP
    (gate, up, down) and 2 for a plain one. For a mixture of experts, `num_experts` is the number of
    routed experts a layer holds, `experts_per_token` how many of them one token uses, and
    `intermediate_size` the width of one expert; 0 and 0 mean a dense model.
    """

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    mlp_matrices: int
    vocab_size: int
    tied_embeddings: bool
    max_context: int
    weight_dtype: str = "bf16"
    kv_dtype: str = "bf16"
    num_experts: int = 0
    experts_per_token: int = 0

    def __post_init__(self) -> None:
        for field in (
            "num_layers",
            "hidden_size",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "intermediate_size",
            "vocab_size",
            "max_context",
        ):
            value = getattr(self, field)
            if value < 1:
                raise ConfigError(f"model {self.name}: {field} is {value}; it must be at least 1")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"model {self.name}: num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}"
            )
        if self.mlp_matrices not in (2, 3):
            raise ConfigError(f"model {self.name}: mlp_matrices is {self.mlp_matrices}; use 3 (gated) or 2 (plain)")
        for field in ("weight_dtype", "kv_dtype"):
            if getattr(self, field) not in DTYPE_BYTES:
                raise ConfigError(
                    f"model {self.name}: {field} is {getattr(self, field)!r}; use one of {', '.join(DTYPE_BYTES)}"
                )
        if not 0 <= self.experts_per_token <= self.num_experts:
            raise ConfigError(
                f"model {self.name}: experts_per_token is {self.experts_per_token} of {self.num_experts} experts"
            )
        if self.num_experts and not self.experts_per_token:
            raise ConfigError(f"model {self.name}: {self.num_experts} experts need experts_per_token of at least 1")

    @property
    def attention_params(self) -> int:
        """q, k, v and o projections of one layer."""
        q_and_o = 2 * self.hidden_size * self.num_heads * self.head_dim
        k_and_v = 2 * self.hidden_size * self.num_kv_heads * self.head_dim
        return q_and_o + k_and_v

    @property
    def expert_params(self) -> int:
        """One MLP (dense model) or one expert of one layer."""
        return self.mlp_matrices * self.hidden_size * self.intermediate_size

    @property
    def router_params(self) -> int:
        """The gate that picks the experts of one layer."""
        return self.hidden_size * self.num_experts

    @property
    def body_params(self) -> int:
        """Matmul parameters of all layers that are stored."""
        mlps = max(1, self.num_experts)
        return self.num_layers * (self.attention_params + self.router_params + mlps * self.expert_params)

    @property
    def active_body_params(self) -> int:
        """Matmul parameters of all layers that one token is multiplied with."""
        mlps = max(1, self.experts_per_token)
        return self.num_layers * (self.attention_params + self.router_params + mlps * self.expert_params)

    @property
    def head_params(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def total_params(self) -> int:
        """Stored parameters: body, input embedding and, when untied, the output head."""
        return self.body_params + self.head_params * (1 if self.tied_embeddings else 2)

    @property
    def weight_dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.weight_dtype]

    @property
    def activation_dtype_bytes(self) -> int:
        """Activations stay 16-bit whatever the weights are stored as."""
        return 2

    @property
    def weight_bytes(self) -> int:
        return self.total_params * self.weight_dtype_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V of one token over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * DTYPE_BYTES[self.kv_dtype]
