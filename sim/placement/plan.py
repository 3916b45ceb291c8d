"""A plan: how many instances of which kinds, what they carry, what they cost, and what rounding loses."""

from dataclasses import dataclass, replace
from math import ceil
from operator import le

from scenario.hardware import HardwareByRole
from scenario.spec import InstanceCounts, Scenario
from sim.placement.machine import Machine
from sim.placement.option import Option, on_machine

_EXACT = 1e-9
_LETTERS = {"prefill": "P", "decode": "D", "mixed": "M"}


def instances_for(request_rate: float, goodput: float) -> int:
    """Whole instances that carry a rate: ceil(R / goodput) (DistServe, Algorithm 1)."""
    return max(1, ceil(request_rate / goodput - _EXACT))


@dataclass(frozen=True, slots=True)
class Group:
    """`count` instances of one kind; `goodput` (req/s) and `limit` are of one of them."""

    option: Option
    count: int
    goodput: float
    limit: str = ""

    @property
    def role(self) -> str:
        return self.option.role

    @property
    def machine(self) -> Machine:
        return self.option.machine


@dataclass(frozen=True, slots=True)
class Check:
    """A simulation of the whole that held with fresh seeds; the attainment is that of the worst."""

    request_rate: float
    attainment: float
    num_seeds: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups together serve; `units` copies of them, each on nodes of its own with a share of the traffic, when
    `is_unit`.
    """

    design: str
    groups: tuple[Group, ...]
    units: int = 1
    is_unit: bool = False
    simulated_rate: float | None = None
    """Goodput (req/s) of the whole, or of one unit, where it was searched."""
    simulated_limit: str = ""
    too_small: frozenset[tuple[int, ...]] = frozenset()
    """Numbers of instances, group by group, that did not hold."""
    failure: str = ""
    """Why it cannot hold, whatever the numbers."""
    check: Check | None = None

    @property
    def num_gpus(self) -> int:
        return self.units * sum(group.count * group.machine.num_gpus for group in self.groups)

    @property
    def usd_per_hour(self) -> float:
        return self.units * sum(group.count * group.machine.usd_per_hour for group in self.groups)

    @property
    def watts(self) -> float:
        return self.units * sum(group.count * group.machine.watts for group in self.groups)

    def gpus_of(self, name: str) -> int:
        """GPUs of one kind."""
        return self.units * sum(
            group.count * group.machine.num_gpus for group in self.groups if group.machine.gpu.name == name
        )

    def nodes_of(self, name: str, gpus_per_node: int) -> int:
        """Nodes of one kind of GPU: instances in order, each on the node of the one before while that has room.

        Units share a node where several fit.
        """
        sizes = [
            group.machine.num_gpus
            for group in self.groups
            if group.machine.gpu.name == name
            for _ in range(group.count)
        ]
        if self.is_unit and sizes:
            num_nodes = self.groups[0].machine.num_nodes
            return num_nodes * ceil(self.units / (gpus_per_node * num_nodes // sum(sizes)))
        nodes, free = 0, 0
        for size in sizes:
            if size > free:
                nodes, free = nodes + 1, gpus_per_node
            free -= size
        return nodes

    @property
    def carries(self) -> float:
        """Req/s: what was simulated, else what its scarcest group does by the goodput of one instance."""
        each = self.simulated_rate or min(group.count * group.goodput for group in self.groups)
        held = 0.0 if self.check is None else self.check.request_rate
        return max(self.units * each, held)

    @property
    def goodput_per_gpu(self) -> float:
        """Req/s per GPU if instances could be had in fractions, so that none idles."""
        if self.simulated_rate is not None:
            return self.carries / self.num_gpus
        return 1 / sum(group.machine.num_gpus / group.goodput for group in self.groups)

    def rounding_loss(self, request_rate: float) -> float:
        """How many more GPUs it has than fractions of instances would need, as a share of those."""
        return max(0.0, self.num_gpus * self.goodput_per_gpu / request_rate - 1)

    @property
    def limit(self) -> str:
        """What is short first, in words: of the whole where it was simulated, else of the group that carries least."""
        return self.simulated_limit or min(self.groups, key=lambda group: group.count * group.goodput).limit

    @property
    def counts(self) -> str:
        """Such as 2P tp4 + 1D tp8, or 3 x (1P tp3 + 1D tp4); with the GPUs' names where they differ."""
        is_one_kind = len({group.machine.gpu.name for group in self.groups}) == 1
        parts = []
        for group in self.groups:
            machine = group.machine
            cap = "" if machine.power_cap == 1 else f" cap {100 * machine.power_cap:g} %"
            kind = f"{machine.shape}{cap}" if is_one_kind else machine.label
            parts.append(f"{group.count}{_LETTERS[group.role]} {kind}")
        together = " + ".join(parts)
        num_nodes = self.groups[0].machine.num_nodes
        spread = f" over {num_nodes} nodes" if num_nodes > 1 else ""
        return f"{self.units} x ({together}{spread})" if self.is_unit else together

    @property
    def is_too_small(self) -> bool:
        """Whether so many instances, or more, are known not to hold."""
        counts = [group.count for group in self.groups]
        return any(all(map(le, counts, others)) for others in self.too_small)

    @property
    def counts_by_role(self) -> dict[str, int]:
        return {group.role: group.count for group in self.groups}

    def with_counts(self, counts: dict[str, int]) -> "Plan":
        """Other numbers of instances, by role."""
        return replace(self, groups=tuple(replace(group, count=counts[group.role]) for group in self.groups))

    def scenario(self, base: Scenario, gpus_per_node: int) -> Scenario:
        """The cluster, or one of its units, with the workload of `base`.

        In a unit over several nodes KV goes from stage to stage on each of them; one link's bandwidth is counted.
        """
        first, *others = self.groups
        machine = first.machine
        by_role = {group.role: group.machine.beside(machine) for group in others}
        counts = {group.role: group.count for group in self.groups}
        engine = base.engine
        if first.role == "mixed":
            engine = replace(engine, policy=first.option.policy, token_budget=first.option.token_budget)
        alone = on_machine(base, machine)
        nodes: int | None = gpus_per_node
        if machine.num_nodes > 1:
            alone, nodes = replace(alone, link=machine.link), None
        elif len({group.machine.gpu.name for group in self.groups}) > 1:
            nodes = None
        return replace(
            alone,
            name=f"{base.name}-plan",
            instances=InstanceCounts(**counts),
            hardware=HardwareByRole(**by_role),
            gpus_per_node=nodes,
            engine=engine,
        )
