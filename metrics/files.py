"""The files of a run's folder, written whole or not at all."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from cluster.errors import ConfigError
from metrics.curves import Curves
from metrics.latency import itl
from metrics.report import render_report
from metrics.request_lines import request_lines
from metrics.run import RunResult
from metrics.run_folder import CURVES, REQUESTS, STORY, SUMMARY, plain_curves
from metrics.run_story import story_of
from metrics.slo import SloSpec
from metrics.summary import SCHEMA, Summary, summarize
from metrics.timeline import render_timeline

_PARTIAL = ".partial"

Contents = Mapping[str, Iterable[bytes] | None]
"""What goes into the files of a folder, in the order they are put in place; None removes a file."""


def write_run(
    out_dir: str | Path,
    result: RunResult,
    slo: SloSpec,
    scenario_yaml: str,
    *,
    curves: Curves | None = None,
    timeline: bool = True,
    report: bool = True,
) -> Summary:
    """Write every file of `run_files`, summary.json last; returns the summary.

    Creates `out_dir`. A folder that holds anything must hold an earlier run, whose files are replaced, and
    removed where this run has none. Raises ConfigError for any other folder, and when it cannot be written.
    """
    check_folder(out_dir)
    gaps = itl(result)
    summary = summarize(result, slo, gaps)
    if report and curves is None:
        curves = Curves.of(result, gaps)
    drawn = curves if report else None
    write_files(out_dir, run_files(result, slo, summary, scenario_yaml, drawn, timeline=timeline))
    return summary


def run_files(
    result: RunResult,
    slo: SloSpec,
    summary: Summary,
    scenario_yaml: str,
    curves: Curves | None,
    *,
    timeline: bool = True,
) -> Contents:
    """The contents of every file of a run. curves: those of `result`; without, there is no report.html, nor what others
    are made from later."""
    return {
        "scenario.yaml": [scenario_yaml.encode()],
        REQUESTS: request_lines(result.records, slo),
        "timeline.json": [render_timeline(result)] if timeline else None,
        "report.html": [render_report(result, slo, summary, curves, scenario_yaml)] if curves else None,
        CURVES: [plain_curves(curves)] if curves else None,
        STORY: [orjson.dumps(story_of(result, slo).plain())] if curves else None,
        SUMMARY: [to_json(summary)],
    }


def to_json(data: object) -> bytes:
    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def check_folder(out_dir: str | Path, *, index: str = SUMMARY, schema: str = SCHEMA) -> None:
    """Create a folder for results if need be; raises ConfigError when it holds anything but earlier results.

    Those are told by the schema that the file `index` names. Call it before the work whose results are written.
    """
    folder = Path(out_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_ours(folder, index, schema)
    except OSError as error:
        raise _cannot_write(folder, error) from None


def write_files(folder: str | Path, contents: Contents) -> None:
    """Write every file beside its place, and only then move all into place. Raises ConfigError when it cannot."""
    try:
        _replace_all(Path(folder), contents)
    except OSError as error:
        raise _cannot_write(Path(folder), error) from None


def _cannot_write(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"results cannot be written to {folder}: {error.strerror}; choose another folder")


def _check_ours(folder: Path, index: str, schema: str) -> None:
    if all(_is_partial(path) for path in folder.iterdir()):
        return
    try:
        found = orjson.loads((folder / index).read_bytes())["schema"]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        found = None
    if found != schema:
        raise ConfigError(f"{folder} is not empty and holds no earlier run; choose an empty folder for the results")


def _replace_all(folder: Path, contents: Contents) -> None:
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
