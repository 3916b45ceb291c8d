"""In place of a model: KV of the right shape and size, with bytes that only this request has."""

import torch
from torch import Tensor

from cluster.instance import Instance
from cluster.request import Request
from compute.kv_layout import KvLayout, Layers


class StandIn:
    """`kv_bytes_scale` keeps the KV of so large a share of a request's tokens, of at least one; 0 keeps none."""

    def __init__(self, layout: KvLayout, kv_bytes_scale: float) -> None:
        self.layout = layout
        self._scale = kv_bytes_scale
        self._pattern = torch.arange(1 << 20, dtype=torch.int32).to(torch.int16)

    def kv_tokens(self, request: Request) -> int:
        return max(1, round(request.target * self._scale)) if self._scale else 0

    def write_kv(self, request: Request, layers: Layers, out: Tensor) -> None:
        mark = (request.request_id * 1021 + layers.first) % 32749
        numbers = out.view(-1).view(torch.uint8).view(torch.int16)
        for start in range(0, numbers.numel(), self._pattern.numel()):
            piece = numbers[start : start + self._pattern.numel()]
            torch.add(self._pattern[: piece.numel()], mark, out=piece)

    def follow(self, core: Instance) -> None:
        """There is nothing to compute."""

    def settle(self, request: Request) -> None:
        """There is nothing to compute."""

    def compute_layers(self, request: Request, num_layers: int) -> None:
        """There is nothing to compute."""

    def take_kv(self, request: Request, kv: Tensor) -> None:
        """There is nobody to use it."""

    def forget(self, request_id: int) -> None:
        """There is nothing to forget."""
