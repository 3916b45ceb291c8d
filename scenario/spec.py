"""A scenario: everything a run depends on, as frozen data. YAML files mirror these fields one to one."""

from dataclasses import dataclass, field

from cluster.errors import ConfigError
from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from cluster.model import ModelSpec
from cluster.role import Role
from cluster.router import POLICIES as ROUTER_POLICIES
from cluster.scheduling import EngineConfig
from cluster.suggestion import did_you_mean
from metrics.slo import SloSpec
from planner.config import PlannerConfig
from planner.planner import POLICIES as PLANNER_POLICIES
from scenario.hardware import Hardware, HardwareByRole, RoleHardware, check_hardware
from scenario.own_policy import is_own, load_own
from workload.spec import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceCounts:
    """How many instances start in each role: xPyD is prefill x, decode y."""

    prefill: int = 0
    decode: int = 0
    mixed: int = 0

    def __post_init__(self) -> None:
        for name in ("prefill", "decode", "mixed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"instances.{name} is {getattr(self, name)}; it must not be negative")
        if not self.total:
            raise ConfigError("instances are all 0; start at least one mixed, or one prefill and one decode")
        if not self.mixed and not (self.prefill and self.decode):
            raise ConfigError(
                f"instances {self.prefill}P{self.decode}D cannot serve a request; start at least one of each role"
            )
        if self.prefill and not self.decode:
            raise ConfigError("instances.decode is 0 while prefill instances need somewhere to send their KV")

    @property
    def total(self) -> int:
        return self.prefill + self.decode + self.mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffConfig:
    """How KV travels from prefill to decode."""

    initiative: str = "pull"
    """pull: room at decode is asked for when the prompt is computed, and KV waits at prefill until there is some.
    push: room is asked for when the prompt's step starts, so that KV can leave as soon as it is computed."""
    mode: str = "serial"
    """serial: all layers after the prefill step. layerwise: each layer as it is computed, so that only the last
    one, and what the link could not keep up with, is left at the end; it needs push."""

    def __post_init__(self) -> None:
        if self.initiative not in ("pull", "push"):
            raise ConfigError(f"handoff.initiative is {self.initiative!r}; use pull or push")
        if self.mode not in ("serial", "layerwise"):
            raise ConfigError(f"handoff.mode is {self.mode!r}; use serial or layerwise")
        if (self.initiative, self.mode) == ("pull", "layerwise"):
            raise ConfigError(
                "handoff.mode layerwise needs room at decode before the prefill: set handoff.initiative to push"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """Names of policies in cluster.router.POLICIES."""

    prefill_policy: str = "jsq"
    decode_policy: str = "jsq"
    pairs: bool = False
    """Choose prefill and decode instance together when a prompt arrives, as Splitwise does."""

    def __post_init__(self) -> None:
        for name in ("prefill_policy", "decode_policy"):
            if getattr(self, name) not in ROUTER_POLICIES:
                raise ConfigError(
                    f"router.{name} is {getattr(self, name)!r}; {did_you_mean(getattr(self, name), ROUTER_POLICIES)}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig:
    """What only `replay` reads."""

    time_scale: float = 1.0
    """Wall seconds per scenario second: 2 is twice as slow as real time."""
    compute: str = "none"
    """none: steps only take their modelled time, and KV is a pattern in the model's layout. tiny: a small transformer
    computes every chunk and token in the instances, its KV travels, and its tokens are checked at the end."""
    kv_bytes_scale: float = 0.01
    """Share of a prompt's tokens whose KV is really shipped, at least one token; 1.0 is the real size, 0 ships nothing."""
    kv_budget_bytes: int = 256 * 1024 * 1024
    """Most real KV bytes that a receiver lets into flight at once. A receiver's share of half the object store, if that
    is less, takes its place, so that Ray never spills."""
    kv_lease_s: float = 30.0
    """Wall seconds for which KV waits at prefill without a word from a decode instance that wants it."""
    kv_between_nodes: str = "object_store"
    """How real KV gets to another Ray node. object_store: with Ray's own means. tcp: over sockets, which is faster;
    every instance then listens on a free port of the address that Ray has for its node."""
    report_delay_s: float = 0.02
    """Wall seconds for which an instance gathers news before it reports to the router."""
    silence_timeout_s: float = 5.0
    """Wall seconds without a report after which an instance counts as hung, and is replaced."""
    metrics_port: int = 9400
    metrics_host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        if not self.time_scale > 0:
            raise ConfigError(f"live.time_scale is {self.time_scale}; it must be above 0")
        if not 0 <= self.kv_bytes_scale <= 1:
            raise ConfigError(f"live.kv_bytes_scale is {self.kv_bytes_scale}; it must be in [0, 1]")
        if self.compute not in ("none", "tiny"):
            raise ConfigError(f"live.compute is {self.compute!r}; use none or tiny")
        if self.kv_between_nodes not in ("object_store", "tcp"):
            raise ConfigError(f"live.kv_between_nodes is {self.kv_between_nodes!r}; use object_store or tcp")
        if not self.kv_lease_s >= 1:
            raise ConfigError(f"live.kv_lease_s is {self.kv_lease_s}; it must be at least 1")
        if not self.report_delay_s >= 0:
            raise ConfigError(f"live.report_delay_s is {self.report_delay_s}; it must not be negative")
        if not self.silence_timeout_s >= 1:
            raise ConfigError(f"live.silence_timeout_s is {self.silence_timeout_s}; it must be at least 1")
        if self.kv_budget_bytes < 1:
            raise ConfigError(f"live.kv_budget_bytes is {self.kv_budget_bytes}; it must be at least 1")
        if not 0 <= self.metrics_port < 65536:
            raise ConfigError(f"live.metrics_port is {self.metrics_port}; use 0 (any free port) to 65535")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One model on one kind of instance (tp x pp GPUs), a number of them in roles, and what they serve."""

    name: str
    model: ModelSpec
    gpu: GpuSpec
    gpu_link: LinkSpec
    """Between the GPUs of an instance."""
    link: LinkSpec
    """Between instances; carries KV handoffs."""
    instances: InstanceCounts
    workload: WorkloadSpec
    tp: int = 1
    pp: int = 1
    power_cap: float = 1.0
    """Share of the board power limit the GPUs may draw. It slows compute, not memory."""
    stage_link: LinkSpec | None = None
    """Between the stages of a pipeline, where each sits on a node of its own. None: `gpu_link`."""
    hardware: HardwareByRole = field(default_factory=HardwareByRole)
    """Where instances differ by the role they start in. A role change moves no hardware."""
    gpus_per_node: int | None = None
    """Instances fill nodes of so many GPUs in order; KV between two on one node takes `gpu_link`, else `link`.
    None: every instance has a node of its own."""
    handoff: HandoffConfig = field(default_factory=HandoffConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    router: RouterConfig = field(default_factory=RouterConfig)
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    slo: SloSpec = field(default_factory=SloSpec)
    live: LiveConfig = field(default_factory=LiveConfig)
    max_context: int | None = None
    """Longest prompt plus output served, in tokens. None: what the model was trained for."""
    sample_interval_s: float = 1.0
    """Spacing of the queue, batch and KV samples in the results."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_context is not None and self.max_context < 1:
            raise ConfigError(f"max_context is {self.max_context}; it must be at least 1 token")
        if not self.sample_interval_s >= 0.001:
            raise ConfigError(f"sample_interval_s is {self.sample_interval_s}; it must be at least 0.001")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; it must not be negative")
        check_hardware("", RoleHardware(tp=self.tp, pp=self.pp, power_cap=self.power_cap))
        if self.gpus_per_node is not None:
            largest = max(self.hardware_of(role).num_gpus for role in self.roles)
            if self.gpus_per_node < largest:
                raise ConfigError(
                    f"gpus_per_node is {self.gpus_per_node}, and an instance takes {largest} GPUs of one node"
                )
        _check_planner(self)

    def hardware_of(self, role: Role) -> Hardware:
        """What an instance that starts in `role` runs on."""
        own: RoleHardware = getattr(self.hardware, role)
        return Hardware(
            gpu=own.gpu or self.gpu,
            gpu_link=own.gpu_link or self.gpu_link,
            tp=own.tp or self.tp,
            pp=own.pp or self.pp,
            power_cap=own.power_cap or self.power_cap,
        )

    @property
    def roles(self) -> list[Role]:
        """The role each instance starts in: prefill first, then decode, then mixed."""
        counts = self.instances
        return [Role.PREFILL] * counts.prefill + [Role.DECODE] * counts.decode + [Role.MIXED] * counts.mixed

    @property
    def num_gpus(self) -> int:
        return sum(self.hardware_of(role).num_gpus for role in self.roles)


def _check_planner(scenario: Scenario) -> None:
    policy = scenario.planner.policy
    if is_own(policy):
        load_own(policy)
    elif policy not in PLANNER_POLICIES:
        raise ConfigError(f"planner.policy is {policy!r}; {did_you_mean(policy, PLANNER_POLICIES)}")
    if policy not in ("arrow", "conditional"):
        return
    if scenario.instances.mixed:
        raise ConfigError(
            f"planner.policy {policy} chooses between prefill and decode instances, and instances.mixed is "
            f"{scenario.instances.mixed}; make it 0"
        )
    if scenario.router.pairs:
        raise ConfigError(f"planner.policy {policy} has a way of its own to pair instances; set router.pairs to false")
    if policy == "arrow" and (scenario.slo.ttft_ms is None or scenario.slo.tpot_ms is None):
        raise ConfigError("planner.policy arrow goes by latency targets; set slo.ttft_ms and slo.tpot_ms")
