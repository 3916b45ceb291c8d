"""The trace formats Baton reads, as a table, and how a file's columns tell them apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches

from cluster.errors import ConfigError, TraceError


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """Which columns (CSV) or keys (JSON Lines) hold what."""

    name: str
    container: str
    """csv or jsonl."""
    arrival: str
    prompt: str
    output: str
    unit: str | None
    """Of the arrival times: wall time, s, ms, or None to tell from the values."""
    markers: tuple[str, ...] = ()
    """Keys of which one must be there, where the three above are those of another format too."""
    hashes: str | None = None
    block_size: int | None = None
    """Tokens per entry of `hashes`."""
    zero_output: str = ""
    """What a row with 0 output tokens stands for, if anything."""

    @property
    def columns(self) -> tuple[str, str, str]:
        """Arrival, prompt and output."""
        return self.arrival, self.prompt, self.output

    def matches(self, columns: Sequence[str]) -> bool:
        """A CSV needs all three columns; of JSON keys, which any one row may lack, a length is enough."""
        if self.container == "csv":
            return set(self.columns) <= set(columns)
        return (self.prompt in columns or self.output in columns) and (
            not self.markers or any(marker in columns for marker in self.markers)
        )


FORMATS = {
    each.name: each
    for each in (
        TraceFormat(
            name="azure",
            container="csv",
            arrival="TIMESTAMP",
            prompt="ContextTokens",
            output="GeneratedTokens",
            unit="wall time",
        ),
        TraceFormat(
            name="burstgpt",
            container="csv",
            arrival="Timestamp",
            prompt="Request tokens",
            output="Response tokens",
            unit="s",
            zero_output="a failed request",
        ),
        TraceFormat(
            name="vidur",
            container="csv",
            arrival="arrived_at",
            prompt="num_prefill_tokens",
            output="num_decode_tokens",
            unit="s",
        ),
        TraceFormat(
            name="splitwise",
            container="csv",
            arrival="arrival_timestamp",
            prompt="prompt_size",
            output="token_size",
            unit="s",
        ),
        TraceFormat(
            name="bailian",
            container="jsonl",
            arrival="timestamp",
            prompt="input_length",
            output="output_length",
            unit="s",
            markers=("chat_id", "parent_chat_id", "turn"),
            hashes="hash_ids",
            block_size=16,
        ),
        TraceFormat(
            name="mooncake",
            container="jsonl",
            arrival="timestamp",
            prompt="input_length",
            output="output_length",
            unit=None,
            hashes="hash_ids",
            block_size=512,
        ),
    )
}
"""By name; where two match, the first is taken."""


def named_format(name: str) -> TraceFormat:
    """The format called `name`; raises ConfigError with the nearest known name."""
    if name in FORMATS:
        return FORMATS[name]
    nearest = get_close_matches(name, FORMATS, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else "leave it out to detect the format"
    raise ConfigError(f"trace_format is {name!r}; use one of {', '.join(FORMATS)} ({hint})")


def detect_format(path: str, container: str, columns: Sequence[str]) -> TraceFormat:
    """The format whose columns these are; raises TraceError naming what was seen, known and nearest."""
    for known in FORMATS.values():
        if known.container == container and known.matches(columns):
            return known
    # Reversed, so that of formats with the same columns the one without markers is named.
    nearest = max(reversed(FORMATS.values()), key=lambda each: sum(_likeness(name, columns) for name in each.columns))
    missing = [name for name in nearest.columns if name not in columns]
    if not missing:
        raise TraceError(
            f"{path}: columns {_listed(columns)} are those of {nearest.name}, which is {nearest.container} "
            f"and not {container}; convert the file"
        )
    table = "; ".join(f"{known.name}: {', '.join(known.columns)}" for known in FORMATS.values())
    renamed = [_renamed(name, columns) for name in missing]
    hint = "rename the columns to those of one of them"
    if renamed != list(nearest.columns):
        hint = f"nearest is {nearest.name}, which lacks {', '.join(renamed)}"
    raise TraceError(f"{path}: columns {_listed(columns)} match no known trace format ({table}); {hint}")


def check_columns(path: str, forced: TraceFormat, container: str, columns: Sequence[str]) -> None:
    """Raise TraceError when the file cannot be of the format the user asked for."""
    if forced.container != container:
        raise TraceError(f"{path}: trace_format {forced.name} is a {forced.container} file, this is {container}")
    missing = [name for name in forced.columns if name not in columns]
    if missing and container == "csv":
        raise TraceError(
            f"{path}: trace_format {forced.name} needs column {', '.join(missing)}, "
            f"but the file has {_listed(columns)}; leave trace_format out to detect it"
        )


def _likeness(name: str, columns: Sequence[str]) -> float:
    return max((SequenceMatcher(None, name.lower(), column.lower()).ratio() for column in columns), default=0.0)


def _renamed(name: str, columns: Sequence[str]) -> str:
    lowered = {column.lower(): column for column in columns}
    nearest = get_close_matches(name.lower(), lowered, n=1)
    return f"{name} (is it {lowered[nearest[0]]!r}?)" if nearest else name


def _listed(columns: Sequence[str], limit: int = 12) -> str:
    shown = ", ".join(repr(column[:40]) for column in columns[:limit])
    return f"{shown} and {len(columns) - limit} more" if len(columns) > limit else shown or "(none)"
