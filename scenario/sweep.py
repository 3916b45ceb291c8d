"""Sweeps of a scenario: path=v1,v2,... on the command line into every combination of values."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from cluster.errors import ConfigError
from scenario.strict_yaml import parse_yaml


@dataclass(frozen=True, slots=True)
class Axis:
    """A dotted path of the scenario and the values it takes; `label` is the path's shortest unambiguous end."""

    path: str
    values: tuple[Any, ...]
    label: str

    def text(self, value: Any) -> str:
        return f"{self.label}={value_text(value)}"


def parse_axes(texts: Sequence[str]) -> list[Axis]:
    """Axes from strings "path=v1,v2,..."; the values are read as the items of a YAML list.

    So instances={prefill: 1, decode: 3},{prefill: 3, decode: 1} has two. Raises ConfigError.
    """
    parsed: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        path, _, listed = text.partition("=")
        path = path.strip()
        if not path or not listed.strip():
            raise ConfigError(f"--sweep {text} does not say what to sweep; write path=value,value")
        values = tuple(parse_yaml(f"[{listed}]", f"--sweep {text}"))
        twice = [value for number, value in enumerate(values) if value in values[:number]]
        if twice:
            raise ConfigError(f"--sweep {text} has {value_text(twice[0])} twice; name every value once")
        if path in parsed:
            raise ConfigError(f"--sweep {path} is given twice; put all its values into one")
        parsed[path] = values
    return [Axis(path, values, _label(path, list(parsed))) for path, values in parsed.items()]


def combinations(axes: Sequence[Axis]) -> list[tuple[Any, ...]]:
    """Every combination, a value per axis; the last axis changes fastest. One empty combination without axes."""
    return list(product(*(axis.values for axis in axes)))


def value_text(value: Any) -> str:
    """A value as it would be written, on one line."""
    return value if isinstance(value, str) else json.dumps(value, default=repr).replace('"', "")


def _label(path: str, paths: Sequence[str]) -> str:
    steps = path.split(".")
    for count in range(1, len(steps)):
        label = ".".join(steps[-count:])
        if sum(other == label or other.endswith("." + label) for other in paths) == 1:
            return label
    return path
