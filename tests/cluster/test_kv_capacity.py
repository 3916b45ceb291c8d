"""What fits beside the weights, and what is said when nothing does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.cost import divide_layers, kv_capacity_tokens
from cluster.errors import CapacityError, ConfigError
from cluster.model import ModelSpec
from cluster.role import Role
from scenario.loading import load_spec
from tests.reference.cases import A100, H100, LLAMA_8B, MIXTRAL, OPT_13B, scenario_of
from tests.reference.roofline import kv_capacity

OPT_66B = load_spec(ModelSpec, "opt-66b")
LLAMA_70B = load_spec(ModelSpec, "llama-3-70b")


def test_opt_on_a100():
    assert OPT_13B.kv_bytes_per_token == 819_200
    assert kv_capacity_tokens(OPT_13B, A100) == 56_542
    assert round(512 * OPT_66B.kv_bytes_per_token / 1e9, 3) == 1.208


def test_llama_8b_weighs_what_its_card_says():
    assert LLAMA_8B.total_params == 8_029_995_008  # 8,030,261,248 with the norms, which are no matmul
    assert LLAMA_8B.kv_bytes_per_token == 131_072


@given(
    st.sampled_from([LLAMA_8B, OPT_13B, MIXTRAL, LLAMA_70B, replace(OPT_13B, kv_dtype="fp8")]),
    st.sampled_from([A100, H100]),
    st.sampled_from([4, 8]),
    st.integers(1, 6),
)
def test_capacity_is_that_of_the_fullest_stage(model, gpu, tp, pp):
    scenario = scenario_of(mixed=1, model=model, gpu=gpu, tp=tp, pp=pp)
    assert kv_capacity_tokens(model, gpu, tp=tp, pp=pp) == kv_capacity(model, scenario.hardware_of(Role.MIXED))


@pytest.mark.parametrize(
    ("model", "gpu", "pp", "message"),
    [
        (
            LLAMA_70B,
            H100,
            1,
            "model llama-3-70b does not fit on 1 x h100-sxm (tp 1, pp 1): weights 141.1 GB, reserve 8.0 GB, "
            "free for KV -69.1 GB; the smallest tp that fits is 2",
        ),
        (
            replace(LLAMA_8B, num_layers=4000),
            H100,
            1,
            "model llama-3-8b does not fit on 1 x h100-sxm (tp 1, pp 1): weights 1746.9 GB, reserve 8.0 GB, "
            "free for KV -1674.9 GB; the smallest tp that fits is 32",
        ),
        (
            replace(LLAMA_8B, num_layers=9000),
            H100,
            1,
            "model llama-3-8b does not fit on 1 x h100-sxm (tp 1, pp 1): weights 3928.0 GB, reserve 8.0 GB, "
            "free for KV -3856.0 GB; no tp fits; use pp, fp8 weights or a larger GPU",
        ),
    ],
)
def test_weights_that_leave_no_room(model, gpu, pp, message):
    with pytest.raises(CapacityError) as error:
        kv_capacity_tokens(model, gpu, pp=pp)
    assert str(error.value) == message


def test_layers_of_stages():
    assert divide_layers(32, 1) == [32]
    assert divide_layers(32, 3) == [11, 11, 10]
    assert divide_layers(80, 6) == [14, 14, 13, 13, 13, 13]
    with pytest.raises(ConfigError, match=r"^pp 5 must be between 1 and the number of layers, 4$"):
        divide_layers(4, 5)
