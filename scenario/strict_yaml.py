"""YAML as people mean it: data only, no key twice, and the scalars of YAML 1.2.

YAML 1.1, which PyYAML reads, takes 1e-6 for text, `no` for false, 010 for eight and 1:30 for ninety.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import ConfigError

_SCALARS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
)
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - filled below, as PyYAML does
    yaml_constructors = {  # noqa: RUF012
        tag: constructor
        for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.removeprefix(_TAG) in ("null", "bool", "float", "str", "seq", "map")
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value} is given twice", problem_mark=key.start_mark)
                seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


class _Dumper(yaml.SafeDumper):
    """Quotes text that either version of YAML would take for something else."""


for _name, _pattern, _first in _SCALARS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), _first)
_Loader.add_constructor(_TAG + "int", lambda loader, node: int(loader.construct_scalar(node)))


def parse_yaml(text: str, where: str) -> Any:
    """Data of one document; ConfigError starts with `where` and, in a text of several lines, the line."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader that knows even fewer tags
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark and "\n" in text else ""
        raise ConfigError(f"{where}{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not YAML: {str(error).splitlines()[0]}") from None


def read_mapping(file: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    data = parse_yaml(text, str(file))
    if not isinstance(data, dict):
        raise ConfigError(f"{file} holds no mapping of keys to values at its top level")
    return data


def dump_yaml(data: Any) -> str:
    """Text that `parse_yaml`, and any YAML 1.1 reader, takes for the same data; keys stay in order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
