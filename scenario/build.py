"""From a scenario to the parts that both drivers run: cost model, KV capacity, instances, links, router."""

from math import inf

from cluster.cost import Roofline, divide_layers, kv_capacity_tokens
from cluster.errors import CapacityError
from cluster.gpu import capped_compute
from cluster.instance import Instance
from cluster.link import LinkSpec
from cluster.pipeline import Pipeline
from cluster.role import Role
from cluster.router import Router
from planner.arrow import ArrowRouter
from planner.conditional import ConditionalRouter
from planner.demand import DemandWindow
from planner.engine import EngineModel
from planner.history import Load, loads_of
from planner.tools import Replan, Rollout, Targets, Tools
from scenario.hardware import Hardware
from scenario.own_policy import is_own, load_own
from scenario.spec import Scenario
from workload.readers import read_trace


def build_cost(scenario: Scenario, role: Role) -> Roofline:
    """Step times of a whole instance that starts in `role`; the stages of a pipeline add up to it.

    Raises ConfigError for a tp that does not divide the heads.
    """
    return _roofline(scenario, scenario.hardware_of(role))


def build_pipeline(scenario: Scenario, role: Role) -> Pipeline | None:
    """The stages of an instance, embedding on the first and head on the last; None when there is only one."""
    hardware, model = scenario.hardware_of(role), scenario.model
    if hardware.pp == 1:
        return None
    stages = [
        _roofline(scenario, hardware, num_layers=num_layers, is_first=stage == 0, is_last=stage == hardware.pp - 1)
        for stage, num_layers in enumerate(divide_layers(model.num_layers, hardware.pp))
    ]
    link = scenario.stage_link or hardware.gpu_link
    return Pipeline(stages, link=link, token_bytes=model.hidden_size * model.activation_dtype_bytes)


def _roofline(
    scenario: Scenario,
    hardware: Hardware,
    *,
    num_layers: int | None = None,
    is_first: bool = True,
    is_last: bool = True,
) -> Roofline:
    return Roofline(
        scenario.model,
        hardware.gpu,
        tp=hardware.tp,
        link=hardware.gpu_link,
        num_layers=num_layers,
        has_embedding=is_first,
        has_head=is_last,
        compute_scale=capped_compute(hardware.power_cap),
    )


def kv_capacity(scenario: Scenario, role: Role) -> int:
    """KV tokens that an instance which starts in `role` holds, in whole blocks where it counts in blocks.

    Raises CapacityError when the weights leave no room.
    """
    hardware = scenario.hardware_of(role)
    tokens = kv_capacity_tokens(scenario.model, hardware.gpu, tp=hardware.tp, pp=hardware.pp)
    if not scenario.engine.reserves_output:
        tokens -= tokens % scenario.engine.block_size
    return tokens


def smallest_kv_capacity(scenario: Scenario) -> int:
    """KV tokens of the smallest instance: any of them may come to serve any request."""
    return min(kv_capacity(scenario, role) for role in set(scenario.roles))


def request_limit_tokens(scenario: Scenario) -> int:
    """Prompt plus output of the longest request served: the context, or the KV of an instance if that is less.

    Raises CapacityError when a `max_context` that was asked for does not fit into the KV of an instance.
    """
    capacity = smallest_kv_capacity(scenario)
    asked = scenario.max_context
    if asked is not None and asked > capacity:
        raise CapacityError(
            f"max_context is {asked} tokens, and the smallest instance has room for the KV of {capacity}; "
            "lower max_context or raise tp"
        )
    return min(asked or scenario.model.max_context, capacity)


def build_instance(scenario: Scenario, index: int, role: Role, epoch: int = 0, *, logs_steps: bool = True) -> Instance:
    """Instance number `index`, empty and serving `role`, on the hardware of the role it started in."""
    first_role = scenario.roles[index]
    return Instance(
        index,
        role,
        cost=build_cost(scenario, first_role),
        capacity=kv_capacity(scenario, first_role),
        config=scenario.engine,
        pipeline=build_pipeline(scenario, first_role),
        epoch=epoch,
        logs_steps=logs_steps,
    )


def build_router(scenario: Scenario) -> Router:
    """A router that knows no instance yet: the driver opens each as it begins to serve.

    A planner policy that decides at each arrival brings its own.
    """
    reserves_output, seed = scenario.engine.reserves_output, scenario.seed
    if scenario.planner.policy == "arrow":
        return ArrowRouter(planner_tools(scenario), reserves_output=reserves_output, seed=seed)
    choices = {
        "prefill_policy": scenario.router.prefill_policy,
        "decode_policy": scenario.router.decode_policy,
    }
    if scenario.planner.policy == "conditional":
        step_tokens = scenario.engine.guest_policy().token_budget
        return ConditionalRouter(
            planner_tools(scenario), step_tokens=step_tokens, reserves_output=reserves_output, seed=seed, **choices
        )
    return Router(reserves_output=reserves_output, pairs=scenario.router.pairs, seed=seed, **choices)


def build_demand(scenario: Scenario) -> DemandWindow:
    """An empty window of what is asked for. Outputs count as declared where admission does so."""
    return DemandWindow(scenario.planner.window_s, declares=scenario.engine.reserves_output)


def planner_tools(scenario: Scenario, rollout: Rollout | None = None, replan: Replan | None = None) -> Tools:
    """What the planner's policies may use; the engine model is that of the first instance's hardware.

    Raises TraceError when the trace that a predictor is to be warm-started with cannot be read.
    """
    role, slo = scenario.roles[0], scenario.slo
    cost = build_cost(scenario, role)
    engine = EngineModel(
        cost=cost,
        kv_capacity_tokens=kv_capacity(scenario, role),
        prefill_batch_tokens=scenario.engine.prefill_batch_tokens or cost.saturation_tokens(),
        max_batch=scenario.engine.max_batch,
        token_budget=scenario.engine.colocated_policy().token_budget,
    )
    targets = Targets(
        ttft_s=inf if slo.ttft_ms is None else slo.ttft_ms / 1e3,
        tpot_s=inf if slo.tpot_ms is None else slo.tpot_ms / 1e3,
    )
    return Tools(
        scenario.planner,
        targets,
        engine,
        rollout=rollout,
        may_mix=scenario.router.pairs,
        replan=replan,
        policy=load_own(scenario.planner.policy) if is_own(scenario.planner.policy) else None,
        past=_past(scenario),
    )


def _past(scenario: Scenario) -> tuple[Load, ...]:
    """The windows of demand that a predictor is warm-started with."""
    predictor = scenario.planner.predictor
    if predictor.warm_start is None:
        return ()
    trace = read_trace(predictor.warm_start)
    requests = zip(trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    return tuple(loads_of(requests, predictor.interval_s))


def instance_names(scenario: Scenario) -> list[str]:
    return [f"instance-{index}" for index in range(scenario.instances.total)]


class Placement:
    """On which node each instance sits, and so which link joins two of them."""

    def __init__(self, scenario: Scenario) -> None:
        self._link = scenario.link
        self._gpu_links = [scenario.hardware_of(role).gpu_link for role in scenario.roles]
        self.nodes = _nodes(scenario)
        """Node of each instance."""

    def link_between(self, one: int, other: int) -> LinkSpec:
        """The link that KV takes: between GPUs of one node, or between nodes."""
        return self._gpu_links[one] if self.nodes[one] == self.nodes[other] else self._link


def _nodes(scenario: Scenario) -> list[int]:
    """Instances in order, each on the node of the one before if that has GPUs left, else on the next."""
    if scenario.gpus_per_node is None:
        return list(range(scenario.instances.total))
    nodes: list[int] = []
    node, free = 0, scenario.gpus_per_node
    for role in scenario.roles:
        needed = scenario.hardware_of(role).num_gpus
        if needed > free:
            node, free = node + 1, scenario.gpus_per_node
        free -= needed
        nodes.append(node)
    return nodes
