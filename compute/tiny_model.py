"""A Llama-style transformer small enough for any CPU, whose tokens can be checked: seeded weights, explicit KV, counters."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from random import Random

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyConfig:
    """Sizes of the model. A vocabulary of 256 makes a text a `bytes`."""

    num_layers: int = 4
    hidden_size: int = 64
    num_heads: int = 4
    num_kv_heads: int = 2
    intermediate_size: int = 176
    vocab_size: int = 256
    rope_theta: float = 10_000.0

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads


def prompt_of(request_id: int, num_tokens: int, seed: int = 0) -> bytes:
    """The prompt of a request: random, and the same wherever it is asked for."""
    return Random(f"{seed}/{request_id}").randbytes(num_tokens)


class TinyModel:
    """RMSNorm, rotary positions, grouped-query attention and SwiGLU; `seed` draws all weights.

    In the default double precision the order of summation moves logits by some 1e-14, far less than what lies
    between the best two tokens: however a text is cut up, greedy decoding gives the same tokens.

    KV is a tensor (layers, 2, KV heads, tokens, head dim), keys first, that the caller owns; passes fill it in.
    From here on torch works on one thread in this process: so little work only loses by being shared out.
    """

    def __init__(self, config: TinyConfig | None = None, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        torch.set_num_threads(1)
        self.config = config = config or TinyConfig()
        self.dtype = dtype
        self.flops = 0
        """Multiplications and additions so far, twice one for each pair; attention counts what causality allows."""
        self.kv_elements_read = 0
        """Elements of KV that attention has read so far, those just written included."""
        generator = torch.Generator().manual_seed(seed)

        def weights(outputs: int, inputs: int) -> Tensor:
            return (torch.randn(outputs, inputs, generator=generator, dtype=torch.float64) / sqrt(inputs)).to(dtype)

        hidden, kv_size = config.hidden_size, config.num_kv_heads * config.head_dim
        self._embedding = weights(config.vocab_size, hidden) * sqrt(hidden)
        self._layers = [
            _Layer(
                qkv=weights(hidden + 2 * kv_size, hidden),
                out=weights(hidden, hidden),
                gate_up=weights(2 * config.intermediate_size, hidden),
                down=weights(hidden, config.intermediate_size),
            )
            for _ in range(config.num_layers)
        ]
        self._head = weights(config.vocab_size, hidden)
        self._frequencies = config.rope_theta ** (-torch.arange(0, config.head_dim, 2, dtype=dtype) / config.head_dim)

    def empty_kv(self, num_tokens: int) -> Tensor:
        """Room for the KV of so many tokens."""
        config = self.config
        return torch.empty(config.num_layers, 2, config.num_kv_heads, num_tokens, config.head_dim, dtype=self.dtype)

    def prefill_chunk(self, tokens: Sequence[int], kv: Tensor, past: int = 0) -> Tensor:
        """Compute `tokens`, of which `past` others stand before in `kv`; returns the logits after the last, (vocab,)."""
        return Pass(self, tokens, kv, past).logits()

    def decode(self, token: int, kv: Tensor, past: int) -> Tensor:
        """Compute one token; returns the logits after it, (vocab,)."""
        return self.prefill_chunk((token,), kv, past)

    def generate(self, prompt: Sequence[int], num_tokens: int) -> bytes:
        """Greedy decoding after one prefill of the whole prompt: the reference for every other way."""
        kv = self.empty_kv(len(prompt) + num_tokens)
        output = bytearray([greedy(self.prefill_chunk(prompt, kv))])
        while len(output) < num_tokens:
            output.append(greedy(self.decode(output[-1], kv, len(prompt) + len(output) - 1)))
        return bytes(output)

    def embed(self, tokens: Sequence[int]) -> Tensor:
        return self._embedding[list(tokens)]

    def run_layer(self, number: int, x: Tensor, kv: Tensor, past: int) -> Tensor:
        """One layer over x (tokens, hidden); writes its KV in place and returns the new x."""
        layer = self._layers[number]
        x = x + self._linear(layer.out, self._attend(self._linear(layer.qkv, _norm(x)), kv[number], past))
        gate, up = self._linear(layer.gate_up, _norm(x)).chunk(2, dim=-1)
        return x + self._linear(layer.down, torch.nn.functional.silu(gate) * up)

    def head(self, x: Tensor) -> Tensor:
        """Logits (vocab,) after one position, x (hidden,)."""
        return self._linear(self._head, _norm(x))

    def _linear(self, weight: Tensor, x: Tensor) -> Tensor:
        self.flops += 2 * weight.numel() * (x.numel() // x.shape[-1])
        return x @ weight.T

    def _attend(self, qkv: Tensor, kv: Tensor, past: int) -> Tensor:
        config = self.config
        count, dim = qkv.shape[0], config.head_dim
        heads = qkv.view(count, -1, dim).transpose(0, 1)
        q, k, v = heads.tensor_split((config.num_heads, config.num_heads + config.num_kv_heads))
        angles = torch.arange(past, past + count, dtype=self.dtype)[:, None] * self._frequencies
        kv[0, :, past : past + count] = _rotate(k, angles)
        kv[1, :, past : past + count] = v
        keys, values = kv[:, :, : past + count]
        self.kv_elements_read += keys.numel() + values.numel()
        grouped = _rotate(q, angles).reshape(config.num_kv_heads, -1, count, dim)
        scores = grouped @ keys[:, None].transpose(-1, -2) / sqrt(dim)
        allowed = torch.ones(count, past + count, dtype=torch.bool).tril(past)
        self.flops += 4 * dim * config.num_heads * int(allowed.sum())
        shares = scores.masked_fill(~allowed, float("-inf")).softmax(dim=-1)
        attended: Tensor = (shares @ values[:, None]).reshape(config.num_heads, count, dim)
        return attended.transpose(0, 1).reshape(count, -1)


class Pass:
    """One pass over some tokens, a layer at a time, so that finished layers can leave while others are computed."""

    def __init__(self, model: TinyModel, tokens: Sequence[int], kv: Tensor, past: int = 0) -> None:
        self._model = model
        self._kv = kv
        self._past = past
        self._x = model.embed(tokens)
        self._layers_done = 0

    def run_to(self, layers: int) -> None:
        """Compute until the KV of the first `layers` layers is complete."""
        while self._layers_done < layers:
            self._x = self._model.run_layer(self._layers_done, self._x, self._kv, self._past)
            self._layers_done += 1

    def logits(self) -> Tensor:
        """Compute the rest; returns the logits after the last token, (vocab,)."""
        self.run_to(self._model.config.num_layers)
        return self._model.head(self._x[-1])


def greedy(logits: Tensor) -> int:
    """The most likely token."""
    return int(logits.argmax())


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights as (outputs, inputs)."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


def _norm(x: Tensor) -> Tensor:
    normed: Tensor = torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-6)
    return normed


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary position embedding of x (heads, tokens, dim) by angles (tokens, dim / 2)."""
    one, other = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((one * cos - other * sin, one * sin + other * cos), dim=-1)
