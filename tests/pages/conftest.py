"""One headless Chromium for all tests of this folder, and a simulated run with role changes to look at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from metrics.files import write_run
from scenario.loading import dump_scenario, load_scenario
from sim.variants import run_scenario
from tests.pages.browser import Browser, chromium

SCENARIO = Path(__file__).parents[1] / "metrics_live/two_phases.yaml"


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(chrome: Browser) -> Iterator[Browser]:
    """A blank page; what went wrong on it when the test ends fails the test."""
    chrome.show()
    chrome.open("about:blank")
    chrome.complaints.clear()
    yield chrome
    chrome.open("about:blank")
    assert chrome.complaints == []


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result files of the run."""
    folder = tmp_path_factory.mktemp("run")
    scenario = load_scenario(SCENARIO)
    write_run(folder, run_scenario(scenario), scenario.slo, dump_scenario(scenario), timeline=False)
    return folder
