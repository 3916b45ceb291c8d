"""What instances run on: one kind for all, or another per role."""

from dataclasses import dataclass, field

from cluster.errors import ConfigError
from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from metrics.run import RunningCost


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleHardware:
    """What the instances that start in one role have instead of the scenario's hardware; None keeps that."""

    gpu: GpuSpec | None = None
    gpu_link: LinkSpec | None = None
    tp: int | None = None
    pp: int | None = None
    power_cap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareByRole:
    """Keys are roles."""

    prefill: RoleHardware = field(default_factory=RoleHardware)
    decode: RoleHardware = field(default_factory=RoleHardware)
    mixed: RoleHardware = field(default_factory=RoleHardware)

    def __post_init__(self) -> None:
        for role in ("prefill", "decode", "mixed"):
            check_hardware(f"hardware.{role}.", getattr(self, role))


@dataclass(frozen=True, slots=True)
class Hardware:
    """What one instance runs on: tp x pp GPUs."""

    gpu: GpuSpec
    gpu_link: LinkSpec
    tp: int
    pp: int
    power_cap: float

    @property
    def num_gpus(self) -> int:
        return self.tp * self.pp

    def running_cost(self) -> RunningCost:
        """Price and power of the instance; a power cap limits what its GPUs draw."""
        gpu = self.gpu
        watts = self.num_gpus * gpu.power_w
        return RunningCost(
            usd_per_hour=self.num_gpus * gpu.price_per_hour,
            prefill_w=watts * self.power_cap,
            decode_w=watts * min(gpu.decode_power, self.power_cap),
            idle_w=watts * min(gpu.idle_power, self.power_cap),
        )


def check_hardware(prefix: str, hardware: RoleHardware) -> None:
    """Raise ConfigError, naming the field after `prefix`, for a degree below 1 or a cap outside (0, 1]."""
    for name in ("tp", "pp"):
        degree = getattr(hardware, name)
        if degree is not None and degree < 1:
            raise ConfigError(f"{prefix}{name} is {degree}; it must be at least 1")
    cap = hardware.power_cap
    if cap is not None and not 0 < cap <= 1:
        raise ConfigError(f"{prefix}power_cap is {cap}; it is a share of the board power limit, in (0, 1]")
