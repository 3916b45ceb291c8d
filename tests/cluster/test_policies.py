"""The batching policies, step by step, on steps that take a second each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.batch import Batch
from cluster.cost import Roofline
from cluster.errors import ConfigError
from cluster.kv_memory import KvMemory
from cluster.request import Request, Status
from cluster.role import Role
from cluster.scheduler import Scheduler
from cluster.scheduling import COLOCATED, EngineConfig
from tests.cluster.bench import Bench
from tests.reference.cases import H100, LLAMA_8B

# Request 0 (10 + 4 tokens) decodes when 1 (20 + 2) and 2 (5 + 2) arrive at 1.5 s.
# (start, end, decodes, prompt tokens) of every step, and when each request finishes.
POLICIES = {
    "decode_first": (
        [(0, 1, 0, 10), (1, 4, 1, 0), (4, 5, 0, 25), (5, 6, 2, 0)],
        {0: 4, 1: 6, 2: 6},
    ),
    "prefill_first": (
        [(0, 1, 0, 10), (1, 2, 1, 0), (2, 3, 0, 25), (3, 4, 3, 0), (4, 5, 1, 0)],
        {0: 5, 1: 4, 2: 4},
    ),
    "mixed_batch": (
        [(0, 1, 0, 10), (1, 2, 1, 0), (2, 3, 1, 25), (3, 4, 3, 0)],
        {0: 4, 1: 4, 2: 4},
    ),
    "chunked_prefill": (
        [(0, 1, 0, 10), (1, 2, 1, 0), (2, 3, 1, 15), (3, 4, 1, 10), (4, 5, 2, 0)],
        {0: 4, 1: 5, 2: 5},
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_in_its_order(policy):
    bench = Bench(policy=policy, token_budget=16 if policy == "chunked_prefill" else None)
    bench.submit(0.0, 10, 4)
    bench.submit(1.5, 20, 2)
    bench.submit(1.5, 5, 2)
    bench.run()
    assert (bench.steps, bench.finished()) == POLICIES[policy]


def test_a_started_prompt_goes_before_a_new_one_and_the_rest_of_the_budget_is_used():
    bench = Bench(policy="chunked_prefill", token_budget=8)
    for prompt in (4, 10, 3):
        bench.submit(0.0, prompt, 1)
    bench.run()
    # The first is alone when it arrives; then 8 of 10, then 2 + 3.
    assert bench.steps == [(0, 1, 0, 4), (1, 2, 0, 8), (2, 3, 0, 5)]


def test_a_prompt_longer_than_the_budget_runs_alone_where_prompts_are_not_cut():
    bench = Bench(policy="prefill_first", token_budget=8)
    for prompt in (2, 3, 20, 3):
        bench.submit(0.0, prompt, 1)
    bench.run()
    assert bench.steps == [(0, 1, 0, 2), (1, 2, 0, 3), (2, 3, 0, 20), (3, 4, 0, 3)]


def test_a_batch_has_so_many_seats():
    bench = Bench(policy="prefill_first", max_batch=2)
    for _ in range(3):
        bench.submit(0.5, 10, 3)
    bench.run()
    # One starts alone; the second joins it, and the third waits for a seat.
    assert bench.steps == [(0.5, 1.5, 0, 10), (1.5, 2.5, 0, 10), (2.5, 4.5, 2, 0), (4.5, 5.5, 0, 10), (5.5, 7.5, 1, 0)]


def test_a_budget_below_the_running_decodes_starves_prefill_and_says_so():
    bench = Bench(policy="chunked_prefill", token_budget=3)
    for prompt in (3, 3, 3):
        bench.submit(0.0, prompt, 20)
    bench.submit(9.5, 6, 1)
    bench.run()
    # Decodes leave 2 and then 1 of the 3 tokens, so the three prompts take 3, 2 + 1 and 1 + 1 + 1 of five steps.
    assert [tokens for *_, tokens in bench.steps[:5]] == [3, 2, 2, 1, 1]
    assert bench.requests[2].first_token_s == 5.0
    # The late one waits from 9.5 s, the next boundary at 10 s, for the first decode to end at 20 s.
    assert bench.requests[0].finished_s == 20.0
    assert bench.requests[3].times[Status.PREFILL] == 20.0
    assert bench.instance.scheduler.starved_steps == 10


@given(
    st.sampled_from(sorted(COLOCATED)),
    st.integers(1, 60),
    st.integers(1, 20),
    st.lists(st.integers(2, 30), max_size=8),
    st.lists(st.tuples(st.integers(2, 50), st.integers(1, 49)), max_size=4),
    st.lists(st.integers(1, 50), max_size=8),
)
def test_chunks_are_at_least_one_token_and_within_the_budget(policy, budget, max_batch, decodes, started, waiting):
    def request(prompt: int) -> Request:
        made = Request(next(numbers), 0.0, prompt, 5)
        made.enter(Status.QUEUED, 0.0)
        return made

    numbers = iter(range(100))
    batch = Batch()
    followed = COLOCATED[policy].with_budget(budget)
    scheduler = Scheduler(
        KvMemory(10_000), [batch], alone=followed, beside=followed, max_batch=max_batch, preempts=False
    )
    for prompt in decodes:
        batch.join(request(prompt))
    for prompt, computed in started if COLOCATED[policy].chunks else []:
        batch.prefilling.append(request(prompt))
        batch.prefilling[-1].computed = min(computed, prompt - 1)
    for prompt in waiting:
        scheduler.enqueue(request(prompt))

    chunks = scheduler.choose_chunks(batch, 1.0)
    assert all(1 <= tokens <= one.prompt_tokens - one.computed for one, tokens in chunks)
    ids = [one.request_id for one, _ in chunks]
    assert ids == sorted(ids), "started prompts come first, then first come, first served"
    spent = sum(tokens for _, tokens in chunks) + (batch.size if COLOCATED[policy].mixes else 0)
    assert spent <= budget or len(chunks) <= 1
    if COLOCATED[policy].chunks:
        assert spent <= max(budget, batch.size)
        if batch.size + len(batch.prefilling) < max_batch:
            assert spent >= budget or not scheduler.waiting, "no token of the budget is left while somebody waits"
    scheduler.check()


@given(
    st.lists(st.tuples(st.floats(0.0, 0.5), st.integers(1, 900), st.integers(1, 60)), min_size=1, max_size=25),
    st.sampled_from([3, 256]),
    st.sampled_from([2000, 100_000]),
)
def test_an_infinite_budget_makes_chunked_prefill_mixed_batch(work, max_batch, capacity):
    def serve(policy: str, token_budget: int | None) -> tuple[list, list]:
        bench = Bench(
            policy=policy,
            token_budget=token_budget,
            max_batch=max_batch,
            capacity=capacity,
            cost=Roofline(LLAMA_8B, H100),
        )
        for row in work:
            bench.submit(*row)
        bench.run()
        return bench.steps, [one.times for one in bench.requests]

    assert repr(serve("chunked_prefill", 10**9)) == repr(serve("mixed_batch", None))


@pytest.mark.parametrize(
    ("batch_tokens", "steps"),
    [
        (None, [(0, 1, 0, 50), (1, 2, 0, 90), (2, 3, 0, 300), (3, 4, 0, 20)]),  # L_m is 100 by the cost model
        (1, [(0, 1, 0, 50), (1, 2, 0, 60), (2, 3, 0, 30), (3, 4, 0, 300), (4, 5, 0, 20)]),
        (400, [(0, 1, 0, 50), (1, 2, 0, 390), (2, 3, 0, 20)]),
    ],
)
def test_a_prefill_instance_batches_up_to_saturation(batch_tokens, steps):
    """First come, first served: the 20 do not overtake the 300, which run alone."""
    bench = Bench(Role.PREFILL, prefill_batch_tokens=batch_tokens)
    for prompt in (50, 60, 30, 300, 20):
        bench.submit(0.0, prompt, 5)
    bench.run()
    assert bench.steps == steps
    assert [request_id for _, request_id in bench.reported("PrefillDone")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"policy": "orca"},
            "engine.policy is 'orca'; use one of decode_first, prefill_first, mixed_batch, chunked_prefill",
        ),
        ({"admission": "swap"}, "engine.admission is 'swap'; use reserve_output or preempt_recompute"),
        ({"token_budget": 0}, "engine.token_budget is 0; a step needs a budget of at least 1 token"),
        ({"prefill_batch_tokens": 0}, "engine.prefill_batch_tokens is 0; a step needs a budget of at least 1 token"),
        ({"max_batch": 0}, "engine.max_batch is 0; it must be at least 1"),
        ({"block_size": 0}, "engine.block_size is 0; it must be at least 1"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(ConfigError) as error:
        EngineConfig(**fields)
    assert str(error.value) == message
