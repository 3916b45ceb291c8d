"""What joins GPUs: latency and bandwidth of one direction of a link."""

from dataclasses import dataclass

from cluster.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """An alpha-beta link: time = alpha + bytes / (efficiency x nominal bandwidth)."""

    name: str
    bandwidth_bytes_s: float
    """Nominal, one way."""
    alpha_s: float
    """Latency of one message."""
    efficiency: float = 0.80

    def __post_init__(self) -> None:
        if not self.bandwidth_bytes_s > 0:
            raise ConfigError(f"link {self.name}: bandwidth_bytes_s is {self.bandwidth_bytes_s}; it must be above 0")
        if not self.alpha_s >= 0:
            raise ConfigError(f"link {self.name}: alpha_s is {self.alpha_s}; it must not be negative")
        if not 0 < self.efficiency <= 1:
            raise ConfigError(f"link {self.name}: efficiency is {self.efficiency}; it must be in (0, 1]")

    @property
    def effective_bytes_s(self) -> float:
        return self.efficiency * self.bandwidth_bytes_s

    def transfer_s(self, num_bytes: float) -> float:
        """Seconds for one message on an otherwise idle link."""
        return self.alpha_s + num_bytes / self.effective_bytes_s
