"""A role change that migrates: quick, and as lossless as one that drains."""

import pytest

from cluster.request import Status
from metrics.latency import itl
from metrics.records import Column
from scenario.loading import load_scenario
from sim.variants import run_scenario


@pytest.fixture(scope="module")
def runs():
    return {how: run_scenario(load_scenario("demo", {"planner.how": how})) for how in ("drain", "migrate")}


def test_nothing_is_lost(runs):
    for run in runs.values():
        records = run.records
        assert (records[:, Column.STATUS] == Status.FINISHED).all()
        assert (records[:, Column.GENERATED_TOKENS] == records[:, Column.OUTPUT_TOKENS]).all()
        gaps = itl(run)
        assert gaps.count == (records[:, Column.GENERATED_TOKENS] - 1).sum()
        decoding_s = records[:, Column.FINISHED_S] - records[:, Column.FIRST_TOKEN_S]
        assert gaps.mean * gaps.count == pytest.approx(decoding_s.sum())


def test_leaving_takes_a_fraction_of_a_second(runs):
    def longest(how):
        return max(change.drained_s - change.decided_s for change in runs[how].role_changes)

    assert longest("drain") > 10
    assert longest("migrate") < 1
    assert runs["migrate"].num_migrations > 20
    assert runs["drain"].num_migrations == 0


def test_a_migrated_request_waits_for_its_transfer_and_an_iteration(runs):
    extra = runs["migrate"].extra_gaps_s
    assert len(extra) == runs["migrate"].num_migrations
    assert max(extra) < 0.2
