"""The story of a finished run: a frame per sample interval, or fewer where that makes too many."""

from bisect import bisect_right
from math import ceil
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cluster.role import Phase
from metrics.records import Column, FloatArray
from metrics.run import RunResult
from metrics.samples import SAMPLE_FIELDS
from metrics.slo import SloSpec, meets
from metrics.story import WINDOW_S, Frame, InstanceFrame, Story, by_role, change_in_words, flows_of, recent

MAX_FRAMES = 600

_NOW, _QUEUED, _WAITING, _DECODING, _KV_USED = (
    SAMPLE_FIELDS.index(name) for name in ("now_s", "queued_tokens", "num_waiting", "num_decoding", "kv_used_tokens")
)


def story_of(result: RunResult, slo: SloSpec) -> Story:
    """Everything from result; of the planner's words, those of the last tick before each frame."""
    scenario = result.scenario
    handoffs = _Handoffs.of(result.records)
    tokens = int(handoffs.moves[:, 2].sum())
    kv_bytes_per_token = result.kv_bytes_moved / tokens if tokens else 0.0
    return Story(
        name=str(scenario.get("name")),
        driver=result.driver,
        seed=int(scenario.get("seed", 0)),
        policy=str(scenario.get("planner", {}).get("policy", "static")),
        instance_names=result.instance_names,
        num_requests=result.num_requests,
        kv_bytes_per_token=kv_bytes_per_token,
        slo=slo,
        end_s=result.duration_s,
        frames=_frames(result, slo, handoffs, kv_bytes_per_token),
    )


def _frames(result: RunResult, slo: SloSpec, handoffs: "_Handoffs", kv_bytes_per_token: float) -> list[Frame]:
    end_s = result.duration_s
    spacing_s = float(result.scenario.get("sample_interval_s", 1.0))
    times = np.linspace(0.0, end_s, min(MAX_FRAMES, max(1, ceil(end_s / spacing_s))) + 1)
    window_s = max(WINDOW_S, end_s / (len(times) - 1))
    records = result.records[np.argsort(result.records[:, Column.FINISHED_S], kind="stable")]
    ended_s, sent_s = records[:, Column.FINISHED_S], np.sort(records[:, Column.ARRIVAL_S])
    num_good = np.concatenate([[0], np.cumsum(meets(records, slo))])
    word_s = [at for at, _ in result.planner_words]
    tracks = [_Track(result, index) for index in range(len(result.instance_names))]
    frames = []
    before = -1.0
    for now in times.tolist():
        sent_before, num_sent = np.searchsorted(sent_s, (now - window_s, now), side="right").tolist()
        ended_before, num_ended = np.searchsorted(ended_s, (now - window_s, now), side="right").tolist()
        moved_before, new, num_moved = np.searchsorted(handoffs.there_s, (now - window_s, before, now), side="right")
        instances = [track.at(now) for track in tracks]
        said = bisect_right(word_s, now)
        window = recent(
            records[ended_before:num_ended],
            slo,
            num_sent=num_sent - sent_before,
            kv_bytes=kv_bytes_per_token * int(handoffs.moves[moved_before:num_moved, 2].sum()),
            window_s=min(window_s, now) or window_s,
        )
        frame = Frame(
            time_s=now,
            num_sent=num_sent,
            num_ended=num_ended,
            num_good=int(num_good[num_ended]),
            values=window | by_role(instances),
            instances=instances,
            flows=flows_of(handoffs.moves[new:num_moved].tolist()),
            events=[
                change_in_words(one, result.instance_names)
                for one in result.role_changes
                if before < one.decided_s <= now
            ],
            planner=result.planner_words[said - 1][1] if said else "",
        )
        frames.append(frame)
        before = now
    return frames


class _Handoffs(NamedTuple):
    """In order of time: when the KV was there, and rows of source, destination and tokens."""

    there_s: FloatArray
    moves: npt.NDArray[np.int64]

    @classmethod
    def of(cls, records: FloatArray) -> "_Handoffs":
        moved = records[~np.isnan(records[:, Column.KV_ARRIVED_S]) & (records[:, Column.DECODE_INSTANCE] >= 0)]
        moved = moved[np.argsort(moved[:, Column.KV_ARRIVED_S], kind="stable")]
        columns = (Column.PREFILL_INSTANCE, Column.DECODE_INSTANCE, Column.PROMPT_TOKENS)
        return cls(moved[:, Column.KV_ARRIVED_S], moved[:, columns].astype(np.int64))


class _Track:
    """One instance: its latest sample, role and phase at any time."""

    def __init__(self, result: RunResult, index: int) -> None:
        self._samples = result.samples[index]
        self._capacity = result.kv_capacity_tokens[index]
        self._spans = [span for span in result.role_spans if span.instance == index]
        self._starts_s = [span.start_s for span in self._spans]
        self._changes = [change for change in result.role_changes if change.instance == index]

    def at(self, now: float) -> InstanceFrame:
        """As of `now`; an instance without any span is idle in no role."""
        place = max(0, bisect_right(self._starts_s, now) - 1)
        role, phase = (self._spans[place].role, self._spans[place].phase) if self._spans else ("", Phase.SERVING)
        row = int(np.searchsorted(self._samples[:, _NOW], now, side="right")) - 1
        sample = self._samples[row] if row >= 0 else np.zeros(len(SAMPLE_FIELDS))
        targets = [change.new_role for change in self._changes if change.decided_s <= now]
        return InstanceFrame(
            role=role,
            phase=phase,
            target=targets[-1] if phase == Phase.DRAINING else "",
            queued_tokens=int(sample[_QUEUED]),
            num_waiting=int(sample[_WAITING]),
            num_decoding=int(sample[_DECODING]),
            kv_use=round(float(sample[_KV_USED]) / self._capacity, 4),
        )
