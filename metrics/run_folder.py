"""Reads a run back from the folder that it was written to."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson

import metrics.story
import metrics.summary
from cluster.errors import ConfigError
from metrics.curves import Curves
from metrics.gantt import Bars
from metrics.run import RoleSpan
from metrics.story import PlainStory
from metrics.summary import Summary

SUMMARY, STORY, CURVES, REQUESTS = "summary.json", "story.json", "curves.json", "requests.jsonl"
CURVES_SCHEMA = "baton.curves/1"
COMPARISON = "compare.json"


def read_summary(folder: str | Path) -> Summary:
    """summary.json; raises ConfigError, as the others do, when the folder holds no run that this version reads."""
    return _read(Path(folder), SUMMARY, metrics.summary.SCHEMA)


def read_story(folder: str | Path) -> PlainStory:
    """story.json"""
    return _read(Path(folder), STORY, metrics.story.SCHEMA)


def read_requests(folder: str | Path) -> list[dict[str, Any]]:
    """requests.jsonl, an object per request."""
    return [orjson.loads(line) for line in _bytes(Path(folder), REQUESTS).splitlines()]


def read_curves(folder: str | Path) -> Curves:
    """curves.json, which `plain_curves` has written."""
    plain = _read(Path(folder), CURVES, CURVES_SCHEMA)
    del plain["schema"]
    bars, cdfs_ms = plain.pop("bars"), plain.pop("cdfs_ms")
    return Curves(
        cdfs_ms={title: np.array(values) for title, values in cdfs_ms.items()},
        bars=Bars(
            bars["instance_names"],
            [RoleSpan(**span) for span in bars["spans"]],
            None if bars["steps"] is None else np.array(bars["steps"]).reshape(-1, 5),
        ),
        **{name: np.array(values) for name, values in plain.items()},
    )


def plain_curves(curves: Curves) -> bytes:
    """Curves as JSON."""
    return orjson.dumps({"schema": CURVES_SCHEMA} | asdict(curves), option=orjson.OPT_SERIALIZE_NUMPY)


def _read(folder: Path, name: str, schema: str) -> dict[str, Any]:
    content = _bytes(folder, name)
    try:
        data: dict[str, Any] = orjson.loads(content)
        found = data["schema"]
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{folder / name} is damaged; run the scenario again") from None
    if found != schema:
        raise ConfigError(
            f"{folder / name} has schema {found}, and this version reads {schema}; run the scenario again"
        )
    return data


def _bytes(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError:
        if (folder / COMPARISON).exists():
            raise ConfigError(f"{folder} holds a comparison; name the folder of one of its runs") from None
        raise ConfigError(f"{folder} holds no run: there is no {name}; name a folder that was given as --out") from None
