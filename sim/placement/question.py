"""What a plan is asked for: a workload and its SLOs, the hardware there is, and what is scarce."""

from dataclasses import dataclass, field

from cluster.errors import ConfigError
from scenario.spec import Scenario
from sim.placement.machine import GpuPool, Machine
from sim.sustain import Sampling

OBJECTIVES = ("gpus", "usd", "watts", "rate")
KINDS = ("colocated", "disaggregated")
"""Of plans: prefill and decode on the same instances, or on different ones (in two pools or on the same nodes)."""
CHUNK_BUDGETS = (256, 512, 1024, 2048)
TOKEN_POWER_CAP = 0.7
"""Of Splitwise's HHcap design: decode needs no more (section IV-G)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`scenario` gives model, engine, link between nodes, workload and SLOs; what it runs on is up to the plan.

    objective: fewest GPUs, dollars or watts at `request_rate`, or the highest rate within the limits.
    """

    scenario: Scenario
    pools: tuple[GpuPool, ...]
    gpus_per_node: int = 8
    objective: str = "gpus"
    request_rate: float | None = None
    """Requests/s to serve; None with the objective `rate`."""
    headroom: float = 0.05
    """How much more than that a plan must hold: close to the most it can, chance decides which seeds it holds."""
    kinds: tuple[str, ...] = KINDS
    """Kinds of plans to search."""
    max_usd_per_hour: float | None = None
    max_watts: float | None = None
    """Of all GPUs, by board power limit and cap."""
    budgets: tuple[int, ...] = CHUNK_BUDGETS
    """Token budgets to try for chunked prefill."""
    sampling: Sampling = field(default_factory=lambda: Sampling(500, 2000))
    relative_tolerance: float = 0.02

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ConfigError(f"objective is {self.objective!r}; use one of {', '.join(OBJECTIVES)}")
        if (self.objective == "rate") != (self.request_rate is None):
            raise ConfigError("give a request rate to serve, or the objective rate to find the highest; not both")
        if self.request_rate is not None and not self.request_rate > 0:
            raise ConfigError(f"request_rate is {self.request_rate:g}; it must be above 0")
        if not 0 <= self.headroom < 10:
            raise ConfigError(f"headroom is {self.headroom:g}; it must be a share of the rate, like 0.05 for 5 % more")
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise ConfigError(f"kinds of plans are {', '.join(unknown) or 'none'}; use one of {', '.join(KINDS)}")
        if not self.pools:
            raise ConfigError("there is no GPU to plan with; name some, like h100-sxm:16")
        if self.gpus_per_node < 1:
            raise ConfigError(f"gpus_per_node is {self.gpus_per_node}; it must be at least 1")
        names = [pool.gpu.name for pool in self.pools]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ConfigError(f"gpu {twice[0]} is given twice; give its whole number once")
        for limit in ("max_usd_per_hour", "max_watts"):
            value = getattr(self, limit)
            if value is not None and not value > 0:
                raise ConfigError(f"{limit} is {value:g}; it must be above 0")
        for pool in self.pools:
            needs = {"price_per_hour": self.counts_usd, "power_w": self.counts_watts}
            for name, is_needed in needs.items():
                if is_needed and not getattr(pool.gpu, name):
                    raise ConfigError(
                        f"gpu {pool.gpu.name} has no {name}, which this objective or limit counts; set it in its file"
                    )

    @property
    def sized_for(self) -> float | None:
        """Requests/s that a plan must hold: with the headroom."""
        return None if self.request_rate is None else self.request_rate * (1 + self.headroom)

    def load_of(self, held: float) -> float:
        """Requests/s to give to a plan that held so many: the rest is headroom."""
        return held / (1 + self.headroom)

    @property
    def counts_usd(self) -> bool:
        return self.objective == "usd" or self.max_usd_per_hour is not None

    @property
    def counts_watts(self) -> bool:
        return self.objective == "watts" or self.max_watts is not None

    def cost(self, machine: Machine) -> float:
        """What the objective counts; for the highest rate, what limits it."""
        if self.objective == "usd" or (self.objective == "rate" and self.max_usd_per_hour is not None):
            return machine.usd_per_hour
        if self.objective == "watts" or (self.objective == "rate" and self.max_watts is not None):
            return machine.watts
        return float(machine.num_gpus)

    def decode_caps(self) -> tuple[float, ...]:
        """Power caps to try for decode machines: none where nobody counts watts."""
        return (1.0, TOKEN_POWER_CAP) if self.counts_watts else (1.0,)
