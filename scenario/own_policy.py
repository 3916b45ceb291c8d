"""A planner policy of the user's own: `FILE.py:FUNCTION` in place of a name."""

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError
from cluster.suggestion import did_you_mean

SEPARATOR = ".py:"


def is_own(policy: str) -> bool:
    return SEPARATOR in policy


def split_own(policy: str) -> tuple[str, str]:
    """File and function."""
    file, _, function = policy.rpartition(":")
    return file, function


@cache
def load_own(policy: str) -> Callable[..., Any]:
    """The function. Its first memory is None (see planner.planner.Policy).

    Raises ConfigError when there is no such file or function in it, or the file does not run.
    """
    file, name = split_own(policy)
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"planner.policy is {policy!r}, and there is no file {path}; write FILE.py:FUNCTION")
    module_name = f"own_policy_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"planner.policy: {path} does not run: {type(error).__name__}: {error}") from error
    functions = [key for key, value in vars(module).items() if callable(value) and value.__module__ == module_name]
    if name not in functions:
        raise ConfigError(f"planner.policy: {path} has no function {name!r}; {did_you_mean(name, functions)}")
    function: Callable[..., Any] = getattr(module, name)
    return function
