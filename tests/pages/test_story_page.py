"""`baton view` in a browser: the page tells the same story as the result files, and everybody can read it."""

import json
from pathlib import Path
from typing import Any

import pytest

from metrics.run_folder import read_story
from metrics.run_story import story_of
from metrics.story_page import render_story
from scenario.loading import load_scenario
from sim.variants import run_scenario
from tests.pages.browser import Browser
from tests.pages.looks import DEFICIENCIES, distance, faults, seen_as
from tests.pages.questions import CLOCK, EVENTS, NUM_FLOWS, ROLES

FLOW_S = 2.0


@pytest.fixture(scope="session")
def page(folder: Path) -> str:
    file = folder / "page.html"
    file.write_bytes(render_story(read_story(folder)))
    return file.as_uri()


@pytest.fixture(scope="session")
def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_bytes())


def open_at(browser: Browser, page: str, time_s: float) -> None:
    browser.open("about:blank")
    browser.open(f"{page}#t={time_s}")
    browser.wait_for("[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('.main-svg'))")


def slide(browser: Browser, time_s: float) -> None:
    browser.ask(f"el('slider').value = {time_s}; el('slider').dispatchEvent(new Event('input'))")


def test_roles_change_when_the_files_say_so(browser: Browser, page: str, summary: dict[str, Any]) -> None:
    open_at(browser, page, 0)
    assert browser.ask(ROLES) == ["prefill", "prefill", "decode", "decode"]
    names = [one["name"] for one in summary["instances"]]
    assert len(summary["role_changes"]) >= 2
    for change in summary["role_changes"]:
        index = names.index(change["instance"])
        slide(browser, change["decided_s"] - 1)  # frames are a second apart
        assert browser.ask(ROLES)[index] == change["old_role"]
        slide(browser, change["served_s"] + 1)
        assert browser.ask(ROLES)[index] == change["new_role"]


def test_every_role_change_is_told_with_its_reason(browser: Browser, page: str, summary: dict[str, Any]) -> None:
    open_at(browser, page, 0)
    told = browser.ask(EVENTS)
    for text, change in zip(told, summary["role_changes"], strict=True):
        start = f"{change['decided_s']:.1f} s: {change['instance']} becomes {change['new_role']}: "
        assert text == start + change["reason"]
    browser.ask("document.querySelector('#events li:last-child button').click()")
    assert browser.ask(CLOCK) == pytest.approx(summary["role_changes"][-1]["decided_s"], abs=0.06)


def test_flows_are_the_handoffs_of_the_last_seconds(browser: Browser, page: str, folder: Path) -> None:
    open_at(browser, page, 0)
    requests = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    for now in (4.0, 8.0, 12.0):
        slide(browser, now)
        at = browser.ask("frames[shown].time_s")
        pairs = {
            (one["prefill_instance"], one["decode_instance"])
            for one in requests
            if one["kv_arrived_s"] and at - FLOW_S < one["kv_arrived_s"] <= at
        }
        assert pairs
        assert abs(browser.ask(NUM_FLOWS) - len(pairs)) <= 1  # a frame holds what came since the one before


def test_it_plays_to_the_end(browser: Browser, page: str, summary: dict[str, Any]) -> None:
    open_at(browser, page, 0)
    browser.ask("el('speed').value = 100; el('play').click()")
    browser.wait_for("!playing")
    assert browser.ask(CLOCK) == pytest.approx(summary["duration_s"], abs=0.06)
    assert f"of {summary['requests']['total']} ended" in browser.ask("el('tiles').textContent")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_is_readable(browser: Browser, page: str, width: int, dark: bool) -> None:
    browser.show(width=width, dark=dark)
    open_at(browser, page, 8)
    assert faults(browser) == {}


def test_a_fleet_fits_a_phone(browser: Browser, tmp_path: Path) -> None:
    scenario = load_scenario(
        "steady-8b", {"instances.prefill": 20, "instances.decode": 28, "workload.num_requests": 99}
    )
    file = tmp_path / "fleet.html"
    file.write_bytes(render_story(story_of(run_scenario(scenario), scenario.slo).plain()))
    browser.show(width=400)
    open_at(browser, file.as_uri(), 5)
    assert faults(browser) == {}
    assert len(browser.ask(ROLES)) == 48


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_roles_are_told_apart_whatever_colours_the_reader_sees(browser: Browser, page: str, deficiency: str) -> None:
    open_at(browser, page, 0)
    prefill, decode = (seen_as(browser, f".instance[data-role={role}]", deficiency) for role in ("prefill", "decode"))
    assert distance(prefill, decode) > 80
