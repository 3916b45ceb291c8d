"""Section 2.3 by its numbers, computed by a real model."""

from functools import partial

import pytest

from cluster.model import ModelSpec
from compute.tiny_model import TinyConfig
from sim.parallel import map_parallel
from sim.studies import lossless
from sim.studies.study import Verdict


@pytest.mark.parametrize(("chunk", "ratio"), [(16, 6.5), (64, 2.0), (192, 1.0)])
def test_kv_is_read_once_per_chunk(chunk: int, ratio: float) -> None:
    cut = lossless.measure(chunk)
    assert cut.reads_ratio == ratio
    assert cut.logit_difference < 1e-12
    assert cut.tokens == cut.whole_tokens
    assert cut.extra_flops == (192 // chunk - 1) * 2 * 256 * 64


def test_operations_at_once_are_those_of_the_step_time_model() -> None:
    """2 a matmul parameter and token, the head once, 4 x hidden x pairs of attention in each layer."""
    tiny = TinyConfig()
    spec = ModelSpec(
        name="tiny",
        num_layers=tiny.num_layers,
        hidden_size=tiny.hidden_size,
        num_heads=tiny.num_heads,
        num_kv_heads=tiny.num_kv_heads,
        head_dim=tiny.head_dim,
        intermediate_size=tiny.intermediate_size,
        mlp_matrices=3,
        vocab_size=tiny.vocab_size,
        tied_embeddings=False,
        max_context=1024,
    )
    pairs = 192 * 193 // 2
    attention = spec.num_layers * 4 * spec.num_heads * spec.head_dim * pairs
    assert lossless.measure(192).flops == 2 * spec.body_params * 192 + 2 * spec.head_params + attention


def test_every_claim_is_reproduced() -> None:
    study = lossless.run(partial(map_parallel, jobs=1))
    assert {claim.verdict for claim in study.claims} == {Verdict.REPRODUCED}
    assert [claim.ours for claim in study.claims][3] == "6.50"
