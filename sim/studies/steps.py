"""Steps of a machine by what is in them, for the studies that need no simulation."""

from dataclasses import dataclass, replace

from cluster.cost import Roofline, divide_layers
from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from cluster.model import ModelSpec
from scenario.loading import load_spec


@dataclass(frozen=True, slots=True)
class Steps:
    """Step times in seconds. A decode batch is a number of sequences, all at one context."""

    cost: Roofline

    @classmethod
    def of(
        cls, model: str, gpu: str, *, tp: int = 1, pp: int = 1, link: LinkSpec | None = None, dtype: str | None = None
    ) -> "Steps":
        """A bundled model on bundled GPUs, joined by their own link unless another is given; of a pipeline, its
        first stage. `dtype` is that of the weights, if not the model's own.
        """
        spec, chip = load_spec(ModelSpec, model), load_spec(GpuSpec, gpu)
        spec = replace(spec, weight_dtype=dtype or spec.weight_dtype)
        between = link or load_spec(LinkSpec, chip.link)
        if pp == 1:
            return cls(Roofline(spec, chip, tp=tp, link=between))
        layers = divide_layers(spec.num_layers, pp)[0]
        return cls(Roofline(spec, chip, tp=tp, link=between, num_layers=layers, has_head=False))

    @classmethod
    def at_peak(cls, model: str, gpu: str, *, bandwidth_bytes_s: float | None = None) -> "Steps":
        """The GPU of the data sheet, or one with another bandwidth: no overhead, everything at its nominal rate."""
        chip = load_spec(GpuSpec, gpu)
        bandwidth = bandwidth_bytes_s or chip.bandwidth_bytes_s
        peak = replace(
            chip, bandwidth_bytes_s=bandwidth, compute_efficiency=1.0, memory_efficiency=1.0, step_overhead_s=0.0
        )
        return cls(Roofline(load_spec(ModelSpec, model), peak))

    def step_s(self, batch: int, context: int, chunk: int = 0, *, past: int = 0, ends: bool = True) -> float:
        """A decode batch and a chunk of a prompt, which ends the prompt or does not."""
        return self.cost.step_s(
            batch + chunk,
            batch + (1 if chunk and ends else 0),
            batch * context + chunk * (past + chunk / 2),
            batch * context + (past + chunk if chunk else 0),
        )

    def prefill_s(self, tokens: int, chunk: int | None = None) -> float:
        """A prompt alone, at once or in chunks."""
        size = chunk or tokens
        return sum(
            self.step_s(0, 0, min(size, tokens - past), past=past, ends=past + size >= tokens)
            for past in range(0, tokens, size)
        )
