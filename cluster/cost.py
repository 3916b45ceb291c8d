"""How long a step takes: the StepCost protocol and its default, a roofline."""

from math import ceil, inf, sqrt
from typing import Protocol

from cluster.errors import CapacityError, ConfigError
from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from cluster.model import ModelSpec


class DecodeRun:
    """Iteration times of a decode batch that nobody joins or leaves.

    Every iteration adds one token to each sequence, so compute time and memory time are both affine in
    the iteration index j, and an iteration takes the larger: `first_s + slope_s * j` for j < split and
    `late_first_s + late_slope_s * j` from there on. `split` is infinite when the lines do not cross.
    """

    __slots__ = ("first_s", "late_first_s", "late_slope_s", "slope_s", "split")

    def __init__(
        self, first_s: float, slope_s: float, split: float = inf, late_first_s: float = 0.0, late_slope_s: float = 0.0
    ) -> None:
        self.first_s = first_s
        self.slope_s = slope_s
        self.split = split
        self.late_first_s = late_first_s
        self.late_slope_s = late_slope_s

    def duration_s(self, iterations: int) -> float:
        """Seconds from the start of iteration 0 to the end of the last of `iterations`."""
        split = self.split
        if iterations <= split:
            return iterations * (self.first_s + 0.5 * self.slope_s * (iterations - 1))
        head = split * (self.first_s + 0.5 * self.slope_s * (split - 1))
        late = iterations - split
        return head + late * (self.late_first_s + 0.5 * self.late_slope_s * (split + iterations - 1))

    def iterations_at(self, elapsed_s: float) -> int:
        """The first iteration boundary at or after `elapsed_s`, as a number of iterations (at least 1)."""
        first, slope = self.first_s, self.slope_s
        if self.split != inf and elapsed_s > self.duration_s(int(self.split)):
            done = int(self.split)
            elapsed_s -= self.duration_s(done)
            return done + _iterations_at(self.late_first_s + self.late_slope_s * done, self.late_slope_s, elapsed_s)
        return _iterations_at(first, slope, elapsed_s)


def _iterations_at(first: float, slope: float, elapsed_s: float) -> int:
    half = first - 0.5 * slope
    count = ceil(2.0 * elapsed_s / (half + sqrt(half * half + 2.0 * slope * elapsed_s)))
    count = max(count, 1)
    while count * (first + 0.5 * slope * (count - 1)) < elapsed_s:
        count += 1
    while count > 1 and (count - 1) * (first + 0.5 * slope * (count - 2)) >= elapsed_s:
        count -= 1
    return count


class StepCost(Protocol):
    """What the engine asks of a cost model. A step is described by four sums over its batch."""

    def step_s(self, new_tokens: int, num_logits: int, attention_tokens: float, kv_tokens: int) -> float:
        """Seconds of one step.

        new_tokens: chunk tokens plus one per decode sequence. num_logits: decode sequences plus chunks that
        end their prompt. attention_tokens: sum of n (past + n/2) over chunks and of context over decode
        sequences. kv_tokens: sum of past + n over chunks and of context over decode sequences.
        """
        ...

    def decode_run(self, batch: int, context: int) -> DecodeRun:
        """Iteration times of `batch` sequences whose contexts sum to `context` tokens at iteration 0."""
        ...

    def saturation_tokens(self) -> int:
        """Prompt length from which one prefill is bound by compute (DistServe section 3.1 calls it L_m)."""
        ...


class Roofline:
    """Time = max(compute, memory) + overhead + tensor-parallel communication, for a run of layers.

    A whole model by default; a pipeline stage when given `num_layers` and whether it holds the embedding
    and the head. Compute: FLOPs / (tp x peak x efficiency); memory: bytes / (tp x bandwidth x efficiency).
    Communication: two ring all-reduces a layer. `compute_scale` below 1 models a power cap.
    """

    def __init__(
        self,
        model: ModelSpec,
        gpu: GpuSpec,
        *,
        tp: int = 1,
        link: LinkSpec | None = None,
        num_layers: int | None = None,
        has_embedding: bool = True,
        has_head: bool = True,
        compute_scale: float = 1.0,
    ) -> None:
        check_tensor_parallel(model, tp)
        if tp > 1 and link is None:
            raise ConfigError(f"tp {tp} needs the link between the GPUs of a node; gpu {gpu.name} names {gpu.link}")
        layers = model.num_layers if num_layers is None else num_layers
        share = layers / model.num_layers
        peak = tp * gpu.peak_flops * gpu.compute_efficiency * compute_scale
        if model.weight_dtype == "fp8":
            peak *= gpu.fp8_speedup
        bandwidth = tp * gpu.bandwidth_bytes_s * gpu.memory_efficiency
        width = model.weight_dtype_bytes
        row_bytes = model.hidden_size * model.activation_dtype_bytes

        self.model = model
        self.tp = tp
        self._token_compute_s = 2.0 * model.active_body_params * share / peak
        self._logit_compute_s = 2.0 * model.head_params / peak if has_head else 0.0
        self._attention_compute_s = 4.0 * model.head_dim * model.num_heads * layers / peak
        self._token_memory_s = row_bytes / bandwidth if has_embedding else 0.0
        self._kv_memory_s = model.kv_bytes_per_token * share / bandwidth
        self._head_memory_s = model.head_params * width / bandwidth if has_head else 0.0
        self._num_experts = model.num_experts
        self._expert_miss = 1.0 - model.experts_per_token / model.num_experts if model.num_experts else 0.0
        experts_bytes = model.num_experts * model.expert_params * layers * width
        self._experts_memory_s = experts_bytes / bandwidth
        self._body_memory_s = (model.body_params * share * width - experts_bytes) / bandwidth
        self._fixed_s = gpu.step_overhead_s * share
        self._token_link_s = 0.0
        if tp > 1 and link is not None:
            self._fixed_s += 2 * layers * 2 * (tp - 1) * link.alpha_s
            self._token_link_s = 2 * layers * (2 * (tp - 1) / tp) * row_bytes / link.effective_bytes_s

    def weights_memory_s(self, new_tokens: int) -> float:
        """Seconds to read the body's weights; a mixture of experts reads the experts its tokens hit.

        With k of E experts a token, T tokens hit E (1 - (1 - k/E)^T) of them in expectation.
        """
        if not self._num_experts:
            return self._body_memory_s
        return self._body_memory_s + self._experts_memory_s * (1.0 - self._expert_miss**new_tokens)

    def step_s(self, new_tokens: int, num_logits: int, attention_tokens: float, kv_tokens: int) -> float:
        compute = (
            new_tokens * self._token_compute_s
            + num_logits * self._logit_compute_s
            + attention_tokens * self._attention_compute_s
        )
        memory = self.weights_memory_s(new_tokens) + kv_tokens * self._kv_memory_s + new_tokens * self._token_memory_s
        if num_logits:
            memory += self._head_memory_s
        return (compute if compute > memory else memory) + self._fixed_s + new_tokens * self._token_link_s

    def decode_run(self, batch: int, context: int) -> DecodeRun:
        fixed = self._fixed_s + batch * self._token_link_s
        compute = batch * (self._token_compute_s + self._logit_compute_s) + context * self._attention_compute_s + fixed
        memory = (
            (self.weights_memory_s(batch) if self._num_experts else self._body_memory_s)
            + self._head_memory_s
            + context * self._kv_memory_s
            + batch * self._token_memory_s
            + fixed
        )
        compute_slope = batch * self._attention_compute_s
        memory_slope = batch * self._kv_memory_s
        if memory >= compute:
            if compute_slope <= memory_slope:
                return DecodeRun(memory, memory_slope)
            split = ceil((memory - compute) / (compute_slope - memory_slope))
            return DecodeRun(memory, memory_slope, split, compute, compute_slope)
        if memory_slope <= compute_slope:
            return DecodeRun(compute, compute_slope)
        split = ceil((compute - memory) / (memory_slope - compute_slope))
        return DecodeRun(compute, compute_slope, split, memory, memory_slope)

    def saturation_tokens(self) -> int:
        low, high = 1, 1
        while not self._is_compute_bound(high):
            low, high = high, high * 2
            if high > 1 << 20:
                return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_compute_bound(middle) else (middle, high)
        return high

    def _is_compute_bound(self, tokens: int) -> bool:
        compute = tokens * self._token_compute_s + self._logit_compute_s
        compute += 0.5 * tokens * tokens * self._attention_compute_s
        memory = self.weights_memory_s(tokens) + self._head_memory_s
        memory += tokens * (self._kv_memory_s + self._token_memory_s)
        return compute >= memory


def check_tensor_parallel(model: ModelSpec, tp: int) -> None:
    """Raise ConfigError unless `tp` divides the heads, and divides the KV heads or is a multiple of them."""
    valid = valid_tensor_parallel(model)
    if tp not in valid:
        raise ConfigError(
            f"tp {tp} does not fit model {model.name} with {model.num_heads} heads and {model.num_kv_heads} KV heads; "
            f"valid values are {', '.join(map(str, valid))}"
        )


def valid_tensor_parallel(model: ModelSpec) -> list[int]:
    """Degrees that give every GPU whole attention heads (KV heads may be replicated)."""
    return [
        tp
        for tp in range(1, model.num_heads + 1)
        if model.num_heads % tp == 0 and (model.num_kv_heads % tp == 0 or tp % model.num_kv_heads == 0)
    ]


def kv_capacity_tokens(model: ModelSpec, gpu: GpuSpec, *, tp: int = 1, pp: int = 1) -> int:
    """Tokens of KV an instance of tp x pp GPUs holds beside its weights.

    (tp x usable x memory - weight bytes) / KV bytes per token, for the fullest pipeline stage. Raises
    CapacityError with weights, reserve, free bytes and the smallest tp that fits when nothing is left.
    """
    check_tensor_parallel(model, tp)
    capacity = _capacity_tokens(model, gpu, tp, pp)
    if capacity >= 1:
        return capacity
    usable = tp * pp * gpu.usable_memory * gpu.memory_bytes
    reserve = tp * pp * (1 - gpu.usable_memory) * gpu.memory_bytes
    fitting = [degree for degree in valid_tensor_parallel(model) if _capacity_tokens(model, gpu, degree, pp) >= 1]
    fix = f"the smallest tp that fits is {fitting[0]}" if fitting else "no tp fits; use pp, fp8 weights or a larger GPU"
    raise CapacityError(
        f"model {model.name} does not fit on {tp * pp} x {gpu.name} (tp {tp}, pp {pp}): weights {model.weight_bytes / 1e9:.1f} GB, "
        f"reserve {reserve / 1e9:.1f} GB, free for KV {(usable - model.weight_bytes) / 1e9:.1f} GB; {fix}"
    )


def _capacity_tokens(model: ModelSpec, gpu: GpuSpec, tp: int, pp: int) -> int:
    usable = tp * gpu.usable_memory * gpu.memory_bytes
    stages = divide_layers(model.num_layers, pp)
    capacity = inf
    for index, layers in enumerate(stages):
        params = model.body_params * layers / model.num_layers
        if index == 0:
            params += model.head_params
        if index == pp - 1 and (pp > 1 or not model.tied_embeddings):
            params += model.head_params
        free = usable - params * model.weight_dtype_bytes
        capacity = min(capacity, free / (model.kv_bytes_per_token * layers / model.num_layers))
    return int(max(capacity, -1.0))


def divide_layers(num_layers: int, pp: int) -> list[int]:
    """Layers of each pipeline stage: as even as they come, the longer stages first."""
    if not 1 <= pp <= num_layers:
        raise ConfigError(f"pp {pp} must be between 1 and the number of layers, {num_layers}")
    return [num_layers // pp + (1 if index < num_layers % pp else 0) for index in range(pp)]
