"""The folder of a comparison: a folder per variant, compare.json and one report.html over all."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from cluster.errors import ConfigError
from metrics.comparison import Outcome, as_json
from metrics.comparison_report import render_comparison
from metrics.files import check_folder, to_json, write_files
from metrics.run_folder import COMPARISON, CURVES, REQUESTS, STORY, SUMMARY
from metrics.summary import baton_version

SCHEMA = "baton.comparison/1"


class ComparisonFolder:
    """`out_dir` with a place for every variant named.

    A folder that holds anything must hold an earlier comparison, whose files are replaced, and removed where
    this one has no such variant. Raises ConfigError for any other, and when it cannot be written.
    """

    def __init__(self, out_dir: str | Path, names: Sequence[str]) -> None:
        self.path = Path(out_dir)
        check_folder(self.path, index=COMPARISON, schema=SCHEMA)
        self._folders = _folder_names(names)
        for name in self._folders.values():
            if (self.path / name).exists():
                check_folder(self.path / name)

    def add(self, outcome: Outcome) -> None:
        """Write the files of a variant, and drop them from the outcome."""
        if outcome.files:
            folder = self.path / self._folders[outcome.name]
            check_folder(folder)
            write_files(folder, {name: [content] for name, content in outcome.files.items()})
            outcome.files.clear()

    def finish(self, title: str, outcomes: Sequence[Outcome]) -> None:
        """Write what is about all of them."""
        ran = {self._folders[one.name] for one in outcomes if one.summary is not None}
        for stale in _variant_folders(self.path / COMPARISON) - ran:
            _remove_run(self.path / stale)
        variants = [
            as_json(one) | {"folder": self._folders[one.name] if one.summary is not None else None} for one in outcomes
        ]
        _write(self.path, title, variants, render_comparison(title, outcomes))


def write_comparison(out_dir: str | Path, title: str, outcomes: Sequence[Outcome], **more: Any) -> None:
    """compare.json and report.html of runs that have their own folders; `more` goes to `render_comparison`.

    Raises ConfigError for a folder that holds anything but an earlier comparison of that kind.
    """
    folder = Path(out_dir)
    check_folder(folder, index=COMPARISON, schema=SCHEMA)
    if _variant_folders(folder / COMPARISON):
        raise ConfigError(f"{folder} holds the runs of a sweep; choose another folder for the comparison")
    variants = [as_json(one) | {"folder": None} for one in outcomes]
    _write(folder, title, variants, render_comparison(title, outcomes, **more))


def _write(folder: Path, title: str, variants: list[dict[str, Any]], report: bytes) -> None:
    index = {"schema": SCHEMA, "version": baton_version(), "title": title, "variants": variants}
    write_files(folder, {"report.html": [report], COMPARISON: [to_json(index)]})


def _folder_names(names: Sequence[str]) -> dict[str, str]:
    """A folder per name: the name without what shells and file systems trip over, and no two alike."""
    folders: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        folder = base = re.sub(r"[^\w.=+-]+", "_", name)[:100].strip("._") or "variant"
        count = 1
        while folder.casefold() in taken or folder in (COMPARISON, "report.html"):
            count += 1
            folder = f"{base}-{count}"
        taken.add(folder.casefold())
        folders[name] = folder
    return folders


def _variant_folders(index: Path) -> set[str]:
    """Names of the folders that an earlier comparison wrote."""
    if not index.exists():
        return set()
    variants: list[dict[str, Any]] = orjson.loads(index.read_bytes())["variants"]
    return {name for one in variants if (name := one["folder"]) and Path(name).name == name}


def _remove_run(folder: Path) -> None:
    """Take away a run that Baton wrote, and its folder if nothing else is in it."""
    if not (folder / SUMMARY).exists():
        return
    check_folder(folder)
    for name in ("scenario.yaml", REQUESTS, "timeline.json", "report.html", CURVES, STORY, SUMMARY):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
