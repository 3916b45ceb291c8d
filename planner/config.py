"""What the planner is told: which policy, how often, and the limits every policy keeps."""

from dataclasses import dataclass, field

from cluster.errors import ConfigError
from cluster.suggestion import did_you_mean
from planner.predictors import PREDICTORS


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadThresholds:
    """Thresholds of the `load` policy."""

    prefill_queue_high: float = 12_000
    """Queued prompt tokens per prefill instance above which prefill asks for an instance."""
    prefill_queue_low: float = 3_000
    """... below which prefill may give one up."""
    kv_use_high: float = 0.30
    """KV use of decode instances above which decode asks for an instance."""
    kv_use_low: float = 0.20
    """... and the use that decode must stay under after giving one up."""
    votes: int = 2
    """Ticks in a row that must agree before a change."""
    cooldown_s: float = 10.0
    """Least time between the end of one change and the next decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitwiseThresholds:
    """Thresholds of the `splitwise` policy."""

    prompt_queue_high: float = 8_192
    """Prompt tokens in the shortest queue above which a token machine is borrowed."""
    kv_use_high: float = 0.90
    """KV use of the emptiest token machine above which a prompt machine is borrowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookaheadSettings:
    """How far and how often the `lookahead` policy looks, and how sure it wants to be."""

    horizon_s: float = 12.0
    """How long a future is, after the time that a switch takes. The second look at the best is twice as long."""
    max_rollouts: int = 5
    """Futures tried at first, that of doing nothing included."""
    max_followed: int = 6_000
    """Requests followed per tick, over all futures: at about 30 us each, a tick takes less than 200 ms. Fewer futures
    are tried when each has many requests, and if need be they are shorter."""
    max_moves: int = 2
    """Instances moved at once."""
    margin: float = 0.02
    """A change must promise so much more good requests, as a share of all that were judged."""
    strain: float = 0.85
    """Share of what a role can carry from which on the future is worth a look."""
    cooldown_s: float = 2.0
    """Least time between the end of one change and the next decision."""

    def __post_init__(self) -> None:
        for name in ("horizon_s", "strain"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"planner.lookahead.{name} is {getattr(self, name)}; it must be above 0")
        for name in ("max_followed", "max_moves"):
            if getattr(self, name) < 1:
                raise ConfigError(f"planner.lookahead.{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_rollouts < 2:
            raise ConfigError(
                f"planner.lookahead.max_rollouts is {self.max_rollouts}; doing nothing and one change take 2"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorSettings:
    """How the `throughput` policies foresee demand."""

    name: str = "holt"
    """last, average, holt, arima or kalman."""
    interval_s: float = 5.0
    """Demand is summed up, and judged, once in so long."""
    window: int = 30
    """Intervals that a prediction looks back on."""
    steps_ahead: int = 1
    """How many intervals ahead it looks."""
    warm_start: str | None = None
    """A trace file that counts as having come before the run."""

    def __post_init__(self) -> None:
        if self.name not in PREDICTORS:
            raise ConfigError(f"planner.predictor.name is {self.name!r}; {did_you_mean(self.name, PREDICTORS)}")
        if not self.interval_s > 0:
            raise ConfigError(f"planner.predictor.interval_s is {self.interval_s}; it must be above 0")
        for name in ("window", "steps_ahead"):
            if getattr(self, name) < 1:
                raise ConfigError(f"planner.predictor.{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputSettings:
    """When the `throughput` policies act on what they compute."""

    margin: float = 0.1
    """A change must lower the load of the role that is worse off by more than this share."""
    cooldown_s: float = 10.0
    """Least time between the end of a change and the next."""
    warm_up_s: float = 5.0
    """`throughput_corrected` takes no sample of an instance for so long after it changed its role."""

    def __post_init__(self) -> None:
        if not 0 <= self.margin < 1:
            raise ConfigError(f"planner.throughput.margin is {self.margin}; it must be in [0, 1)")
        for name in ("cooldown_s", "warm_up_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"planner.throughput.{name} is {getattr(self, name)}; it must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanSettings:
    """When the `replan` policy searches for another split, and how long it tries each."""

    drift: float = 0.5
    """Change of the rate, mean ISL or mean OSL against what the split was planned for that calls for a search: 1 is
    doubling or halving."""
    min_requests: int = 50
    """Requests that demand is judged by at least."""
    min_interval_s: float = 20.0
    """Least time between two searches."""
    num_requests: int = 500
    """Requests that each split is tried with at least; more where it takes more to fill the cluster."""

    def __post_init__(self) -> None:
        if not self.drift > 0:
            raise ConfigError(f"planner.replan.drift is {self.drift}; it must be above 0")
        if not self.min_interval_s >= 0:
            raise ConfigError(f"planner.replan.min_interval_s is {self.min_interval_s}; it must not be negative")
        for name in ("min_requests", "num_requests"):
            if getattr(self, name) < 1:
                raise ConfigError(f"planner.replan.{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalSettings:
    """Which prompts the `conditional` policy has computed where they will be decoded."""

    local_tokens: int | None = None
    """Prompts of up to so many tokens. None: those that would have their first token sooner, at no cost to the TPOT
    target, by the engine model."""

    def __post_init__(self) -> None:
        if self.local_tokens is not None and self.local_tokens < 0:
            raise ConfigError(f"planner.conditional.local_tokens is {self.local_tokens}; it must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerConfig:
    policy: str = "static"
    """static, load, throughput, throughput_corrected, splitwise, replan, arrow, conditional, lookahead, or your own as
    FILE.py:FUNCTION."""
    interval_s: float = 1.0
    """Time between ticks."""
    window_s: float = 20.0
    """How far back a policy looks at demand."""
    min_prefill: int = 1
    min_decode: int = 1
    max_changes_per_tick: int = 1
    max_changing: int | None = None
    """Instances that may be on their way to another role at a time; None leaves that to the policy."""
    min_stay_s: float = 0.0
    """An instance that has changed its role keeps it for at least so long."""
    dry_run: bool = False
    """Only say what would be done."""
    switch_time_s: float = 0.0
    """Modelled time from the end of draining to serving in the new role."""
    how: str = "drain"
    """What becomes of the work of an instance that changes: drain or migrate. `splitwise`, `arrow` and `lookahead`
    have ways of their own."""
    migrations_at_once: int = 4
    """Requests of one instance that are on their way to another at a time."""
    drain_timeout_s: float = 120.0
    """A drain that takes longer is rolled back."""
    load: LoadThresholds = field(default_factory=LoadThresholds)
    splitwise: SplitwiseThresholds = field(default_factory=SplitwiseThresholds)
    predictor: PredictorSettings = field(default_factory=PredictorSettings)
    throughput: ThroughputSettings = field(default_factory=ThroughputSettings)
    replan: ReplanSettings = field(default_factory=ReplanSettings)
    conditional: ConditionalSettings = field(default_factory=ConditionalSettings)
    lookahead: LookaheadSettings = field(default_factory=LookaheadSettings)

    def __post_init__(self) -> None:
        if not self.interval_s >= 0.001:
            raise ConfigError(f"planner.interval_s is {self.interval_s}; it must be at least 0.001")
        for name in ("window_s", "drain_timeout_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"planner.{name} is {getattr(self, name)}; it must be above 0")
        if self.how not in ("drain", "migrate"):
            raise ConfigError(f"planner.how is {self.how!r}; use drain or migrate")
        for name in ("min_prefill", "min_decode", "max_changes_per_tick", "migrations_at_once"):
            if getattr(self, name) < 1:
                raise ConfigError(f"planner.{name} is {getattr(self, name)}; it must be at least 1")
        if self.predictor.interval_s > self.window_s:
            raise ConfigError(
                f"planner.predictor.interval_s is {self.predictor.interval_s:g}, and demand is kept for "
                f"planner.window_s {self.window_s:g} only; lower the one or raise the other"
            )
        if self.max_changing is not None and self.max_changing < 1:
            raise ConfigError(f"planner.max_changing is {self.max_changing}; it must be at least 1")
        for name in ("switch_time_s", "min_stay_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"planner.{name} is {getattr(self, name)}; it must not be negative")
