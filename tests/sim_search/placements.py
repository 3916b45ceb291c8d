"""Machines, groups, questions and scenarios to plan with in tests."""

from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from scenario.loading import load_scenario, load_spec
from sim.placement.machine import GpuPool, Machine
from sim.placement.option import Option
from sim.placement.plan import Group
from sim.placement.question import Question

GPUS = {name: load_spec(GpuSpec, name) for name in ("a100-80gb", "h100-sxm", "l40s")}
LINKS = {name: load_spec(LinkSpec, gpu.link) for name, gpu in GPUS.items()}


def pool(name, count):
    return GpuPool(GPUS[name], LINKS[name], count)


def machine(tp=1, pp=1, gpu="h100-sxm", **more):
    return Machine(GPUS[gpu], LINKS[gpu], tp, pp, **more)


def group(role, goodput, count=1, is_near=False, **shape):
    policy = {"policy": "chunked_prefill", "token_budget": 512} if role == "mixed" else {}
    return Group(Option(role, machine(**shape), is_near=is_near, **policy), count, goodput)


def question(**changes):
    base = {"scenario": load_scenario("demo"), "pools": (pool("h100-sxm", 64),), "request_rate": 10.0, "headroom": 0.0}
    return Question(**{**base, **changes})


FIXED = {"prompt": {"mean": 1000, "kind": "fixed"}, "output": {"mean": 50, "kind": "fixed"}}


def one_size(**changes):
    phase = {"duration_s": 60, "request_rate": 1, **FIXED}
    base = {"workload.phases": [phase], "instances": {"prefill": 1, "decode": 1}, "engine.prefill_batch_tokens": 1}
    return load_scenario("steady-8b", {**base, **changes})
