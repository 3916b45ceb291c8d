"""Scenarios side by side: which variants there are, and how each of them runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, StalledError, UserError
from metrics.comparison import Outcome
from metrics.curves import Curves
from metrics.files import run_files
from metrics.latency import itl
from metrics.summary import summarize
from scenario.catalog import is_path, locate
from scenario.loading import dump_scenario, load_scenario
from scenario.spec import Scenario
from scenario.sweep import Axis, combinations, value_text
from sim.variants import run_scenario


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario to run, or why there is none. settings: what tells it from the others, by name."""

    name: str
    settings: dict[str, str]
    scenario: Scenario | None
    error: str = ""


def variants_of(references: Sequence[str], changes: Mapping[str, Any], axes: Sequence[Axis]) -> list[Variant]:
    """Every scenario, by name or path, with every combination of values; the name says what is its own.

    `changes` (see scenario.overrides) go for all of them. A variant that the scenario does not allow carries the
    reason. Raises ConfigError for a scenario that does not exist, one given twice, and a path both swept and set.
    """
    for axis in axes:
        if axis.path in changes:
            raise ConfigError(f"{axis.path} is swept and set; leave one of the two out")
    labels = _scenario_labels(references)
    variants = []
    for reference, label in zip(references, labels, strict=True):
        for values in combinations(axes):
            settings = {"scenario": label} if len(references) > 1 or not axes else {}
            settings |= {axis.label: value_text(value) for axis, value in zip(axes, values, strict=True)}
            own = [axis.text(value) for axis, value in zip(axes, values, strict=True)]
            name = " ".join([label, *own] if "scenario" in settings else own)
            swept = {axis.path: value for axis, value in zip(axes, values, strict=True)}
            variants.append(_load(reference, {**changes, **swept}, name, settings))
    return variants


def run_variant(variant: Variant, *, keep_files: bool) -> Outcome:
    """Simulate one; what the user could have avoided becomes the outcome's error."""
    name, settings, scenario = variant.name, variant.settings, variant.scenario
    if scenario is None:
        return Outcome(name=name, settings=settings, error=variant.error)
    try:
        result = run_scenario(scenario)
    except (UserError, StalledError) as error:
        return Outcome(name=name, settings=settings, error=str(error))
    gaps = itl(result)
    summary = summarize(result, scenario.slo, gaps)
    curves = Curves.of(result, gaps)
    contents = run_files(result, scenario.slo, summary, dump_scenario(scenario), curves) if keep_files else {}
    return Outcome(
        name=name,
        settings=settings,
        summary=summary,
        curves=curves,
        files={file: b"".join(chunks) for file, chunks in contents.items() if chunks is not None},
    )


def _load(reference: str, changes: dict[str, Any], name: str, settings: dict[str, str]) -> Variant:
    try:
        scenario = load_scenario(reference, changes)
        return Variant(name, settings, replace(scenario, name=name))
    except UserError as error:
        return Variant(name, settings, None, str(error))


def _scenario_labels(references: Sequence[str]) -> list[str]:
    """The stem of each file where that tells them apart, else what was given."""
    for reference in references:
        file = locate("scenarios", reference, Path.cwd())
        if not file.is_file():
            raise ConfigError(f"cannot read {file}: there is no such file")
        if references.count(reference) > 1:
            raise ConfigError(f"scenario {reference} is given twice; name every scenario once")
    stems = [Path(reference).stem if is_path(reference) else reference for reference in references]
    return [reference if stems.count(stem) > 1 else stem for reference, stem in zip(references, stems, strict=True)]
