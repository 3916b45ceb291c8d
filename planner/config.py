"""What the planner is told: which policy, how often, and the limits every policy keeps."""

from dataclasses import dataclass, field

from cluster.errors import ConfigError


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
    max_rollouts: int = 5
    """Futures tried per tick, that of doing nothing included."""
    max_followed: int = 6_000
    """Requests followed per tick, over all futures: at about 30 us each, a tick takes less than 200 ms. Fewer futures
    are tried when each has many requests, and if need be they are shorter."""
    max_moves: int = 2
    """Instances moved at once."""
    margin: float = 0.02
    """A change must promise so much more good requests, as a share of all that were judged."""
    strain: float = 0.85
    """Share of what a role can carry from which on the future is worth a look."""
    votes: int = 1
    """Ticks in a row that must want the same before a change."""
    cooldown_s: float = 2.0
    """Least time between the end of one change and the next decision."""

    def __post_init__(self) -> None:
        for name in ("horizon_s", "strain"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"planner.lookahead.{name} is {getattr(self, name)}; it must be above 0")
        for name in ("max_followed", "max_moves", "votes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"planner.lookahead.{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_rollouts < 2:
            raise ConfigError(
                f"planner.lookahead.max_rollouts is {self.max_rollouts}; doing nothing and one change take 2"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerConfig:
    policy: str = "static"
    """static, load, splitwise or lookahead."""
    interval_s: float = 1.0
    """Time between ticks."""
    window_s: float = 20.0
    """How far back a policy looks at demand."""
    min_prefill: int = 1
    min_decode: int = 1
    max_changes_per_tick: int = 1
    switch_time_s: float = 0.0
    """Modelled time from the end of draining to serving in the new role."""
    how: str = "drain"
    """What the `load` policy does with the work of an instance that changes: drain or migrate."""
    migrations_at_once: int = 4
    """Requests of one instance that are on their way to another at a time."""
    drain_timeout_s: float = 120.0
    """A drain that takes longer is rolled back."""
    load: LoadThresholds = field(default_factory=LoadThresholds)
    splitwise: SplitwiseThresholds = field(default_factory=SplitwiseThresholds)
    lookahead: LookaheadSettings = field(default_factory=LookaheadSettings)

    def __post_init__(self) -> None:
        for name in ("interval_s", "window_s", "drain_timeout_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"planner.{name} is {getattr(self, name)}; it must be above 0")
        if self.how not in ("drain", "migrate"):
            raise ConfigError(f"planner.how is {self.how!r}; use drain or migrate")
        for name in ("min_prefill", "min_decode", "max_changes_per_tick", "migrations_at_once"):
            if getattr(self, name) < 1:
                raise ConfigError(f"planner.{name} is {getattr(self, name)}; it must be at least 1")
        if not self.switch_time_s >= 0:
            raise ConfigError(f"planner.switch_time_s is {self.switch_time_s}; it must not be negative")
