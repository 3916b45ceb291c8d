"""The reference page of the configuration, in Markdown, from the dataclasses that YAML files mirror."""

import ast
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from scenario.catalog import BUNDLED, KINDS
from scenario.loading import REFERENCES
from scenario.spec import Scenario

_TYPES = {int: "integer", float: "number", str: "text", bool: "true or false"}
_INTRODUCTION = """# Configuration

A scenario is a YAML file: `baton simulate my.yaml`. Its keys are those below; anything else, and anything without an
effect, is refused with a suggestion. `name` is the file's name and `gpu_link` the GPU's own link unless they are given.

On the command line, `--set planner.load.votes=3` changes any key, `--set engine.token_budget=null` unsets one, and
items of lists go by their number: `--set workload.phases.0.request_rate=30`.

`model`, `gpu`, `gpu_link`, `stage_link`, `link` and `slo` may be a name or a path instead of a section. Names are looked up in the
folders `models`, `gpus`, `links`, `slos` and `scenarios` of `configs` beside the file, of `configs` in the current
folder, of `$BATON_CONFIGS`, and of what is bundled; the first that knows a name wins.
"""


def configuration_page() -> str:
    """Every key of a scenario with its type, default and meaning, and the bundled names."""
    parts = [_INTRODUCTION, "## Bundled names\n", _bundled()]
    for kind, paths in _sections().items():
        first, *others = paths
        parts.append(f"## `{first}`\n" if first else "## The scenario\n")
        if others:
            parts.append(f"The same keys: {', '.join(f'`{path}`' for path in others)}.\n")
        parts += [_purpose(kind), _table(_rows(kind, first))]
    return "\n".join(parts)


def _purpose(kind: type) -> str:
    """The docstring, unless it is the one that dataclasses make up."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return "" if text.startswith(f"{kind.__name__}(") else f"{_in_yaml(text)}\n"


def _bundled() -> str:
    names = {kind: sorted(file.stem for file in (BUNDLED / kind).glob("*.y*ml")) for kind in KINDS}
    return _table([("folder", "names"), *((kind, ", ".join(f"`{n}`" for n in found)) for kind, found in names.items())])


def _sections() -> dict[type, list[str]]:
    """The dataclasses of a scenario from the outside in, each with the paths that lead to it."""
    sections: dict[type, list[str]] = {Scenario: [""]}
    queue: list[tuple[type, str]] = [(Scenario, "")]
    while queue:
        kind, prefix = queue.pop(0)
        for name, hint in get_type_hints(kind).items():
            part, suffix = _section_in(hint)
            if part is None:
                continue
            path = f"{prefix}{name}{suffix}"
            queue.append((part, f"{path}."))
            sections.setdefault(part, []).append(path)
    return sections


def _section_in(hint: Any) -> tuple[type | None, str]:
    """The dataclass that a type hint holds, and what its path ends in."""
    if get_origin(hint) is list:
        part, _ = _section_in(get_args(hint)[0])
        return part, ".N"
    if isinstance(hint, UnionType):
        return next((_section_in(one) for one in get_args(hint) if _section_in(one)[0]), (None, ""))
    return (hint, "") if is_dataclass(hint) and isinstance(hint, type) else (None, "")


def _rows(kind: type, path: str) -> Iterator[tuple[str, ...]]:
    yield "key", "type", "default", "meaning"
    hints, notes = get_type_hints(kind), _notes(kind)
    for field in fields(kind):
        reference = "name, or " if not path and field.name in REFERENCES else ""
        yield f"`{field.name}`", reference + _type(hints[field.name]), _default(field), notes.get(field.name, "")


def _type(hint: Any) -> str:
    if isinstance(hint, UnionType):
        return " or ".join("null" if one is type(None) else _type(one) for one in get_args(hint))
    if get_origin(hint) is list:
        return "list of sections"
    return "section" if _section_in(hint)[0] else _TYPES[hint]


def _default(field: "Field[Any]") -> str:
    if field.default_factory is not MISSING:
        return "none" if field.default_factory is list else "see there"
    if field.default is MISSING:
        return "*required*"
    return f"`{field.default if isinstance(field.default, str) else json.dumps(field.default)}`"


def _notes(kind: type) -> dict[str, str]:
    """The text below each field. It is no attribute, so it is read from the source."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    notes = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            notes[before.target.id] = _in_yaml(" ".join(str(ast.literal_eval(after.value)).split()))
    return notes


def _in_yaml(text: str) -> str:
    return re.sub(r"\bNone\b", "null", text)


def _table(rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    columns, *lines = rows
    return "".join(f"| {' | '.join(line)} |\n" for line in (columns, ["---"] * len(columns), *lines))
