"""The files of a run's folder, written whole or not at all."""

from collections.abc import Iterable
from pathlib import Path

import orjson

from cluster.errors import ConfigError
from metrics.report import render_report
from metrics.request_lines import request_lines
from metrics.run import RunResult
from metrics.slo import SloSpec
from metrics.summary import SCHEMA, Summary, summarize
from metrics.timeline import render_timeline

SUMMARY = "summary.json"
_PARTIAL = ".partial"


def write_run(
    out_dir: str | Path,
    result: RunResult,
    slo: SloSpec,
    scenario_yaml: str,
    *,
    timeline: bool = True,
    report: bool = True,
) -> Summary:
    """Write scenario.yaml, requests.jsonl, timeline.json, report.html and last summary.json; returns the summary.

    Creates `out_dir`. A folder that holds anything must hold an earlier run, whose files are replaced, and
    removed where this run has none. Raises ConfigError for any other folder, and when it cannot be written.
    """
    folder = Path(out_dir)
    check_folder(folder)
    try:
        summary = summarize(result, slo)
        _replace_all(
            folder,
            {
                "scenario.yaml": [scenario_yaml.encode()],
                "requests.jsonl": request_lines(result.records, slo),
                "timeline.json": [render_timeline(result)] if timeline else None,
                "report.html": [render_report(result, slo, summary, scenario_yaml)] if report else None,
                SUMMARY: [orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)],
            },
        )
    except OSError as error:
        raise ConfigError(f"results cannot be written to {folder}: {error.strerror}; choose another folder") from None
    return summary


def check_folder(out_dir: str | Path) -> None:
    """Create the folder of a run if need be; raises ConfigError where `write_run` would, so call it first."""
    folder = Path(out_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_ours(folder)
    except OSError as error:
        raise ConfigError(f"results cannot be written to {folder}: {error.strerror}; choose another folder") from None


def _check_ours(folder: Path) -> None:
    if all(_is_partial(path) for path in folder.iterdir()):
        return
    try:
        schema = orjson.loads((folder / SUMMARY).read_bytes())["schema"]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        schema = None
    if schema != SCHEMA:
        raise ConfigError(f"{folder} is not empty and holds no earlier run; choose an empty folder for the results")


def _replace_all(folder: Path, contents: dict[str, Iterable[bytes] | None]) -> None:
    """Write every file beside its place, and only then move all into place; None removes a file."""
    partials = {name: folder / f".{name}{_PARTIAL}" for name, chunks in contents.items() if chunks is not None}
    try:
        for name, partial in partials.items():
            with partial.open("wb") as file:
                file.writelines(contents[name] or ())
        for name in contents:
            if name in partials:
                partials[name].replace(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)


def _is_partial(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(_PARTIAL)
