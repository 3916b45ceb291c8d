"""What fills the steps of a live instance: nothing but a pattern in the KV, or a model that really computes."""

from typing import Protocol

from torch import Tensor

from cluster.instance import Instance
from cluster.request import Request
from compute.kv_layout import KvLayout, Layers
from compute.stand_in import StandIn
from compute.tiny_engine import TinyEngine
from scenario.spec import Scenario


class Engine(Protocol):
    """Follows an instance of the core, which decides who computes what and when."""

    layout: KvLayout

    def kv_tokens(self, request: Request) -> int:
        """Tokens whose KV really travels when the request is handed over; 0 when no bytes do."""

    def follow(self, core: Instance) -> None:
        """Compute what the core has done since."""

    def settle(self, request: Request) -> None:
        """Compute what the core has done for a request that ends or leaves."""

    def compute_layers(self, request: Request, num_layers: int) -> None:
        """Compute the first layers of the step that completes the prompt, which goes on."""

    def write_kv(self, request: Request, layers: Layers, out: Tensor) -> None:
        """Fill `out`, of the layout's shape, with KV of layers that are computed. From any thread."""

    def take_kv(self, request: Request, kv: Tensor) -> None:
        """The KV of a request has come in, whole."""

    def forget(self, request_id: int) -> None:
        """The request has ended or left; unknown ones are ignored."""


def build_engine(scenario: Scenario) -> Engine:
    if scenario.live.compute == "tiny":
        return TinyEngine(seed=scenario.seed)
    return StandIn(KvLayout.of_model(scenario.model), scenario.live.kv_bytes_scale)
