"""How the KV of a request lies in memory: the model's own shape and element type, layer after layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from cluster.model import ModelSpec

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}


class Layers(NamedTuple):
    """Some layers of a model: from `first` up to, without, `end`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class KvLayout:
    """(layers, 2, KV heads, tokens, head dim), keys before values; the layers of one request lie one after another."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @classmethod
    def of_model(cls, model: ModelSpec) -> "KvLayout":
        return cls(model.num_layers, model.num_kv_heads, model.head_dim, TORCH_DTYPES[model.kv_dtype])

    @property
    def all_layers(self) -> Layers:
        return Layers(0, self.num_layers)

    def shape(self, num_tokens: int, layers: Layers) -> tuple[int, int, int, int, int]:
        return layers.end - layers.first, 2, self.num_kv_heads, num_tokens, self.head_dim

    def num_bytes(self, num_tokens: int, layers: Layers | None = None) -> int:
        return prod(self.shape(num_tokens, layers or self.all_layers)) * self.dtype.itemsize

    def tensor(self, buffer: Tensor, num_tokens: int, layers: Layers | None = None) -> Tensor:
        """Some layers of the KV that begins at the first byte of `buffer` (uint8): a view."""
        layers = layers or self.all_layers
        start = self.num_bytes(num_tokens, Layers(0, layers.first))
        length = self.num_bytes(num_tokens, layers)
        return buffer[start : start + length].view(self.dtype).view(self.shape(num_tokens, layers))

    def groups(self, num_tokens: int, most_bytes: int) -> Iterator[Layers]:
        """All layers, in groups that are as large as `most_bytes` allows; one layer may be larger than that."""
        layer_bytes = self.num_bytes(num_tokens, Layers(0, 1))
        size = max(1, most_bytes // layer_bytes)
        for first in range(0, self.num_layers, size):
            yield Layers(first, min(first + size, self.num_layers))
