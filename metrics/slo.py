"""Latency targets, and which requests meet them."""

from dataclasses import dataclass

from cluster.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SloSpec:
    """Latency targets in milliseconds; None is no target. A request is good when it meets every one."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    attainment: float = 0.90
    """Share of requests that must be good for a rate to count as sustained."""

    def __post_init__(self) -> None:
        for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"slo.{name} is {value}; it must be above 0")
        if not 0 < self.attainment <= 1:
            raise ConfigError(f"slo.attainment is {self.attainment}; it must be in (0, 1]")
