"""Scenario files, names and overrides into a Scenario, and a Scenario back into plain data."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from cluster.errors import ConfigError
from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from cluster.model import ModelSpec
from metrics.slo import SloSpec
from scenario.catalog import is_path, locate
from scenario.effect import idle_settings
from scenario.overrides import Override, Overrides, parse_overrides
from scenario.own_policy import is_own, split_own
from scenario.spec import Scenario
from scenario.strict_yaml import dump_yaml, read_mapping
from scenario.tree import assign, find, holds, remove
from scenario.validation import validate

Spec = TypeVar("Spec", ModelSpec, GpuSpec, LinkSpec, SloSpec)
Tree = dict[str, Any]

FOLDERS: dict[type, str] = {ModelSpec: "models", GpuSpec: "gpus", LinkSpec: "links", SloSpec: "slos"}

REFERENCES: dict[str, type] = {
    "model": ModelSpec,
    "gpu": GpuSpec,
    "gpu_link": LinkSpec,
    "stage_link": LinkSpec,
    "link": LinkSpec,
    "slo": SloSpec,
}
"""Keys of a scenario that may name a spec, or a file that holds one, instead of spelling it out."""

TRACES = ("workload.trace", "planner.predictor.warm_start")
"""Fields of a scenario that name a trace file."""


def load_spec(kind: type[Spec], reference: str, base: Path | None = None) -> Spec:
    """A model, GPU, link or SLO by name or path; names and relative paths are looked up from `base`, else from here."""
    file = locate(FOLDERS[kind], reference, base or Path.cwd())
    return validate(kind, _read_spec(kind, file), str(file))


def load_scenario(name_or_path: str | Path, overrides: Overrides = ()) -> Scenario:
    """A scenario by name or path, with `overrides` applied (see scenario.overrides).

    A relative path in the file is taken from the file's folder, one in an override from the current
    folder; paths of traces and of policies come out absolute. Raises ConfigError.
    """
    path = isinstance(name_or_path, Path) or is_path(name_or_path)
    file = Path(name_or_path) if path else locate("scenarios", str(name_or_path), Path.cwd())
    changes = parse_overrides(overrides)
    where = f"{file} with {' '.join(map(str, changes))}" if changes else str(file)

    tree = read_mapping(file)
    tree.setdefault("name", file.stem)
    base = file.absolute().parent
    _make_files_absolute(tree, base)
    for change in changes:
        _apply(change, tree, base, where)
    for key in REFERENCES:
        _resolve(tree, key, base, where)
    for own in _role_hardware(tree):
        for key in ("gpu", "gpu_link"):
            _resolve(own, key, base, where)

    scenario = validate(Scenario, tree, where)
    if _drop_idle(tree, scenario, changes, where):
        scenario = validate(Scenario, tree, where)
    return scenario


def to_plain(scenario: Scenario) -> Tree:
    """The scenario as mappings, lists and scalars, without what has no effect; loading them gives it back."""
    plain = asdict(scenario)
    for idle in idle_settings(scenario):
        remove(plain, idle.path)
    return plain


def dump_scenario(scenario: Scenario) -> str:
    """The scenario as a YAML file that depends on no other."""
    return dump_yaml(to_plain(scenario))


def _read_spec(kind: type, file: Path) -> Tree:
    tree = read_mapping(file)
    if kind is not SloSpec:
        tree.setdefault("name", file.stem)
    return tree


def _resolve(tree: Tree, key: str, base: Path, where: str) -> None:
    """Put what `key` names in place of the name; `gpu_link` is the GPU's own link unless it is given."""
    if key == "gpu_link" and key not in tree:
        _resolve(tree, "gpu", base, where)
        gpu = tree.get("gpu")
        if isinstance(gpu, dict) and isinstance(gpu.get("link"), str):
            tree[key] = gpu["link"]
    reference = tree.get(key)
    if isinstance(reference, str):
        kind = REFERENCES[key]
        try:
            file = locate(FOLDERS[kind], reference, base)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        tree[key] = _read_spec(kind, file)
        validate(kind, tree[key], str(file))


def _role_hardware(tree: Tree) -> list[Tree]:
    """The sections under `hardware` that are mappings; validation deals with the others."""
    by_role = tree.get("hardware")
    return [own for own in by_role.values() if isinstance(own, dict)] if isinstance(by_role, dict) else []


def _apply(change: Override, tree: Tree, base: Path, where: str) -> None:
    key, _, field = change.path.partition(".")
    value = change.value
    if key in REFERENCES and field:
        _resolve(tree, key, base, where)
    if change.path in REFERENCES and isinstance(value, str) and is_path(value):
        value = str(Path(value).expanduser().absolute())
    try:
        assign(tree, change.path, value)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    _make_files_absolute(tree, Path.cwd())


def _make_files_absolute(tree: Tree, base: Path) -> None:
    for path in TRACES:
        file = find(tree, path)
        if isinstance(file, str):
            assign(tree, path, str(base / Path(file).expanduser()))
    policy = find(tree, "planner.policy")
    if isinstance(policy, str) and is_own(policy):
        file, function = split_own(policy)
        assign(tree, "planner.policy", f"{base / Path(file).expanduser()}:{function}")


def _drop_idle(tree: Tree, scenario: Scenario, changes: list[Override], where: str) -> bool:
    """Refuse settings without effect, but drop those that lost it to an override; True if there were any."""
    dropped = False
    for idle in idle_settings(scenario):
        if not holds(tree, idle.path):
            continue
        lost = any(change.replaces(idle.cause) for change in changes)
        if not lost or any(change.touches(idle.path) for change in changes):
            raise ConfigError(f"{where}: {idle}")
        remove(tree, idle.path)
        dropped = True
    return dropped
