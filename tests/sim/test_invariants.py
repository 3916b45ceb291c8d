"""What holds in every run: random clusters and traces, and roles that change all the time."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.request import Status
from cluster.role import Role
from metrics.records import Column
from metrics.run import RunResult
from planner.config import LoadThresholds, PlannerConfig, SplitwiseThresholds
from scenario.build import smallest_kv_capacity
from scenario.spec import RouterConfig, Scenario
from sim.simulator import Simulator
from tests.reference.cases import ENGINES, HANDOFFS, INFINIBAND, runs, scenario_of, trace_of
from workload.trace import Trace

NERVOUS = st.builds(
    PlannerConfig,
    policy=st.sampled_from(["load", "splitwise"]),
    interval_s=st.sampled_from([0.02, 0.1, 0.5]),
    switch_time_s=st.sampled_from([0.0, 0.05, 1.0]),
    drain_timeout_s=st.sampled_from([0.05, 0.5, 100.0]),
    min_prefill=st.sampled_from([1, 2]),
    how=st.sampled_from(["drain", "migrate"]),
    migrations_at_once=st.sampled_from([1, 4]),
    load=st.builds(
        LoadThresholds,
        prefill_queue_high=st.sampled_from([10, 1000]),
        prefill_queue_low=st.sampled_from([10, 1000, 100_000]),
        kv_use_high=st.sampled_from([0.01, 0.2, 50.0]),
        kv_use_low=st.sampled_from([0.01, 0.2, 50.0]),
        votes=st.sampled_from([1, 2]),
        cooldown_s=st.sampled_from([0.0, 0.2]),
    ),
    splitwise=st.builds(
        SplitwiseThresholds,
        prompt_queue_high=st.sampled_from([10, 1000, 100_000]),
        kv_use_high=st.sampled_from([0.01, 0.2, 0.9, 50.0]),
    ),
)
"""Planners that move instances far too readily."""


@st.composite
def shifting_runs(draw: st.DrawFn) -> tuple[Scenario, Trace]:
    """Phases of long prompts and of long outputs, faster than the cluster can serve them."""
    arrivals, prompts, outputs = [], [], []
    now = 0.0
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    for prompt, output in draw(st.lists(st.sampled_from([(2000, 10), (50, 300), (300, 60)]), min_size=1, max_size=4)):
        for _ in range(draw(st.integers(5, 60))):
            now += rng.exponential(0.02)
            arrivals.append(now)
            prompts.append(1 + int(rng.exponential(prompt)))
            outputs.append(1 + int(rng.exponential(output)))
        now += draw(st.sampled_from([0.0, 3.0]))
    longest = max(map(sum, zip(prompts, outputs, strict=True)))
    scenario = scenario_of(
        prefill=draw(st.integers(2, 3)),
        decode=draw(st.integers(1, 3)),
        kv_tokens=int(longest * draw(st.sampled_from([1.1, 3.0, 10.0]))) + 16,
        engine=draw(ENGINES),
        handoff=draw(HANDOFFS),
        pp=draw(st.sampled_from([1, 1, 2])),
        link=INFINIBAND,
        planner=draw(NERVOUS),
        router=RouterConfig(pairs=draw(st.booleans())),
    )
    return scenario, trace_of(arrivals, prompts, outputs)


def simulate(scenario: Scenario, trace: Trace) -> tuple[Simulator, RunResult]:
    too_long = trace.prompt_tokens + trace.output_tokens > smallest_kv_capacity(scenario)
    simulator = Simulator(scenario, trace, too_long)
    return simulator, simulator.run()


@settings(max_examples=3 * settings.default.max_examples)
@given(st.one_of(runs(), shifting_runs()))
def test_every_run(run):
    scenario, trace = run
    simulator, result = simulate(scenario, trace)
    check_requests(result.records, trace, smallest_kv_capacity(scenario))
    check_causality(result.records)
    check_steps(result)
    for instance in simulator.instances:
        instance.memory.check_empty()
        instance.scheduler.check()
        load = instance.load(result.duration_s)
        assert load.num_incoming == load.num_outgoing == load.num_offers == load.num_ready == load.num_decoding == 0
        for books in (simulator._router.prompts.booked, simulator._router.handoffs.booked):
            assert books.get(instance.index, 0) == 0
    handed_over = result.records[result.records[:, Column.DECODE_INSTANCE] >= 0]
    assert result.num_transfers == len(handed_over) + result.num_migrations
    bytes_per_token = scenario.model.kv_bytes_per_token
    prompts = handed_over[:, Column.PROMPT_TOKENS].sum() * bytes_per_token
    assert result.kv_bytes_moved == prompts + result.kv_bytes_migrated


def check_requests(records, trace, limit):
    """Each request ends once, with all its tokens or, too long for the cluster, with none."""
    assert records[:, Column.REQUEST_ID].tolist() == list(range(len(trace)))
    rejected = trace.prompt_tokens + trace.output_tokens > limit
    assert (records[:, Column.STATUS] == np.where(rejected, Status.REJECTED, Status.FINISHED)).all()
    assert (records[:, Column.GENERATED_TOKENS] == np.where(rejected, 0, trace.output_tokens)).all()


def check_causality(records):
    """Every stamp that a request has is at or after those before it."""
    order = [
        Column.ARRIVAL_S,
        Column.PREFILL_START_S,
        Column.FIRST_TOKEN_S,
        Column.TRANSFER_START_S,
        Column.KV_ARRIVED_S,
        Column.DECODE_START_S,
        Column.SECOND_TOKEN_S,
        Column.FINISHED_S,
    ]
    for row in records[:, order]:
        stamps = row[~np.isnan(row)]
        assert (np.diff(stamps) >= 0).all(), row
    served = records[records[:, Column.GENERATED_TOKENS] > 0]
    assert (served[:, Column.PREFILL_START_S] < served[:, Column.FIRST_TOKEN_S]).all()
    assert np.isnan(records[records[:, Column.OUTPUT_TOKENS] < 2][:, Column.SECOND_TOKEN_S]).all()


def check_steps(result):
    """A micro-batch is in one step at a time, so an instance is never busier than all the time."""
    tokens = 0.0
    for logs in result.step_logs:
        for log in logs:
            start, end, iterations, decodes = log[:, :4].T
            assert (end > start).all()
            assert (start[1:] >= end[:-1] * (1 - 1e-12)).all()
            assert (end - start).sum() <= result.duration_s * (1 + 1e-9)
            tokens += (iterations * decodes).sum()
    generated = result.records[:, Column.GENERATED_TOKENS]
    later = generated.sum() - (generated > 0).sum()
    # Who is preempted while decoding gets its next token from the recomputed prompt; while prefilling, it does not.
    assert later - result.records[:, Column.NUM_PREEMPTIONS].sum() <= tokens <= later


@given(shifting_runs())
def test_roles_keep_their_minimum_and_their_order(run):
    scenario, trace = run
    _, result = simulate(scenario, trace)
    least = {Role.PREFILL: scenario.planner.min_prefill, Role.DECODE: scenario.planner.min_decode}
    for time in {span.start_s for span in result.role_spans}:
        now = [span for span in result.role_spans if span.start_s <= time < span.end_s]
        for role, count in least.items():
            assert sum(span.role == role and span.phase == "serving" for span in now) >= count
    for index in range(scenario.instances.total):
        spans = [span for span in result.role_spans if span.instance == index]
        assert all(one.end_s == other.start_s for one, other in pairwise(spans))
        if spans:
            assert (spans[0].start_s, spans[-1].end_s) == (0.0, result.duration_s)
    for change in result.role_changes:
        times = [change.decided_s, change.drained_s, change.served_s]
        assert times == sorted(times) or np.isnan(times).any()
