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
    """Board power limit (TDP); compute-bound steps draw it."""
    decode_power: float = 0.6
    """Share of it that memory-bound decode steps draw (Splitwise measured 0.43 to 0.73 on DGX-A100)."""
    idle_power: float = 0.15
    """Share of it that an idle GPU draws."""
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
        for field in ("compute_efficiency", "memory_efficiency", "usable_memory", "decode_power"):
            if not 0 < getattr(self, field) <= 1:
                raise ConfigError(f"gpu {self.name}: {field} is {getattr(self, field)}; it must be in (0, 1]")
        for field in ("price_per_hour", "power_w", "idle_power", "step_overhead_s"):
            if not getattr(self, field) >= 0:
                raise ConfigError(f"gpu {self.name}: {field} is {getattr(self, field)}; it must not be negative")


def capped_compute(power_cap: float) -> float:
    """Share of peak compute left under a power cap, itself a share of the board power limit.

    Splitwise (ISCA 2024) models prefill as 1.3 times slower at a cap of 70 %, and decode as unchanged: it is
    bound by memory, whose bandwidth a cap leaves alone. A power law through that point.
    """
    return float(power_cap**0.7356)
