"""What one instance may run on: every shape of every kind of GPU there is, and why some cannot be."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from cluster.cost import kv_capacity_tokens, valid_tensor_parallel
from cluster.errors import CapacityError, ConfigError
from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from cluster.model import ModelSpec
from scenario.hardware import Hardware, RoleHardware


@dataclass(frozen=True, slots=True)
class GpuPool:
    """`count` GPUs of one kind; `link` joins those of a node."""

    gpu: GpuSpec
    link: LinkSpec
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"{self.gpu.name}:{self.count} is no number of GPUs; give at least 1")


@dataclass(frozen=True, slots=True)
class Machine:
    """tp x pp GPUs of a node, whose draw may be capped to a share of the board power limit.

    Over several nodes, each holds one stage of the pipeline, and with it a part of the layers.
    """

    gpu: GpuSpec
    link: LinkSpec
    tp: int
    pp: int = 1
    power_cap: float = 1.0
    num_nodes: int = 1

    @property
    def num_gpus(self) -> int:
        return self.tp * self.pp

    @property
    def usd_per_hour(self) -> float:
        return self.num_gpus * self.gpu.price_per_hour

    @property
    def watts(self) -> float:
        """Provisioned: what its GPUs may draw."""
        return self.num_gpus * self.gpu.power_w * self.power_cap

    @property
    def label(self) -> str:
        cap = "" if self.power_cap == 1 else f" cap {100 * self.power_cap:g} %"
        spread = "" if self.num_nodes == 1 else f" over {self.num_nodes} nodes"
        return f"{self.gpu.name} {self.shape}{cap}{spread}"

    @property
    def shape(self) -> str:
        return f"tp{self.tp}" if self.pp == 1 else f"tp{self.tp} pp{self.pp}"

    @property
    def hardware(self) -> Hardware:
        return Hardware(gpu=self.gpu, gpu_link=self.link, tp=self.tp, pp=self.pp, power_cap=self.power_cap)

    def beside(self, other: "Machine") -> RoleHardware:
        """What tells it from `other`, for a role that differs from the rest of a scenario."""
        return RoleHardware(
            gpu=self.gpu if self.gpu != other.gpu else None,
            gpu_link=self.link if self.link != other.link else None,
            tp=self.tp if self.tp != other.tp else None,
            pp=self.pp if self.pp != other.pp else None,
            power_cap=self.power_cap if self.power_cap != other.power_cap else None,
        )


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Something that was not searched or did not work, and why."""

    what: str
    reason: str


def shapes(model: ModelSpec, pool: GpuPool, gpus_per_node: int) -> tuple[list[Machine], list[Infeasible]]:
    """Machines of one node that the model fits on, fewest stages and GPUs first, and those it does not."""
    most = min(gpus_per_node, pool.count)
    valid = valid_tensor_parallel(model)
    machines = [
        Machine(pool.gpu, pool.link, tp, pp)
        for tp, pp in _degrees([tp for tp in valid if tp <= most], most, model.num_layers)
    ]
    fitting = [machine for machine in machines if _fits(model, machine)]
    divided = [f"tp{tp}" for tp in range(1, most + 1) if tp not in valid]
    small = [machine.shape for machine in machines if machine not in fitting]
    reasons = {
        ", ".join(divided): f"not every GPU gets whole heads: {model.name} has {model.num_heads} heads "
        f"and {model.num_kv_heads} KV heads",
        ", ".join(small): f"no room for KV: {model.name} has {model.weight_bytes / 1e9:.1f} GB of weights, and a GPU "
        f"{pool.gpu.usable_memory * pool.gpu.memory_bytes / 1e9:.1f} GB for weights and KV",
    }
    return fitting, [Infeasible(f"{pool.gpu.name} {which}", why) for which, why in reasons.items() if which]


def segments(model: ModelSpec, pool: GpuPool, gpus_per_node: int) -> list[Machine]:
    """Machines of as many nodes as it takes for a prefill and a decode instance to fit on them side by side, and of
    one more; none when a single node is enough, or all there are too few.

    What such a machine has on one node is a stage, and a segment of the layers (DistServe, Algorithm 2).
    """
    most_nodes = pool.count // gpus_per_node
    for num_nodes in range(1, most_nodes + 1):
        smallest = min((one.num_gpus for one in _spread(model, pool, gpus_per_node, num_nodes)), default=inf)
        if 2 * smallest <= gpus_per_node * num_nodes:
            numbers = (num_nodes, num_nodes + 1) if num_nodes > 1 else ()
            return [
                machine
                for number in numbers
                if number <= most_nodes
                for machine in _spread(model, pool, gpus_per_node, number)
            ]
    return []


def _spread(model: ModelSpec, pool: GpuPool, gpus_per_node: int, num_nodes: int) -> list[Machine]:
    """Machines that leave room for another on their nodes: with a stage on each, or on a single one any shape."""
    tensor = [tp for tp in valid_tensor_parallel(model) if tp < gpus_per_node]
    if num_nodes == 1:
        degrees = list(_degrees(tensor, gpus_per_node - 1, model.num_layers))
    else:
        degrees = [(tp, num_nodes) for tp in tensor if num_nodes <= model.num_layers]
    machines = [Machine(pool.gpu, pool.link, tp, pp, num_nodes=num_nodes) for tp, pp in degrees]
    return [machine for machine in machines if _fits(model, machine)]


def _fits(model: ModelSpec, machine: Machine) -> bool:
    try:
        kv_capacity_tokens(model, machine.gpu, tp=machine.tp, pp=machine.pp)
    except CapacityError:
        return False
    return True


def _degrees(tensor: Sequence[int], most: int, num_layers: int) -> Iterator[tuple[int, int]]:
    """(tp, pp) with at most `most` GPUs."""
    for pp in range(1, min(most, num_layers) + 1):
        yield from ((tp, pp) for tp in tensor if tp * pp <= most)
