"""From raw fields to numbers, a column at a time, and why a field that cannot be used cannot."""

import re
import warnings
from collections.abc import Sequence
from math import floor, isfinite, isnan, nan
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from workload.trace import MAX_TOKENS, FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]

NOT_A_TIME = np.iinfo(np.int64).min
"""What `wall_times` gives for a field that is no time; numpy's NaT."""

# numpy counts nanoseconds in 64 bits, which hold the years 1678 to 2261; older than Unix time is a typing error.
FIRST_YEAR, LAST_YEAR = "1970", "2261"
_WALL = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?) ?(?:Z|([+-])(\d\d):?(\d\d))?")
_SHORTEST_WALL = len("2023-11-16 18:15:46")


class Fault(NamedTuple):
    """Why a row cannot be used: a reason to count by, and a sentence about this row."""

    reason: str
    detail: str


def numbers(values: Sequence[object]) -> FloatArray:
    """One float per field; nan where it is not a number."""
    kinds = set(map(type, values))
    if kinds <= {int, float}:
        return np.array(values, dtype=np.float64)
    if kinds == {str}:
        try:
            return np.fromiter(map(float, cast(Sequence[str], values)), np.float64, len(values))
        except ValueError:
            pass
    return np.array([_number(value) for value in values], dtype=np.float64)


def is_length(values: FloatArray, minimum: int) -> BoolArray:
    """Which are whole numbers from `minimum` to MAX_TOKENS."""
    good: BoolArray = (values >= minimum) & (values <= MAX_TOKENS) & (values == np.floor(values))
    return good


def wall_times(values: Sequence[str]) -> IntArray:
    """Nanoseconds since 1970 of `YYYY-MM-DD HH:MM:SS[.fraction][offset]`; without an offset it is UTC.

    Nine digits of the fraction count. NOT_A_TIME where the field is something else.
    """
    plain = [value.removesuffix("+00:00") for value in values]
    if min(map(len, plain), default=0) >= _SHORTEST_WALL and min(plain) >= FIRST_YEAR and max(plain) < LAST_YEAR:
        # numpy is ten times faster than a loop, and warns about other offsets, which it does not keep.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                return np.array(plain, dtype="datetime64[ns]").astype(np.int64)
            except (ValueError, Warning):
                pass
    return np.array([_wall_time(value) for value in values], dtype=np.int64)


def explain_length(column: str, value: object, minimum: int) -> Fault | None:
    """Why `value` is no length in tokens; None when it is."""
    fault = _explain_number(column, value, minimum)
    if fault is not None:
        return fault
    number = _number(value)
    if number != floor(number):
        return Fault(f"{column} not whole", f"{column} is {_shown(value)}, not a whole number of tokens")
    if number > MAX_TOKENS:
        return Fault(f"{column} too large", f"{column} is {_shown(value)}, more than {MAX_TOKENS:,} tokens")
    return None


def explain_time_number(column: str, value: object) -> Fault | None:
    """Why `value` is no time as a number of seconds or milliseconds; None when it is."""
    return _explain_number(column, value, 0)


def explain_wall_time(column: str, value: object) -> Fault | None:
    """Why `value` is no wall time; None when it is."""
    if _is_missing(value):
        return Fault(f"{column} missing", f"{column} is missing")
    if isinstance(value, str) and _wall_time(value) != NOT_A_TIME:
        return None
    return Fault(f"{column} not a time", f"{column} is {_shown(value)!r}, not a time like 2023-11-16 18:15:46.680590")


def explain_hashes(column: str, value: object, prompt_tokens: int, block_size: int) -> Fault | None:
    """Why `value` is no list of block ids of a prompt; None when it is."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        return Fault(f"{column} not a list", f"{column} is not a list of whole numbers")
    expected = -(-prompt_tokens // block_size)
    if len(value) == expected:
        return None
    return Fault(
        f"{column} count wrong",
        f"{column} has {len(value)} entries, but {prompt_tokens} prompt tokens in blocks of {block_size} "
        f"make {expected}",
    )


def _explain_number(column: str, value: object, minimum: int) -> Fault | None:
    if _is_missing(value):
        return Fault(f"{column} missing", f"{column} is missing")
    number = _number(value)
    if isnan(number) and _shown(value).strip().lower().lstrip("+-") != "nan":
        return Fault(f"{column} not a number", f"{column} is {_shown(value)!r}, not a number")
    if not isfinite(number):
        return Fault(f"{column} not finite", f"{column} is {_shown(value)}, not a finite number")
    if number < minimum:
        return Fault(f"{column} below {minimum}", f"{column} is {_shown(value)}; it must be at least {minimum}")
    return None


def _shown(value: object) -> str:
    return str(value)[:40]


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return nan


def _wall_time(value: str) -> int:
    match = _WALL.fullmatch(value.strip())
    if match is None or not FIRST_YEAR <= match[1] < LAST_YEAR:
        return NOT_A_TIME
    try:
        local = int(np.datetime64(match[1], "ns").astype(np.int64))
    except ValueError:
        return NOT_A_TIME
    if match[2] is None:
        return local
    offset_s = int(match[3]) * 3600 + int(match[4]) * 60
    return local - int(match[2] + "1") * offset_s * 1_000_000_000
