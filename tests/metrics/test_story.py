"""The story of a run made by hand, frame by frame."""

import orjson
import pytest
from made_runs import COLOCATED, HANDED_OVER, REJECTED, records, run

from metrics.run_story import MAX_FRAMES, story_of
from metrics.slo import SloSpec
from metrics.story import Flow, flows_of, recent

SLO = SloSpec(ttft_ms=120)
RESULT = run(records(HANDED_OVER, COLOCATED, REJECTED), planner_words=[(2.0, "in balance"), (4.0, "KV is full")])


def frame(at):
    return next(one for one in story_of(RESULT, SLO).frames if one.time_s == at)


def test_a_frame_a_second():
    assert [one.time_s for one in story_of(RESULT, SLO).frames] == list(range(11))


@pytest.mark.parametrize(
    ("at", "sent", "ended", "good"),
    [(0, 0, 0, 0), (1, 1, 0, 0), (2, 2, 0, 0), (3, 2, 2, 1), (5, 3, 3, 1), (10, 3, 3, 1)],
)
def test_counts(at, sent, ended, good):
    one = frame(at)
    assert (one.num_sent, one.num_ended, one.num_good) == (sent, ended, good)


@pytest.mark.parametrize(
    ("at", "role", "phase", "target"),
    [(0, "prefill", "serving", ""), (4, "prefill", "draining", "decode"), (6, "decode", "serving", "")],
)
def test_a_role_change(at, role, phase, target):
    _, one = frame(at).instances
    assert (one.role, one.phase, one.target) == (role, phase, target)


def test_samples_hold_until_the_next():
    assert [one.kv_use for one in frame(0).instances] == [0.0, 0.0]
    assert [one.kv_use for one in frame(1).instances] == [0.5, 0.05]
    assert [one.queued_tokens for one in frame(7).instances] == [100, 0]
    assert frame(6).values["kv_decode"] == 50.0
    assert frame(6).values["queued_prefill"] == 100.0
    assert frame(6).values["kv_mixed"] is None


def test_what_happened_since_the_frame_before():
    assert [one.flows for one in story_of(RESULT, SLO).frames] == [[], [], [Flow(0, 1, 1, 100)], *[[]] * 8]
    assert frame(4).events == ["4.0 s: one becomes decode: KV <full>"]
    assert sum(len(one.events) for one in story_of(RESULT, SLO).frames) == 1
    assert [frame(at).planner for at in (1, 2, 3, 4)] == ["", "in balance", "in balance", "KV is full"]


def test_values_of_a_window():
    values = recent(RESULT.records, SLO, num_sent=3, kv_bytes=4e9, window_s=2.0)
    assert values["sent_rate"] == 1.5
    assert values["good_rate"] == 0.5
    assert values["good_share"] == pytest.approx(100 / 3)
    assert values["ttft_p50"] == pytest.approx(125)  # 150 and 100 ms
    assert values["ttft_p90"] == pytest.approx(145)
    assert values["tpot_p50"] == pytest.approx(75)  # 100 and 50 ms
    assert values["kv_gb_s"] == 2.0
    nothing = recent(RESULT.records[:0], SLO, num_sent=0, kv_bytes=0.0, window_s=1.0)
    assert (nothing["good_share"], nothing["ttft_p50"], nothing["good_rate"]) == (None, None, 0.0)


def test_flows_add_up_by_pair():
    assert flows_of([(2, 1, 10), (0, 1, 5), (2, 1, 7)]) == [Flow(0, 1, 1, 5), Flow(2, 1, 2, 17)]


def test_a_long_run_has_few_frames_and_still_every_event():
    story = story_of(run(records(HANDED_OVER), duration_s=100_000.0), SLO)
    assert len(story.frames) == MAX_FRAMES + 1
    assert sum(len(one.events) for one in story.frames) == 1
    assert story.frames[-1].num_ended == 1


def test_a_run_without_anything():
    story = story_of(run(records(), duration_s=0.0, role_changes=[]), SLO)
    assert [one.num_sent for one in story.frames] == [0, 0]
    assert orjson.loads(orjson.dumps(story.plain()))["schema"] == "baton.story/1"
