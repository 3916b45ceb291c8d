import re
from dataclasses import replace

import pytest

from cluster.errors import CapacityError, ConfigError
from cluster.request import Request
from cluster.role import Role
from scenario.build import (
    Placement,
    build_cost,
    build_instance,
    build_pipeline,
    build_router,
    instance_names,
    kv_capacity,
    request_limit_tokens,
)
from scenario.loading import load_scenario


def test_roles_and_names_in_order() -> None:
    scenario = load_scenario("demo", ["instances={prefill: 1, decode: 2, mixed: 1}"])
    assert scenario.roles == [Role.PREFILL, Role.DECODE, Role.DECODE, Role.MIXED]
    assert instance_names(scenario) == ["instance-0", "instance-1", "instance-2", "instance-3"]


def test_cost_is_the_roofline_of_the_scenario() -> None:
    cost = build_cost(load_scenario("steady-8b"), Role.DECODE)
    assert cost.decode_run(32, 32 * 1024).first_s == pytest.approx(7.703e-3, abs=5e-7)
    assert cost.step_s(1024, 1, 1024 * 512, 1024) == pytest.approx(21.545e-3, abs=5e-7)


OPT = ["model=opt-13b", "gpu=a100-80gb", "max_context=null"]


@pytest.mark.parametrize(
    ("overrides", "capacity", "limit"),
    [
        ([], 56_542, 2048),
        (["engine={admission: preempt_recompute, block_size: 16}"], 56_528, 2048),
        (["model.max_context=100000"], 56_542, 56_542),
        (["max_context=1000"], 56_542, 1000),
        (["max_context=56542"], 56_542, 56_542),
    ],
)
def test_capacity_and_longest_request(overrides: list[str], capacity: int, limit: int) -> None:
    scenario = load_scenario("steady-8b", [*OPT, *overrides])
    assert kv_capacity(scenario, Role.DECODE) == build_instance(scenario, 0, Role.DECODE).memory.capacity == capacity
    assert request_limit_tokens(scenario) == limit


def test_a_context_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CapacityError) as caught:
        request_limit_tokens(load_scenario("steady-8b", [*OPT, "max_context=56543"]))
    assert str(caught.value) == (
        "max_context is 56543 tokens, and the smallest instance has room for the KV of 56542; "
        "lower max_context or raise tp"
    )


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(
        CapacityError, match=r"model opt-175b does not fit on 1 x h100-sxm .* the smallest tp that fits is 6"
    ):
        build_instance(load_scenario("steady-8b", ["model=opt-175b"]), 0, Role.PREFILL)
    with pytest.raises(ConfigError, match="tp 3"):
        build_instance(load_scenario("steady-8b", ["tp=3"]), 0, Role.PREFILL)


def test_one_stage_is_no_pipeline() -> None:
    assert build_pipeline(load_scenario("demo"), Role.DECODE) is None


@pytest.mark.parametrize("pp", [2, 3, 4])
def test_stages_add_up_to_the_whole_plus_the_sends(pp: int) -> None:
    """While the same side of the roofline binds every stage, the stages' times are parts of the whole's."""
    scenario = load_scenario("demo", [f"pp={pp}"])
    pipeline = build_pipeline(scenario, Role.DECODE)
    assert pipeline is not None
    assert pipeline.depth == pp == len(build_instance(scenario, 0, Role.MIXED).batches)
    prompt = (4096, 1, 4096 * 2048.0, 4096)
    send = 2e-6 + 4096 * 8192 * 2 / (0.8 * 450e9)
    assert pipeline.enter(0.0, *prompt) == pytest.approx(
        build_cost(scenario, Role.DECODE).step_s(*prompt) + (pp - 1) * send
    )


def test_instances_take_index_role_and_epoch() -> None:
    instance = build_instance(load_scenario("colocated-8b", ["instances.mixed=4"]), 3, Role.MIXED, 2)
    assert (instance.index, instance.role, instance.state.epoch) == (3, Role.MIXED, 2)
    assert instance.scheduler.beside.token_budget == 512


@pytest.mark.parametrize(("admission", "load"), [("reserve_output", 30), ("preempt_recompute", 10)])
def test_router_counts_kv_as_admission_does(admission: str, load: int) -> None:
    scenario = load_scenario("demo", [f"engine.admission={admission}", "router.prefill_policy=round_robin"])
    router = build_router(scenario)
    assert router.prefill_policy == "round_robin"
    assert router.route_prompt(Request(0, 0.0, 10, 20)) is None
    router.open(0, Role.DECODE)
    router.route_handoff(Request(0, 0.0, 10, 20))
    assert router.handoffs.booked == {0: load}


def test_the_seed_breaks_ties() -> None:
    def choices(seed: int) -> list[int]:
        router = build_router(replace(load_scenario("demo"), seed=seed))
        for index in range(1000):
            router.open(index, Role.DECODE)
        return [choice.instance for choice in (router.route_handoff(Request(0, 0.0, 1, 1)) for _ in range(3)) if choice]

    assert choices(1) == choices(1) != choices(2)


HETEROGENEOUS = [
    "instances={prefill: 2, decode: 2}",
    "hardware.decode={gpu: a100-80gb, tp: 2, power_cap: 0.5}",
    "gpus_per_node=4",
]


def test_hardware_by_role() -> None:
    scenario = load_scenario("steady-8b", HETEROGENEOUS)
    prefill, decode = scenario.hardware_of(Role.PREFILL), scenario.hardware_of(Role.DECODE)
    assert (prefill.gpu.name, prefill.tp, prefill.power_cap) == ("h100-sxm", 1, 1.0)
    assert (decode.gpu.name, decode.gpu_link.name, decode.tp) == ("a100-80gb", "nvlink-a100", 2)
    assert scenario.num_gpus == 2 * 1 + 2 * 2
    assert kv_capacity(scenario, Role.DECODE) > 2 * kv_capacity(scenario, Role.PREFILL)
    assert decode.running_cost().usd_per_hour == pytest.approx(2 * 2.20)
    assert decode.running_cost().prefill_w == pytest.approx(2 * 400 * 0.5)


def test_a_role_change_moves_no_hardware() -> None:
    scenario = load_scenario("steady-8b", HETEROGENEOUS)
    moved = build_instance(scenario, 3, Role.PREFILL, epoch=1)
    assert moved.memory.capacity == kv_capacity(scenario, Role.DECODE)


def test_a_power_cap_slows_prefill_and_leaves_decode() -> None:
    full = build_cost(load_scenario("steady-8b"), Role.DECODE)
    capped = build_cost(load_scenario("steady-8b", ["power_cap=0.7"]), Role.DECODE)
    prompt, decodes = (4096, 1, 4096 * 2048, 4096), (32, 32, 32 * 1024, 32 * 1024)
    overhead = 0.0005
    assert (capped.step_s(*prompt) - overhead) / (full.step_s(*prompt) - overhead) == pytest.approx(1.3, rel=1e-3)
    assert capped.step_s(*decodes) == full.step_s(*decodes)


def test_kv_stays_on_a_node_where_it_can() -> None:
    placement = Placement(load_scenario("steady-8b", HETEROGENEOUS))
    assert placement.nodes == [0, 0, 0, 1]  # 1 + 1 + 2 GPUs fill the first node
    assert placement.link_between(0, 2).name == "nvlink-h100"
    assert placement.link_between(0, 3).name == "infiniband-400"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("hardware.decode.tp=0", "hardware.decode.tp is 0; it must be at least 1"),
        ("hardware.decode.power_cap=1.5", "hardware.decode.power_cap is 1.5; it is a share of the board power limit"),
        ("hardware.decode.gpu=h101-sxm", "did you mean h100-sxm or h200-sxm?"),
        ("hardware.decodes.tp=2", "hardware.decodes is not a known key; did you mean decode?"),
        ("gpus_per_node=0", "gpus_per_node is 0, and an instance takes 1 GPUs of one node"),
        ("handoff.mode=layerwise", "set handoff.initiative to push"),
        ("handoff.initiative=shove", "handoff.initiative is 'shove'; use pull or push"),
    ],
)
def test_hardware_faults(override: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        load_scenario("steady-8b", [override])


def test_stages_on_nodes_of_their_own_are_joined_by_the_stage_link():
    near = load_scenario("steady-8b", {"pp": 2})
    far = load_scenario("steady-8b", {"pp": 2, "stage_link": "ethernet-25"})
    assert (near.stage_link, far.stage_link.name) == (None, "ethernet-25")
    latencies = [build_pipeline(each, Role.PREFILL).enter(0.0, 1000, 1, 5e5, 1000) for each in (near, far)]
    activations = 1000 * 4096 * 2
    extra = far.stage_link.transfer_s(activations) - near.gpu_link.transfer_s(activations)
    assert latencies[1] - latencies[0] == pytest.approx(extra)
