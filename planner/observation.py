"""What a planner sees at a tick: the instances as they are, not as it remembers them, and recent demand."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.load import LoadView
from cluster.role import Phase, Role
from planner.demand import Demand

NO_DEMAND = Demand(window_s=0.0)


@dataclass(frozen=True, slots=True)
class Observation:
    """`instances` are load reports; a live driver's may be a little older than `now_s` (see LoadView.now_s)."""

    now_s: float
    instances: tuple[LoadView, ...]
    demand: Demand = NO_DEMAND
    pins: Mapping[int, Role] = field(default_factory=dict)
    """Roles that were set by hand, by instance."""

    def serving(self, role: Role) -> list[LoadView]:
        return [view for view in self.instances if view.role is role and view.phase is Phase.SERVING]

    def movable(self, role: Role) -> list[LoadView]:
        """Those serving whose role was not set by hand."""
        return [view for view in self.serving(role) if view.index not in self.pins]

    def changing(self) -> list[LoadView]:
        """Instances on their way to another role."""
        return [view for view in self.instances if view.phase is not Phase.SERVING]

    @property
    def staleness_s(self) -> float:
        """Age of the oldest load report."""
        return max((self.now_s - view.now_s for view in self.instances), default=0.0)
