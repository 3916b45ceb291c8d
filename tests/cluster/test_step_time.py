"""The roofline: to the printed digits of its definition, against sums over sequences, and what must always hold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.cost import Roofline, divide_layers
from cluster.errors import ConfigError
from cluster.gpu import capped_compute
from cluster.role import Role
from scenario.hardware import Hardware
from tests.reference.cases import A100, H100, LLAMA_8B, MIXTRAL, NVLINK, OPT_13B, scenario_of
from tests.reference.roofline import Stage, stages_of

COST = Roofline(LLAMA_8B, H100)


def step_ms(decodes: int = 0, *chunks: tuple[int, int], context: int = 1024) -> float:
    """Milliseconds of a step with `decodes` at `context` and (past, new tokens) of chunks, all of them final."""
    attention = decodes * context + sum(new * (past + new / 2) for past, new in chunks)
    kv = decodes * context + sum(past + new for past, new in chunks)
    return 1000 * COST.step_s(decodes + sum(new for _, new in chunks), decodes + len(chunks), attention, kv)


@pytest.mark.parametrize(
    ("decodes", "chunk", "milliseconds"),
    [
        (32, None, 7.703),
        (32, 256, 7.716),
        (32, 512, 11.643),
        (32, 1024, 22.264),
        (32, 4096, 90.159),
        (128, None, 12.511),
        (128, 512, 13.798),
        (0, 1024, 21.545),
        (0, 4096, 89.441),
    ],
)
def test_llama_8b_on_h100(decodes, chunk, milliseconds):
    assert round(step_ms(decodes, *([(0, chunk)] if chunk else [])), 3) == milliseconds


@pytest.mark.parametrize(("size", "percent"), [(256, 8.42), (512, 3.91)])
def test_cost_of_chunking(size, percent):
    def chunk_s(past: int) -> float:
        return COST.step_s(size, int(past + size == 4096), size * (past + size / 2), past + size)

    chunked = sum(chunk_s(past) for past in range(0, 4096, size))
    assert round(100 * (1000 * chunked / step_ms(0, (0, 4096)) - 1), 2) == percent


@st.composite
def batches(draw):
    """(past, new tokens, ends its prompt) of chunks and contexts of decodes; not both empty."""
    chunk = st.tuples(st.integers(0, 8000), st.integers(1, 8000), st.booleans())
    chunks = draw(st.lists(chunk, max_size=4))
    return chunks, draw(st.lists(st.integers(1, 8000), min_size=not chunks, max_size=40))


SCENARIOS = st.builds(
    scenario_of,
    mixed=st.just(1),
    model=st.sampled_from(
        [LLAMA_8B, OPT_13B, MIXTRAL, replace(LLAMA_8B, weight_dtype="fp8"), replace(MIXTRAL, kv_dtype="fp8")]
    ),
    gpu=st.sampled_from([H100, A100]),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 5]),
    power_cap=st.sampled_from([1.0, 0.5]),
)


@given(SCENARIOS, batches())
def test_equals_a_sum_over_sequences(scenario, batch):
    chunks, contexts = batch
    new_tokens = sum(new for _, new, _ in chunks) + len(contexts)
    num_logits = sum(ends for *_, ends in chunks) + len(contexts)
    attention = sum(new * (past + new / 2) for past, new, _ in chunks) + sum(contexts)
    kv = sum(past + new for past, new, _ in chunks) + sum(contexts)
    hardware = scenario.hardware_of(Role.MIXED)
    for index, layers in enumerate(divide_layers(scenario.model.num_layers, scenario.pp)):
        fast = Roofline(
            scenario.model,
            scenario.gpu,
            tp=scenario.tp,
            link=scenario.gpu_link,
            num_layers=layers,
            has_embedding=index == 0,
            has_head=index == scenario.pp - 1,
            compute_scale=capped_compute(scenario.power_cap),
        )
        plain = stages_of(scenario.model, hardware)[index].step_s(chunks, contexts)
        assert fast.step_s(new_tokens, num_logits, attention, kv) == pytest.approx(plain, rel=1e-12)


@given(SCENARIOS, st.lists(st.integers(1, 20_000), min_size=1, max_size=300), st.integers(1, 3000))
def test_decode_run_is_its_iterations(scenario, contexts, iterations):
    """The closed forms, against one step after the other; long runs cross from one regime into the other."""
    cost = Roofline(scenario.model, scenario.gpu, tp=scenario.tp, link=scenario.gpu_link)
    size, context = len(contexts), sum(contexts)
    run = cost.decode_run(size, context)
    ends = [0.0]
    for done in range(iterations):
        now = context + done * size
        ends.append(ends[-1] + cost.step_s(size, size, now, now))
    assert run.duration_s(iterations) == pytest.approx(ends[-1], rel=1e-11)
    for done in {1, iterations // 3 + 1, iterations}:
        between = ends[done] - 0.4 * (ends[done] - ends[done - 1])
        assert run.iterations_at(between) == done
        assert run.iterations_at(run.duration_s(done)) == done
    assert run.iterations_at(0.0) == 1


def test_a_decode_run_crosses_from_memory_to_compute():
    """An fp32-slow GPU: attention FLOPs grow faster than KV bytes, so that a long run becomes bound by compute."""
    gpu = replace(H100, peak_flops=4e12)
    run = Roofline(LLAMA_8B, gpu).decode_run(1, 1)
    stage = Stage(LLAMA_8B, Hardware(gpu, NVLINK, tp=1, pp=1, power_cap=1.0), 32, first=True, last=True)
    split = int(run.split)
    assert 0 < split < 100_000
    before, after = run.first_s + run.slope_s * (split - 1), run.late_first_s + run.late_slope_s * split
    assert before == pytest.approx(stage.step_s([], [split]), rel=1e-12)
    assert after == pytest.approx(stage.step_s([], [split + 1]), rel=1e-12)
    assert run.duration_s(100_000) == pytest.approx(
        sum(stage.step_s([], [context]) for context in range(1, 100_001)), rel=1e-9
    )


@given(SCENARIOS, st.integers(1, 500), st.integers(1, 5000), st.integers(1, 100), st.integers(1, 1000))
def test_decode_time_rises_with_batch_and_context_and_never_beats_the_weights(scenario, size, context, more, longer):
    cost = Roofline(scenario.model, scenario.gpu, tp=scenario.tp, link=scenario.gpu_link)

    def decode_s(size: int, context: int) -> float:
        return cost.step_s(size, size, size * context, size * context)

    assert decode_s(size + more, context) > decode_s(size, context)
    assert decode_s(size, context + longer) > decode_s(size, context)
    model, gpu = scenario.model, scenario.gpu
    read = model.head_params + model.active_body_params
    weights_s = read * model.weight_dtype_bytes / (scenario.tp * gpu.bandwidth_bytes_s * gpu.memory_efficiency)
    assert decode_s(size, context) >= weights_s


@pytest.mark.parametrize(("model", "gpu", "tp"), [(LLAMA_8B, H100, 1), (OPT_13B, A100, 2), (MIXTRAL, H100, 4)])
def test_saturation_is_where_compute_overtakes_memory(model, gpu, tp):
    saturation = Roofline(model, gpu, tp=tp, link=NVLINK).saturation_tokens()
    stage = Stage(model, Hardware(gpu, NVLINK, tp=tp, pp=1, power_cap=1.0), model.num_layers, first=True, last=True)
    bound = [compute >= memory for compute, memory in (stage.parts_s([(0, n, True)], []) for n in range(1, 1500))]
    assert bound.index(True) + 1 == saturation
    assert all(bound[saturation:])


def test_a_power_cap_slows_prefill_and_not_decode():
    """Splitwise: at 70 % of the power prefill takes 1.3 times as long, and decode no longer."""
    capped = Roofline(LLAMA_8B, H100, compute_scale=capped_compute(0.7))
    prefill = (1024, 1, 1024 * 512, 1024)
    assert (capped.step_s(*prefill) - H100.step_overhead_s) / (COST.step_s(*prefill) - H100.step_overhead_s) == (
        pytest.approx(1.3, abs=1e-4)
    )
    assert capped.decode_run(32, 32 * 1024).first_s == COST.decode_run(32, 32 * 1024).first_s


@pytest.mark.parametrize(
    ("tp", "message"),
    [
        (3, "tp 3 does not fit model llama-3-8b with 32 heads and 8 KV heads; valid values are 1, 2, 4, 8, 16, 32"),
        (2, "tp 2 needs the link between the GPUs of a node; gpu h100-sxm names nvlink-h100"),
    ],
)
def test_tensor_parallel_errors(tp, message):
    with pytest.raises(ConfigError) as error:
        Roofline(LLAMA_8B, H100, tp=tp)
    assert str(error.value) == message
