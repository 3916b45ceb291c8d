"""Results on disk, by a digest of all that they depend on: what was asked, the trace, and Baton's own code."""

import os
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from cluster.errors import ConfigError

_CODE = ("cluster", "metrics", "planner", "scenario", "sim", "workload")


def default_folder() -> Path:
    """$XDG_CACHE_HOME/baton, or ~/.cache/baton."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baton"


class ResultCache:
    """Small JSON files, one a result. A file that cannot be read counts as absent.

    folder: None keeps nothing. trace: path of the trace file whose content counts.
    """

    def __init__(self, folder: Path | None, trace: str | None = None) -> None:
        self._folder = folder
        self._salt = b""
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"results cannot be kept in {folder}: {error.strerror}; choose another folder"
                ) from None
            self._salt = _code_digest() + (b"" if trace is None else sha256(Path(trace).read_bytes()).digest())

    def get(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result that was kept for this content."""
        if self._folder is None:
            return None
        try:
            found: dict[str, Any] = orjson.loads(self._path(self._folder, content).read_bytes())
        except (OSError, ValueError):
            return None
        return found

    def put(self, content: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Keep a result; a full disk is no reason to fail."""
        if self._folder is None:
            return
        path = self._path(self._folder, content)
        partial = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(exist_ok=True)
            partial.write_bytes(orjson.dumps(result))
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)

    def _path(self, folder: Path, content: Mapping[str, Any]) -> Path:
        plain = {**content, "scenario": {**content["scenario"], "workload": _without_path(content)}}
        digest = sha256(self._salt + orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()
        return folder / digest[:2] / f"{digest[2:]}.json"


def _without_path(content: Mapping[str, Any]) -> dict[str, Any]:
    workload: dict[str, Any] = dict(content["scenario"]["workload"])
    return {**workload, "trace": workload["trace"] is not None}


@cache
def _code_digest() -> bytes:
    root = Path(__file__).parents[2]
    digest = sha256()
    for package in _CODE:
        for file in sorted((root / package).rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.digest()
