"""From a scenario to the parts that both drivers run: cost model, KV capacity, instances, router."""

from cluster.cost import Roofline, divide_layers, kv_capacity_tokens
from cluster.errors import CapacityError
from cluster.instance import Instance
from cluster.pipeline import Pipeline
from cluster.role import Role
from cluster.router import Router
from scenario.spec import Scenario


def build_cost(scenario: Scenario) -> Roofline:
    """Step times of one whole instance; a pipeline's stages add up to it. ConfigError for a tp that does not divide."""
    return Roofline(scenario.model, scenario.gpu, tp=scenario.tp, link=scenario.gpu_link)


def build_pipeline(scenario: Scenario) -> Pipeline | None:
    """The stages of an instance, embedding on the first and head on the last; None when there is only one."""
    if scenario.pp == 1:
        return None
    model = scenario.model
    layers = divide_layers(model.num_layers, scenario.pp)
    stages = [
        Roofline(
            model,
            scenario.gpu,
            tp=scenario.tp,
            link=scenario.gpu_link,
            num_layers=num_layers,
            has_embedding=stage == 0,
            has_head=stage == scenario.pp - 1,
        )
        for stage, num_layers in enumerate(layers)
    ]
    return Pipeline(stages, link=scenario.gpu_link, token_bytes=model.hidden_size * model.activation_dtype_bytes)


def kv_capacity(scenario: Scenario) -> int:
    """KV tokens that one instance holds, in whole blocks where it counts in blocks.

    Raises CapacityError when the weights leave no room.
    """
    tokens = kv_capacity_tokens(scenario.model, scenario.gpu, tp=scenario.tp, pp=scenario.pp)
    if scenario.engine.admission == "preempt_recompute":
        tokens -= tokens % scenario.engine.block_size
    return tokens


def request_limit_tokens(scenario: Scenario) -> int:
    """Prompt plus output of the longest request served: the context, or the KV of an instance if that is less.

    Raises CapacityError when a `max_context` that was asked for does not fit into the KV of an instance.
    """
    capacity = kv_capacity(scenario)
    asked = scenario.max_context
    if asked is not None and asked > capacity:
        raise CapacityError(
            f"max_context is {asked} tokens, and an instance (tp {scenario.tp}, pp {scenario.pp}) has room for the KV "
            f"of {capacity}; lower max_context or raise tp"
        )
    return min(asked or scenario.model.max_context, capacity)


def build_instance(scenario: Scenario, index: int, role: Role, epoch: int = 0) -> Instance:
    """Instance number `index`, empty and serving `role`."""
    return Instance(
        index,
        role,
        cost=build_cost(scenario),
        capacity=kv_capacity(scenario),
        config=scenario.engine,
        pipeline=build_pipeline(scenario),
        epoch=epoch,
    )


def build_router(scenario: Scenario) -> Router:
    """A router that knows no instance yet: the driver opens each as it begins to serve."""
    return Router(
        prefill_policy=scenario.router.prefill_policy,
        decode_policy=scenario.router.decode_policy,
        reserves_output=scenario.engine.admission == "reserve_output",
        seed=scenario.seed,
    )


def initial_roles(scenario: Scenario) -> list[Role]:
    """Role of each instance at the start: prefill first, then decode, then mixed."""
    counts = scenario.instances
    return [Role.PREFILL] * counts.prefill + [Role.DECODE] * counts.decode + [Role.MIXED] * counts.mixed


def instance_names(scenario: Scenario) -> list[str]:
    return [f"instance-{index}" for index in range(scenario.instances.total)]
