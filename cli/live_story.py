"""A story that is written while its run goes on, from snapshots."""

from collections import deque

import numpy as np

from actors.messages import Snapshot
from cluster.load import LoadView
from metrics.history import DOWN
from metrics.records import Column, FloatArray
from metrics.story import WINDOW_S, Frame, InstanceFrame, Story, by_role, flows_of, recent
from scenario.build import instance_names
from scenario.spec import Scenario


class LiveStory:
    """`story` grows by a frame with every snapshot that `see` is given."""

    def __init__(self, scenario: Scenario, num_requests: int) -> None:
        self._scenario = scenario
        self.story = Story(
            name=scenario.name,
            driver="replay",
            seed=scenario.seed,
            policy=scenario.planner.policy,
            instance_names=instance_names(scenario),
            num_requests=num_requests,
            kv_bytes_per_token=float(scenario.model.kv_bytes_per_token),
            slo=scenario.slo,
            end_s=None,
        )
        self._instances = [InstanceFrame(role) for role in scenario.roles]
        self._known: list[str] = []
        """The role changes of the snapshot before."""
        self._window: deque[tuple[float, int, int, FloatArray]] = deque()
        """Time, requests sent by then, KV tokens and ended requests since the snapshot before."""

    def see(self, snapshot: Snapshot) -> None:
        """Add a frame; before second 0 there is nothing to see."""
        now = snapshot.now_s
        if now < 0:
            return
        self._remember(snapshot)
        self._instances = self._look_at(snapshot)
        begin_s, sent_before, _, _ = self._window[0]
        records = np.concatenate([ended for _, _, _, ended in self._window])
        values = recent(
            records[records[:, Column.FINISHED_S] > now - WINDOW_S],
            self._scenario.slo,
            num_sent=snapshot.num_sent - sent_before,
            kv_bytes=self.story.kv_bytes_per_token * sum(tokens for _, _, tokens, _ in list(self._window)[1:]),
            window_s=max(now - begin_s, 1e-3),
        )
        self.story.frames.append(
            Frame(
                time_s=now,
                num_sent=snapshot.num_sent,
                num_ended=snapshot.num_ended,
                num_good=snapshot.num_good,
                values=values | by_role(self._instances),
                instances=self._instances,
                flows=flows_of(snapshot.handed_over),
                events=[change for change in snapshot.changes if change not in self._known],
                planner=snapshot.planner_words,
            )
        )
        self._known = list(snapshot.changes)

    def _remember(self, snapshot: Snapshot) -> None:
        if not self._window:
            self._window.append((0.0, 0, 0, snapshot.ended[:0]))
        tokens = sum(tokens for _, _, tokens in snapshot.handed_over)
        self._window.append((snapshot.now_s, snapshot.num_sent, tokens, snapshot.ended))
        while len(self._window) > 2 and self._window[1][0] < snapshot.now_s - WINDOW_S:
            self._window.popleft()

    def _look_at(self, snapshot: Snapshot) -> list[InstanceFrame]:
        """Every instance as it reported last; one that has not reported yet is as before, one that has died is down."""
        loads = {load.index: load for load in snapshot.loads}
        frames = []
        for index, before in enumerate(self._instances):
            if index in loads:
                frames.append(_frame(loads[index]))
            else:
                frames.append(before if index in snapshot.silent_s else InstanceFrame(before.role, DOWN))
        return frames


def _frame(load: LoadView) -> InstanceFrame:
    return InstanceFrame(
        role=load.role,
        phase=load.phase,
        target=load.target or "",
        queued_tokens=load.queued_tokens,
        num_waiting=load.num_waiting,
        num_decoding=load.num_decoding,
        kv_use=round(load.kv_use, 4),
    )
