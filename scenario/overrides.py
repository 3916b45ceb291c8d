"""Changes to a scenario from the outside, written path=value: engine.token_budget=256, model=opt-13b."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.errors import ConfigError
from scenario.strict_yaml import parse_yaml

Overrides = Mapping[str, Any] | Sequence[str]


@dataclass(frozen=True, slots=True)
class Override:
    """A value for one dotted path."""

    path: str
    value: Any

    def __str__(self) -> str:
        text = self.value if isinstance(self.value, str) else json.dumps(self.value, default=repr)
        return f"--set {self.path}={text}"

    def replaces(self, path: str) -> bool:
        """Whether it sets `path` or a section that holds it."""
        return path == self.path or path.startswith(self.path + ".")

    def touches(self, path: str) -> bool:
        """Whether it sets `path`, a section that holds it, or something in it."""
        return self.replaces(path) or self.path.startswith(path + ".")


def parse_overrides(overrides: Overrides) -> list[Override]:
    """Overrides in the order to apply them: whole sections before what is in them, else as given.

    From strings "path=value" the value is read as YAML, so 256 is a number and null unsets; a mapping of
    paths to values is taken as it is.
    """
    if isinstance(overrides, Mapping):
        parsed = [Override(path, value) for path, value in overrides.items()]
    else:
        parsed = [_parse(text) for text in overrides]
    return sorted(parsed, key=lambda override: override.path.count("."))


def _parse(text: str) -> Override:
    path, _, value = text.partition("=")
    path = path.strip()
    if not path or not value.strip():
        raise ConfigError(f"--set {text} does not say what to set; write path=value, or path=null to unset")
    return Override(path, parse_yaml(value, f"--set {text}"))
