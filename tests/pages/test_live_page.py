"""The page of a run that goes on: it follows what it is served, and says when that is over."""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

import cli.live_view
from actors.messages import Snapshot
from cli.live_story import LiveStory
from cli.main import main
from cli.page_server import PageServer
from cluster.errors import ConfigError
from cluster.load import LoadView
from cluster.request import Status
from cluster.role import Phase, Role
from metrics.records import WIDTH, Column
from metrics.story import Flow
from metrics.story_page import render_story
from scenario.loading import load_scenario
from tests.pages.browser import Browser
from tests.pages.conftest import SCENARIO
from tests.pages.questions import EVENTS, NUM_FLOWS, ROLES


def load(index: int, role: Role, phase: Phase = Phase.SERVING, target: Role | None = None) -> LoadView:
    blank = dict.fromkeys(LoadView.__dataclass_fields__, 0)
    return LoadView(
        **{**blank, "index": index, "role": role, "phase": phase, "target": target, "kv_capacity_tokens": 100}
    )


def snapshot(now_s: float, roles: str, **more: object) -> Snapshot:
    loads = tuple(load(index, Role.PREFILL if role == "P" else Role.DECODE) for index, role in enumerate(roles))
    silent_s = {one.index: 0.1 for one in loads}
    return Snapshot(now_s, **{"num_sent": 9, "num_ended": 0, "num_good": 0, "loads": loads, "changes": (), "silent_s": silent_s, **more})  # fmt: skip


def ended(at_s: float) -> np.ndarray:
    row = np.full((1, WIDTH), np.nan)
    row[0, [Column.STATUS, Column.ARRIVAL_S, Column.OUTPUT_TOKENS, Column.GENERATED_TOKENS]] = Status.FINISHED, 0, 2, 2
    row[0, [Column.FIRST_TOKEN_S, Column.SECOND_TOKEN_S, Column.FINISHED_S]] = 0.5, at_s, at_s
    return row


@pytest.fixture
def live() -> LiveStory:
    return LiveStory(load_scenario(SCENARIO), num_requests=20)


@pytest.fixture
def server(live: LiveStory) -> Iterator[PageServer]:
    with PageServer(lambda: render_story(live.story.plain(), live=True), live.story.frames) as server:
        yield server


def test_a_frame_is_what_came_since_the_snapshot_before(live: LiveStory) -> None:
    live.see(snapshot(-0.5, "PPDD"))
    live.see(snapshot(1.0, "PPDD", ended=ended(0.51), num_ended=1, handed_over=((0, 2, 30), (0, 2, 50))))
    live.see(snapshot(2.0, "PPDD", num_ended=1, changes=("1.5 s: instance-2 becomes prefill: queue",)))
    live.see(snapshot(9.0, "PPPD", num_ended=1, changes=("1.5 s: instance-2 becomes prefill: queue", "3.0 s: died")))
    first, second, last = live.story.frames
    assert first.flows == [Flow(0, 2, 2, 80)]
    assert (first.values["ttft_p50"], first.values["good_rate"]) == (pytest.approx(500), 1.0)
    assert first.values["kv_gb_s"] == pytest.approx(80 * 327_680 / 1e9)  # 80 layers of 2 x 8 heads of 128, 2 bytes each
    assert (second.events, second.flows) == (["1.5 s: instance-2 becomes prefill: queue"], [])
    assert second.values["good_rate"] == 0.5
    assert last.events == ["3.0 s: died"]
    assert last.values["ttft_p50"] is None  # nothing ended in the last 5 s
    assert [one.role for one in last.instances] == ["prefill", "prefill", "prefill", "decode"]


def test_the_dead_are_down_and_the_silent_as_they_were(live: LiveStory) -> None:
    both = (load(0, Role.PREFILL), load(2, Role.DECODE, Phase.DRAINING, Role.PREFILL))
    live.see(snapshot(1.0, "", loads=both, silent_s={0: 0.1, 1: 0.1, 2: 0.1}))
    assert [one.phase for one in live.story.frames[0].instances] == ["serving", "serving", "draining", "down"]
    assert live.story.frames[0].instances[2].target == "prefill"


def test_it_follows_a_run_to_its_end(browser: Browser, live: LiveStory, server: PageServer) -> None:
    live.see(snapshot(1.0, "PPDD"))
    browser.open(server.url)
    assert browser.wait_for(ROLES) == ["prefill", "prefill", "decode", "decode"]
    live.see(snapshot(2.0, "PPPD", handed_over=((0, 3, 30),), changes=("1.5 s: instance-2 becomes prefill: queue",)))
    browser.wait_for("frames.length === 2")
    assert browser.ask(ROLES) == ["prefill", "prefill", "prefill", "decode"]
    assert browser.ask(NUM_FLOWS) == 1
    assert browser.ask(EVENTS) == ["1.5 s: instance-2 becomes prefill: queue"]
    browser.ask("el('slider').value = 1; el('slider').dispatchEvent(new Event('input'))")
    live.see(snapshot(3.0, "PDDD"))
    browser.wait_for("frames.length === 3")
    assert browser.ask(ROLES)[2] == "decode"  # who looks back is not pulled away
    browser.ask("el('live').click()")
    assert browser.ask(ROLES) == ["prefill", "decode", "decode", "decode"]
    server.__exit__(None, None, None)
    browser.wait_for("el('status').textContent === 'The run has ended; this page keeps what it has seen.'")


def test_who_comes_later_or_again_misses_nothing(live: LiveStory, server: PageServer) -> None:
    for second in range(1, 4):
        live.see(snapshot(float(second), "PPDD"))
    with urlopen(f"{server.url}events?after=1", timeout=10) as response:
        lines = [response.readline().decode() for _ in range(5)]
    assert [line.strip() for line in lines[::3]] == ["id: 2", "id: 3"]
    assert json.loads(lines[1].removeprefix("data: "))["time_s"] == 2.0


def test_a_port_that_is_taken(server: PageServer) -> None:
    port = int(server.url.strip("/").rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"cannot be served at 127.0.0.1:{port} .*; choose another port, or 0"):
        PageServer(lambda: b"", port=port).__enter__()


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_number_that_is_no_port(port: int) -> None:
    with pytest.raises(
        ConfigError, match=f"cannot be served at 127.0.0.1:{port} .*0-65535.*; choose another port, or 0"
    ):
        PageServer(lambda: b"", port=port).__enter__()


class Onlooker:
    """A view that opens the page as soon as its address is told, before the run begins."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def say(self, text: str) -> None:
        if found := re.match(r"watch it: (\S+)", text):
            self._browser.open(found[1])
            self._browser.wait_for("document.querySelector('.plot .main-svg') !== null")

    def show(self, snapshot: Snapshot) -> None:
        pass


@pytest.mark.slow
@pytest.mark.ray
def test_a_replay_on_ray(browser: Browser, ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.live_view, "live_view", lambda *_, **__: nullcontext(Onlooker(browser)))
    assert main(["replay", str(SCENARIO), "--ui", "--address", ray_address, "--out", str(tmp_path)]) == 0
    browser.wait_for("el('status').textContent.startsWith('The run has ended')")
    summary = json.loads((tmp_path / "summary.json").read_text())
    last = "frames.at(-1)"
    assert browser.ask(f"[{last}.num_sent, {last}.num_ended, {last}.num_good]") == [
        summary["requests"]["total"],
        summary["requests"]["total"],
        summary["requests"]["good"],
    ]
    told = re.findall(r"^\S+ s: (\S+) becomes (\S+): (.*)$", "\n".join(browser.ask(EVENTS)), re.MULTILINE)
    assert told == [(one["instance"], one["new_role"], one["reason"]) for one in summary["role_changes"]]
    seen = list(dict.fromkeys(browser.ask("frames.map((frame) => frame.instances.map((one) => one.role).join())")))
    assert seen[0] == "prefill,prefill,decode,decode"
    assert len(seen) >= 2
