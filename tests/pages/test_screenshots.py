"""The script that takes the documentation's pictures works, and they are in use."""

from pathlib import Path

import pytest

from tests.pages.browser import chromium
from tests.pages.screenshots import main

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"


def test_it_takes_every_picture_of_the_documentation(tmp_path: Path) -> None:
    if chromium() is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    main(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in names if not (IMAGES / name).exists()] == []
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert [name for name in names if f"images/{name}" not in pages] == []
    for name in names:  # width and height, as PNG has them
        assert (tmp_path / name).read_bytes()[16:24] == (IMAGES / name).read_bytes()[16:24]
