"""The site builds without a warning, its generated pages are up to date, and it fetches nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.reference import PAGES

ROOT = Path(__file__).parents[2]
SITE = ROOT / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: pip install -c constraints.txt '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(SITE), "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_built(site: Path) -> None:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    built = [
        site / page.relative_to(ROOT / "docs").with_suffix("") / "index.html"
        if page.stem != "index"
        else site / "index.html"
        for page in pages
    ]
    assert [str(page) for page in built if not page.exists()] == []


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)"', page.read_text())
        fetched += re.findall(
            r'<link[^>]+rel="(?:stylesheet|preconnect|icon)"[^>]+href="(https?:[^"]+)"', page.read_text()
        )
        assert fetched == [], page


@pytest.mark.parametrize("name", PAGES)
def test_reference_is_up_to_date(name: str) -> None:
    if name == "command_line.md" and sys.version_info[:2] != (3, 11):
        pytest.skip("argparse words its help differently from version to version")
    assert (ROOT / "docs/reference" / name).read_text() == PAGES[name](), "run: make docs"
