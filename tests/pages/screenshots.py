"""Pictures of pages for the documentation: `python -m tests.pages.screenshots docs/images`; needs Chromium."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from metrics.files import write_run
from metrics.run_folder import read_story
from metrics.story_page import render_story
from scenario.loading import dump_scenario, load_scenario
from sim.variants import run_scenario
from tests.pages.browser import Browser

MOMENT_S = 46
"""Of the demo: prompts have got long, and an instance drains to go over from decode to prefill."""
VIEW_HEIGHT, REPORT_HEIGHT = 846, 670


def main(out: Path) -> None:
    """Write a picture per page and theme."""
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, Browser() as browser:
        page, report = _pages(Path(folder))
        for name, address, dark, height in (
            ("view", f"{page}#t={MOMENT_S}", False, VIEW_HEIGHT),
            ("view-dark", f"{page}#t={MOMENT_S}", True, VIEW_HEIGHT),
            ("report", report, False, REPORT_HEIGHT),
        ):
            browser.show(width=1280, dark=dark)
            browser.open("about:blank")
            browser.open(address)
            browser.wait_for("[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('.main-svg'))")
            (out / f"{name}.png").write_bytes(browser.screenshot(height=height))
        assert browser.complaints == []


def _pages(folder: Path) -> tuple[str, str]:
    """Addresses of the demo, simulated, to look at moment by moment, and of its report."""
    scenario = load_scenario("demo")
    write_run(folder, run_scenario(scenario), scenario.slo, dump_scenario(scenario), timeline=False)
    page = folder / "page.html"
    page.write_bytes(render_story(read_story(folder)))
    return page.as_uri(), (folder / "report.html").as_uri()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
