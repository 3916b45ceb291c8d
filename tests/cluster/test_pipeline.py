"""When stages are busy, against the max-plus recursion of a flow shop written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.link import LinkSpec
from cluster.pipeline import Pipeline

LINK = LinkSpec(name="test", bandwidth_bytes_s=100.0, alpha_s=0.5, efficiency=1.0)


class Stage:
    """Takes `pace` seconds per new token."""

    def __init__(self, pace: float) -> None:
        self.pace = pace

    def step_s(self, new_tokens, num_logits, attention_tokens, kv_tokens):
        return self.pace * new_tokens


def enter(pipeline: Pipeline, now: float, tokens: int) -> float:
    return pipeline.enter(now, tokens, 0, 0.0, 0)


def test_equal_stages_fill_up():
    """Latency D, and one batch every D / pp."""
    pipeline = Pipeline([Stage(1.0)] * 4)
    assert [enter(pipeline, pipeline.first_free_s, 2) for _ in range(5)] == [8.0, 10.0, 12.0, 14.0, 16.0]


def test_unequal_batches_leave_bubbles():
    """The short batch waits behind the long one at every stage, and the third behind neither."""
    pipeline = Pipeline([Stage(1.0), Stage(1.0), Stage(1.0)])
    assert enter(pipeline, 0.0, 10) == 30.0
    assert enter(pipeline, 10.0, 1) == 31.0
    assert enter(pipeline, 11.0, 10) == 41.0


def test_activations_delay_the_batch_and_keep_no_stage_busy():
    pipeline = Pipeline([Stage(1.0), Stage(1.0)], link=LINK, token_bytes=50)
    assert enter(pipeline, 0.0, 2) == 2.0 + (0.5 + 2 * 50 / 100) + 2.0
    assert pipeline.first_free_s == 2.0
    assert enter(pipeline, 2.0, 2) == 7.5


@given(
    st.lists(st.floats(0.1, 3.0), min_size=1, max_size=5),
    st.lists(st.tuples(st.floats(0.0, 20.0), st.integers(1, 50)), min_size=1, max_size=12),
)
def test_flow_shop(paces, jobs):
    pipeline = Pipeline([Stage(pace) for pace in paces], link=LINK, token_bytes=3)
    jobs.sort()
    starts = [now for now, _ in jobs]
    left: list[list[float]] = []
    for job, (_, tokens) in enumerate(jobs):
        sent = 0.5 + tokens * 3 / 100
        left.append([])
        for stage, pace in enumerate(paces):
            comes = starts[job] if stage == 0 else left[job][stage - 1] + sent
            free = left[job - 1][stage] if job else 0.0
            left[job].append(max(comes, free) + pace * tokens)
        assert enter(pipeline, starts[job], tokens) == pytest.approx(left[job][-1], rel=1e-12)
