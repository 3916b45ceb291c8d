"""Reports in a browser: every figure is drawn, everybody can read it, and tables can be copied."""

from pathlib import Path

import pytest

from cli.main import main
from tests.pages.browser import Browser
from tests.pages.looks import faults

DRAWN = "[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('.main-svg'))"


@pytest.fixture(scope="session")
def reports(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of the report of a run and of a comparison."""
    other, compared = (tmp_path_factory.mktemp(name) for name in ("other", "compared"))
    words = ["--set", "planner.policy=static", "--quiet", "--out", str(other)]
    assert main(["simulate", str(folder / "scenario.yaml"), *words]) == 0
    assert main(["compare", str(folder), str(other), "--out", str(compared)]) == 0
    return {"run": (folder / "report.html").as_uri(), "comparison": (compared / "report.html").as_uri()}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("report", ["run", "comparison"])
def test_it_is_readable(browser: Browser, reports: dict[str, str], report: str, width: int, dark: bool) -> None:
    browser.show(width=width, dark=dark)
    browser.open(reports[report])
    browser.wait_for(DRAWN)
    assert browser.ask("document.querySelectorAll('.plot').length") >= 9
    assert faults(browser) == {}


def test_tables_can_be_copied(browser: Browser, reports: dict[str, str], folder: Path) -> None:
    browser.open(reports["comparison"])
    browser.ask("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    browser.ask("document.querySelectorAll('.copy')[1].click()")
    assert browser.wait_for("window.copied") == f"\t{folder.name}\tother0\nplanner.policy\tload\tstatic\n"
    assert browser.ask("document.querySelectorAll('.copy')[1].textContent") == "copied"
