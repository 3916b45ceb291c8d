"""The tiny model: however a text is computed, its KV and its tokens are the same."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compute.tiny_model import Pass, TinyConfig, TinyModel, greedy, prompt_of

MODEL = TinyModel()
PROMPT = prompt_of(3, 40)
EXPECTED = MODEL.generate(PROMPT, 12)


def finish(kv: torch.Tensor, logits: torch.Tensor, past: int, num_tokens: int) -> bytes:
    tokens = bytearray([greedy(logits)])
    while len(tokens) < num_tokens:
        tokens.append(greedy(MODEL.decode(tokens[-1], kv, past + len(tokens) - 1)))
    return bytes(tokens)


def test_prompts_belong_to_their_request_and_seed() -> None:
    assert prompt_of(3, 40) == PROMPT
    assert len({prompt_of(3, 40), prompt_of(4, 40), prompt_of(3, 40, seed=1)}) == 3


def test_tokens_vary_and_hang_on_the_prompt() -> None:
    assert len(set(EXPECTED)) > 6
    other = bytes([PROMPT[0] ^ 1]) + PROMPT[1:]
    assert MODEL.generate(other, 12) != EXPECTED, "the first of 40 tokens matters"


@settings(max_examples=20)
@given(cuts=st.sets(st.integers(1, 39)))
def test_any_chunks_give_the_same_tokens(cuts: set[int]) -> None:
    kv = MODEL.empty_kv(52)
    for start, end in pairwise([0, *sorted(cuts), 40]):
        logits = MODEL.prefill_chunk(PROMPT[start:end], kv, start)
    assert finish(kv, logits, 40, 12) == EXPECTED


@pytest.mark.parametrize("delivered", [1, 5, 11])
def test_recomputing_delivered_tokens_goes_on_where_they_end(delivered: int) -> None:
    kv = MODEL.empty_kv(52)
    logits = MODEL.prefill_chunk(PROMPT + EXPECTED[:delivered], kv)
    assert finish(kv, logits, 40 + delivered, 12 - delivered) == EXPECTED[delivered:]


def test_layers_that_are_done_do_not_change() -> None:
    kv = MODEL.empty_kv(40)
    whole = Pass(MODEL, PROMPT, kv)
    for layers in range(1, 5):
        whole.run_to(layers)
        sent = kv[:layers].clone()
    logits = whole.logits()
    assert torch.equal(kv, sent)
    assert kv.shape == (4, 2, 2, 40, 16)
    assert torch.equal(logits, MODEL.prefill_chunk(PROMPT, MODEL.empty_kv(40)))


def test_a_wrong_key_gives_other_tokens() -> None:
    kv = MODEL.empty_kv(52)
    logits = MODEL.prefill_chunk(PROMPT, kv)
    kv[2, 0, :, 7:20] *= -1
    assert finish(kv, logits, 40, 12) != EXPECTED


def test_operations_are_counted() -> None:
    """n tokens: 2 a weight and token, the head once, and 4 x hidden for each pair of a token and one not after it."""
    config = TinyConfig(num_layers=1, hidden_size=8, num_heads=2, num_kv_heads=1, intermediate_size=12, vocab_size=16)
    model = TinyModel(config)
    model.prefill_chunk(range(5), model.empty_kv(5))
    weights = 8 * (8 + 2 * 4) + 8 * 8 + 3 * 8 * 12
    assert model.flops == 2 * 5 * weights + 2 * 8 * 16 + 4 * 8 * (5 * 6 // 2)
    assert model.kv_elements_read == 2 * 5 * 4
