"""What one instance may run on: every shape of every kind of GPU there is, and why some cannot be."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    """tp x pp GPUs of a node, whose draw may be capped to a share of the board power limit."""

    gpu: GpuSpec
    link: LinkSpec
    tp: int
    pp: int = 1
    power_cap: float = 1.0

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
        return f"{self.gpu.name} {self.shape}{cap}"

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
    fitting: list[Machine] = []
    unfit: list[Infeasible] = []
    valid = valid_tensor_parallel(model)
    most = min(gpus_per_node, pool.count)
    divided = [tp for tp in range(1, most + 1) if tp not in valid]
    if divided:
        unfit.append(
            Infeasible(
                f"{pool.gpu.name} tp {', '.join(map(str, divided))}",
                f"does not divide the {model.num_heads} heads and {model.num_kv_heads} KV heads of {model.name}",
            )
        )
    for tp, pp in _degrees([tp for tp in valid if tp <= most], most, model.num_layers):
        machine = Machine(pool.gpu, pool.link, tp, pp)
        try:
            kv_capacity_tokens(model, pool.gpu, tp=tp, pp=pp)
        except CapacityError as error:
            unfit.append(Infeasible(machine.label, str(error)))
        else:
            fitting.append(machine)
    return fitting, unfit


def _degrees(tensor: Sequence[int], most: int, num_layers: int) -> Iterator[tuple[int, int]]:
    """(tp, pp) with at most `most` GPUs."""
    for pp in range(1, min(most, num_layers) + 1):
        yield from ((tp, pp) for tp in tensor if tp * pp <= most)
