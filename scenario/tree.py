"""Nested mappings and lists addressed by dotted paths, such as workload.phases.0.request_rate."""

from collections.abc import Sequence
from typing import Any

from cluster.errors import ConfigError

_NOTHING = object()


def find(tree: dict[str, Any], path: str, default: Any = None) -> Any:
    """The value at `path`, or `default` where there is none."""
    node: Any = tree
    for step in path.split("."):
        if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
        elif isinstance(node, dict) and step in node:
            node = node[step]
        else:
            return default
    return node


def holds(tree: dict[str, Any], path: str) -> bool:
    """Whether there is a value, null included, at `path`."""
    return find(tree, path, _NOTHING) is not _NOTHING


def assign(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at `path`, adding mappings on the way; ConfigError when the path leads into no mapping or list."""
    node: Any = tree
    *parents, last = path.split(".")
    for step in parents:
        if isinstance(node, dict) and node.get(step) is None:
            node[step] = {}
        node = node[_key(node, step, path)]
    node[_key(node, last, path)] = value


def remove(tree: dict[str, Any], path: str) -> None:
    """Drop the value that `path` holds."""
    node: Any = tree
    *parents, last = path.split(".")
    for step in parents:
        node = node[_key(node, step, path)]
    del node[_key(node, last, path)]


def differences(trees: Sequence[dict[str, Any]]) -> list[str]:
    """Paths at which trees differ, as deep as mappings go, in the order of the first that has them."""
    keys = dict.fromkeys(key for tree in trees for key in tree)
    paths = []
    for key in keys:
        values = [tree.get(key, _NOTHING) for tree in trees]
        if all(isinstance(value, dict) for value in values):
            paths += [f"{key}.{path}" for path in differences(values)]
        elif any(value != values[0] for value in values):
            paths.append(key)
    return paths


def _key(node: Any, step: str, path: str) -> str | int:
    if isinstance(node, dict):
        return step
    if not isinstance(node, list):
        raise ConfigError(f"{path} looks for {step!r} in {node!r}, which is a single value")
    if not step.isdecimal() or int(step) >= len(node):
        raise ConfigError(f"{path} asks for item {step} of a list of {len(node)}; items count from 0")
    return int(step)
