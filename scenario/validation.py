"""Plain data into frozen dataclasses: strict about keys and types, and one sentence for what is wrong."""

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from cluster.errors import ConfigError
from cluster.suggestion import did_you_mean

T = TypeVar("T")

_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "a mapping",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_type": "an integer",
    "list_type": "a list",
    "string_type": "text",
}


def validate(kind: type[T], data: object, where: str) -> T:
    """Build a `kind` from nested mappings, lists and scalars.

    An unknown key, a missing one, or a value of the wrong type is a ConfigError that starts with `where`
    and names the dotted path. 4.0 is good for an integer; true and "4" are not.
    """
    # JSON, because in strict mode pydantic takes a mapping for a dataclass from JSON only.
    try:
        text = json.dumps([_integral(data)])
    except (TypeError, ValueError, RecursionError):
        raise ConfigError(f"{where} holds something other than mappings, lists and plain values") from None
    try:
        built: list[T] = _adapter(kind).validate_json(text)  # type: ignore[arg-type]
    except ValidationError as error:
        raise ConfigError(f"{where}: {_sentence(kind, error)}") from None
    return built[0]


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    # A list of one, because pydantic takes no configuration for a dataclass itself but hands a list's down.
    return TypeAdapter(list[kind], config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))  # type: ignore[valid-type]


def _integral(data: object) -> object:
    if isinstance(data, dict):
        return {key: _integral(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_integral(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def _sentence(kind: type, error: ValidationError) -> str:
    # A mistyped key is unknown and leaves another one missing: the typing mistake comes first.
    details = sorted(error.errors(), key=lambda one: one["type"] != "unexpected_keyword_argument")
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return _describe(kind, details[0]) + more


def _describe(kind: type, detail: ErrorDetails) -> str:
    location = detail["loc"][1:]
    path = ".".join(map(str, location))
    match detail["type"]:
        case "unexpected_keyword_argument":
            return f"{path} is not a known key; {did_you_mean(str(location[-1]), _keys(kind, location[:-1]))}"
        case "missing":
            return f"{path} is missing"
        case "value_error":
            message = str(detail["ctx"]["error"])
            return message if message.startswith(path) else f"{path}: {message}"
        case error_type:
            value = json.dumps(detail["input"])
            value = value if len(value) <= 60 else f"{value[:57]}..."
            return f"{path or 'the whole'} is {value}, expected {_EXPECTED.get(error_type, detail['msg'])}"


def _keys(kind: Any, location: Sequence[str | int]) -> list[str]:
    for step in location:
        kind = get_args(kind)[0] if isinstance(step, int) else get_type_hints(kind)[step]
        if get_origin(kind) is UnionType:
            kind = next(one for one in get_args(kind) if one is not type(None))
    return [field.name for field in fields(kind)]
