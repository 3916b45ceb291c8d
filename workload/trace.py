"""A trace: when requests arrive and how long they are, as arrays, with a note of where they came from."""

from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster.errors import ConfigError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_TOKENS = 1_000_000_000
"""Longest prompt or output a trace may hold, in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInfo:
    """Where a trace came from and what was noticed on the way."""

    source: str
    """Path of the file, or what generated the trace."""
    format: str
    unit: str
    """Of the arrival times in the source: wall time, s or ms."""
    num_rows: int
    """Rows read, good and rejected; blank lines are not rows."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Rows left out, counted by reason."""
    rejected_examples: tuple[str, ...] = ()
    """The first few of them, as path:line: what."""
    notices: tuple[str, ...] = ()
    """Sentences a user of the trace must not miss."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of arrival; entry i of every array is request i."""

    arrival_s: FloatArray
    """Seconds, sorted. Those of a file count from its first arrival."""
    prompt_tokens: IntArray
    """At least 1."""
    output_tokens: IntArray
    """At least 0: a request for 0 tokens ends without one."""
    info: TraceInfo
    prefix_hashes: list[tuple[int, ...]] | None = None
    """Ids of the blocks of each prompt, equal where prompts share a prefix; empty where a row has none.
    None when the source says nothing about prefixes."""
    prefix_block_size: int | None = None
    """Tokens per hashed block; the last block of a prompt may hold fewer."""

    def __post_init__(self) -> None:
        num_requests = len(self.arrival_s)
        assert num_requests == len(self.prompt_tokens) == len(self.output_tokens)
        assert self.prefix_hashes is None or len(self.prefix_hashes) == num_requests
        assert not np.any(self.arrival_s[1:] < self.arrival_s[:-1])

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def span_s(self) -> float:
        """First to last arrival; 0 with fewer than two requests."""
        return float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0

    @property
    def request_rate(self) -> float | None:
        """Mean arrivals per second, (n - 1) / span; None when the span is 0."""
        return (len(self) - 1) / self.span_s if self.span_s else None

    def window(self, start_s: float = 0.0, end_s: float = inf) -> "Trace":
        """The requests that arrive in [start_s, end_s), counted from `start_s`."""
        start, stop = np.searchsorted(self.arrival_s, (start_s, end_s))
        cut = self._slice(int(start), int(stop))
        return replace(cut, arrival_s=cut.arrival_s - start_s)

    def head(self, num_requests: int) -> "Trace":
        """The first `num_requests`, or all when there are fewer."""
        return self._slice(0, num_requests)

    def at_rate(self, request_rate: float) -> "Trace":
        """Stretch time so that the mean rate, (n - 1) / span, is `request_rate` per second.

        Raises ConfigError when all requests arrive at once, for then no stretching gives a rate.
        """
        if not 0 < request_rate < inf:
            raise ConfigError(f"request_rate is {request_rate}; it must be a finite number above 0")
        rate = self.request_rate
        if rate is None:
            raise ConfigError(
                f"request_rate {request_rate} cannot be reached by {self.info.source}: its {len(self)} request(s) "
                "arrive at one time; use a longer part of it"
            )
        return replace(self, arrival_s=self.arrival_s * (rate / request_rate))

    def describe(self) -> dict[str, Any]:
        """Plain data for people and JSON: source, rows, span, rate and lengths; null where there is no value."""
        return {
            "source": self.info.source,
            "format": self.info.format,
            "unit": self.info.unit,
            "num_rows": self.info.num_rows,
            "num_requests": len(self),
            "span_s": self.span_s,
            "request_rate": self.request_rate,
            "prompt_tokens": _summary(self.prompt_tokens),
            "output_tokens": _summary(self.output_tokens),
            "prefix_block_size": self.prefix_block_size,
            "num_rejected": sum(self.info.rejected.values()),
            "rejected": dict(self.info.rejected),
            "rejected_examples": list(self.info.rejected_examples),
            "notices": list(self.info.notices),
        }

    def _slice(self, start: int, stop: int) -> "Trace":
        return replace(
            self,
            arrival_s=self.arrival_s[start:stop],
            prompt_tokens=self.prompt_tokens[start:stop],
            output_tokens=self.output_tokens[start:stop],
            prefix_hashes=None if self.prefix_hashes is None else self.prefix_hashes[start:stop],
        )


def _summary(lengths: IntArray) -> dict[str, float | None]:
    if not len(lengths):
        return dict.fromkeys(("mean", "min", "p50", "p99", "max"))
    p50, p99 = np.percentile(lengths, (50, 99))
    return {
        "mean": float(lengths.mean()),
        "min": int(lengths.min()),
        "p50": float(p50),
        "p99": float(p99),
        "max": int(lengths.max()),
    }
