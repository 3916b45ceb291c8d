"""The tiny model in an instance: computes every chunk and every token that the core has decided on."""

import torch
from torch import Tensor

from cluster.instance import Instance
from cluster.request import Request, Status
from compute.kv_layout import KvLayout, Layers
from compute.tiny_model import Pass, TinyModel, greedy, prompt_of


class TinyEngine:
    """Prompts are those of `prompt_of`. What a request has generated goes along with it as `request.text`."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._model = TinyModel()
        config = self._model.config
        self.layout = KvLayout(config.num_layers, config.num_kv_heads, config.head_dim, self._model.dtype)
        self._sequences: dict[int, _Sequence] = {}

    def kv_tokens(self, request: Request) -> int:
        return request.target

    def follow(self, core: Instance) -> None:
        for batch in core.batches:
            for request in batch.prefilling:
                self._bring_up(request, request.generated)
            for request in batch.members.values():
                self._bring_up(request, request.generated + batch.iteration - request.join_iteration)
        for request in core.scheduler.waiting:
            if request.status is Status.PREEMPTED:
                self._bring_up(request, request.generated)

    def settle(self, request: Request) -> None:
        self._bring_up(request, request.generated)

    def compute_layers(self, request: Request, num_layers: int) -> None:
        sequence = self._sequence(request)
        if sequence.computed < request.target:
            if sequence.under_way is None:
                start = sequence.computed
                sequence.under_way = Pass(self._model, sequence.tokens[start:], sequence.kv, start)
            sequence.under_way.run_to(num_layers)

    def write_kv(self, request: Request, layers: Layers, out: Tensor) -> None:
        sequence = self._sequences.get(request.request_id)
        if sequence is not None:  # else it is not wanted any more
            out.copy_(sequence.kv[layers.first : layers.end, :, :, : request.target])

    def take_kv(self, request: Request, kv: Tensor) -> None:
        sequence = self._sequence(request)
        sequence.kv[:, :, :, : request.target] = kv
        sequence.computed = request.target

    def forget(self, request_id: int) -> None:
        self._sequences.pop(request_id, None)

    def _sequence(self, request: Request) -> "_Sequence":
        sequence = self._sequences.get(request.request_id)
        if sequence is None:
            sequence = self._sequences[request.request_id] = _Sequence(
                kv=self._model.empty_kv(request.max_tokens),
                tokens=prompt_of(request.request_id, request.prompt_tokens, self._seed)
                + request.text[: request.generated],
                num_preemptions=request.num_preemptions,
            )
        return sequence

    def _bring_up(self, request: Request, generated: int) -> None:
        """Compute until the request has had so many tokens and, while it is prefilled, so much of its KV."""
        sequence = self._sequence(request)
        if sequence.num_preemptions != request.num_preemptions:
            self._generate(sequence, request.target)
            sequence.computed, sequence.under_way = 0, None
            sequence.num_preemptions = request.num_preemptions
        if sequence.computed < request.computed < len(sequence.tokens):
            self._compute(sequence, request.computed)
        self._generate(sequence, request.prompt_tokens + generated)
        request.text = bytes(sequence.tokens[request.prompt_tokens :])

    def _generate(self, sequence: "_Sequence", num_tokens: int) -> None:
        while len(sequence.tokens) < num_tokens:
            sequence.tokens += bytes([greedy(self._compute(sequence, len(sequence.tokens)))])

    def _compute(self, sequence: "_Sequence", end: int) -> Tensor:
        """KV up to token `end`; returns the logits after it."""
        start, sequence.computed = sequence.computed, end
        under_way, sequence.under_way = sequence.under_way, None
        return (under_way or Pass(self._model, sequence.tokens[start:end], sequence.kv, start)).logits()


class _Sequence:
    __slots__ = ("computed", "kv", "num_preemptions", "tokens", "under_way")

    def __init__(self, kv: torch.Tensor, tokens: bytes, num_preemptions: int) -> None:
        self.kv = kv
        self.tokens = tokens
        """Prompt and what was generated."""
        self.computed = 0
        """Tokens whose KV is here."""
        self.num_preemptions = num_preemptions
        self.under_way: Pass | None = None
        """The pass that completes the prompt, when layers leave as they are computed."""
