"""What requests arrive: a trace file, or phases of synthetic arrivals."""

from dataclasses import dataclass, field
from math import inf

from cluster.errors import ConfigError

ARRIVALS = ("poisson", "gamma", "constant")
LENGTHS = ("lognormal", "fixed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A distribution of token counts, given by its mean.

    lognormal: `sigma` is the standard deviation of the logarithm; draws are rounded, at least 1 and at
    most `maximum`. fixed: every draw is the mean.
    """

    mean: float
    kind: str = "lognormal"
    sigma: float = 0.6
    maximum: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in LENGTHS:
            raise ConfigError(f"lengths kind is {self.kind!r}; use one of {', '.join(LENGTHS)}")
        if not 1 <= self.mean < inf:
            raise ConfigError(f"lengths mean is {self.mean}; it must be a finite number of at least 1 token")
        if not 0 <= self.sigma < inf:
            raise ConfigError(f"lengths sigma is {self.sigma}; it must be a finite number and not negative")
        if self.maximum is not None and self.maximum < 1:
            raise ConfigError(f"lengths maximum is {self.maximum}; it must be at least 1 token")


MAX_REQUESTS = 50_000_000
"""Of a phase: more would not fit into memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of time with one kind of traffic."""

    name: str = "steady"
    duration_s: float
    request_rate: float
    """Mean arrivals per second; may be far below 1."""
    prompt: Lengths
    output: Lengths
    arrivals: str = "poisson"
    """poisson, gamma (with `burstiness`) or constant."""
    burstiness: float = 1.0
    """Shape of the gamma distribution of gaps: 1 is Poisson, below 1 burstier, above 1 more even."""

    def __post_init__(self) -> None:
        if self.arrivals not in ARRIVALS:
            raise ConfigError(f"phase {self.name}: arrivals is {self.arrivals!r}; use one of {', '.join(ARRIVALS)}")
        for name in ("duration_s", "burstiness"):
            if not 0 < getattr(self, name) < inf:
                raise ConfigError(
                    f"phase {self.name}: {name} is {getattr(self, name)}; it must be a finite number above 0"
                )
        if not 0 <= self.request_rate < inf:
            raise ConfigError(
                f"phase {self.name}: request_rate is {self.request_rate}; it must be a finite number and not negative"
            )
        if self.request_rate * self.duration_s > MAX_REQUESTS:
            raise ConfigError(
                f"phase {self.name}: {self.request_rate:g} requests/s for {self.duration_s:g} s are more than "
                f"{MAX_REQUESTS:,}; lower request_rate or duration_s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """Either `trace` or `phases`. The other fields select from or rescale what they give."""

    trace: str | None = None
    """Path of a trace file; relative paths are taken from the scenario file's folder."""
    trace_format: str | None = None
    """Force a format instead of detecting it."""
    trace_unit: str | None = None
    """Force the unit of numeric timestamps: s or ms."""
    skip_invalid: bool = False
    """Leave out and count rows of the trace that cannot be used, instead of refusing the file."""
    phases: list[Phase] = field(default_factory=list)
    start_s: float | None = None
    end_s: float | None = None
    """Keep arrivals in [start_s, end_s), then count from start_s."""
    num_requests: int | None = None
    """Keep the first so many."""
    resample: int | None = None
    """Draw so many requests from the trace, with replacement, and send them as Poisson arrivals."""
    max_total_tokens: int | None = None
    """Draw only from requests with at most so many tokens, prompt plus output (with `resample`)."""
    request_rate: float | None = None
    """Rescale the gaps between arrivals to this mean rate."""
    on_too_long: str = "reject"
    """What to do with requests longer than the context or the KV pool: reject, truncate or error."""

    def __post_init__(self) -> None:
        if self.on_too_long not in ("reject", "truncate", "error"):
            raise ConfigError(f"workload.on_too_long is {self.on_too_long!r}; use reject, truncate or error")
        if self.trace_unit not in (None, "s", "ms"):
            raise ConfigError(f"workload.trace_unit is {self.trace_unit!r}; use s or ms")
        if self.trace is not None and self.phases:
            raise ConfigError("workload has both a trace and phases; keep one of them")
        for name, needed in (
            ("trace_format", "trace"),
            ("trace_unit", "trace"),
            ("skip_invalid", "trace"),
            ("resample", "trace"),
            ("max_total_tokens", "resample"),
        ):
            if getattr(self, name) and getattr(self, needed) is None:
                raise ConfigError(f"workload.{name} has no effect without workload.{needed}; leave it out")
        for name in ("num_requests", "resample", "max_total_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"workload.{name} is {value}; it must be at least 1")
        if self.request_rate is not None and not 0 < self.request_rate < inf:
            raise ConfigError(f"workload.request_rate is {self.request_rate}; it must be a finite number above 0")
        if self.start_s is not None and self.end_s is not None and not self.start_s < self.end_s:
            raise ConfigError(f"workload.start_s {self.start_s} is not before workload.end_s {self.end_s}")
