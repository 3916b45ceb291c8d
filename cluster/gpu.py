"""What a GPU can do, and what a group of them holds."""

from dataclasses import dataclass

from cluster.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One accelerator. Efficiencies are the fraction of peak a real kernel reaches; overhead is per step."""

    name: str
    peak_flops: float
    """Dense bf16 FLOP/s."""
    bandwidth_bytes_s: float
    memory_bytes: float
    link: str
    """Name of the link between the GPUs of one node (used by tensor parallelism)."""
    price_per_hour: float = 0.0
    """US dollars."""
    power_w: float = 0.0
    """Board power limit (TDP)."""
    fp8_speedup: float = 1.0
    """Peak FLOP/s with fp8 weights over bf16; 1 where the chip has no fp8 units."""
    compute_efficiency: float = 0.70
    memory_efficiency: float = 0.80
    usable_memory: float = 0.90
    """Share of memory for weights and KV; the rest is activations and reserve."""
    step_overhead_s: float = 0.0005

    def __post_init__(self) -> None:
        for field in ("peak_flops", "bandwidth_bytes_s", "memory_bytes", "fp8_speedup"):
            if not getattr(self, field) > 0:
                raise ConfigError(f"gpu {self.name}: {field} is {getattr(self, field)}; it must be above 0")
        for field in ("compute_efficiency", "memory_efficiency", "usable_memory"):
            if not 0 < getattr(self, field) <= 1:
                raise ConfigError(f"gpu {self.name}: {field} is {getattr(self, field)}; it must be in (0, 1]")
        for field in ("price_per_hour", "power_w", "step_overhead_s"):
            if not getattr(self, field) >= 0:
                raise ConfigError(f"gpu {self.name}: {field} is {getattr(self, field)}; it must not be negative")
