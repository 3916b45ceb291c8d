"""One kind of instance to evaluate: a machine in a role, and how it batches."""

from dataclasses import dataclass, replace

from cluster.scheduling import COLOCATED
from scenario.hardware import HardwareByRole
from scenario.spec import InstanceCounts, Scenario
from sim.placement.halves import decode_alone, first_tokens_only, prefill_alone
from sim.placement.machine import Machine
from sim.placement.question import Question
from workload.trace import Trace


@dataclass(frozen=True, slots=True)
class Option:
    """role: prefill, decode or mixed. policy and token_budget: of the mixed role.

    is_near: prefill and decode share nodes, and KV stays on the link between their GPUs.
    """

    role: str
    machine: Machine
    policy: str = ""
    token_budget: int | None = None
    is_near: bool = False
    is_unusual: bool = False
    """Batches in another way than most colocated deployments do."""

    @property
    def label(self) -> str:
        role = self.batching if self.role == "mixed" else f"{self.role} in a unit" if self.is_near else self.role
        return f"{role} on {self.machine.label}"

    @property
    def batching(self) -> str:
        return self.policy if self.token_budget is None else f"{self.policy} {self.token_budget}"

    def scenario(self, base: Scenario, count: int = 1) -> Scenario:
        """So many of such instances, with nothing else; `base` gives everything but the hardware."""
        alone = on_machine(base, self.machine)
        if self.is_near:
            alone = replace(alone, link=self.machine.link)
        if self.role == "prefill":
            return prefill_alone(alone, count)
        if self.role == "decode":
            return decode_alone(alone, count)
        engine = replace(base.engine, policy=self.policy, token_budget=self.token_budget)
        return replace(alone, instances=InstanceCounts(mixed=count), engine=engine)

    def trim(self, trace: Trace) -> Trace:
        """What such instances see of the requests."""
        return first_tokens_only(trace) if self.role == "prefill" else trace


def on_machine(base: Scenario, machine: Machine) -> Scenario:
    """The scenario with every instance on such a machine, on a node of its own, in a fixed role."""
    return replace(
        base,
        gpu=machine.gpu,
        gpu_link=machine.link,
        tp=machine.tp,
        pp=machine.pp,
        power_cap=machine.power_cap,
        stage_link=base.link if machine.num_nodes > 1 else None,
        hardware=HardwareByRole(),
        gpus_per_node=None,
        planner=replace(base.planner, policy="static"),
    )


def halves(question: Question, machines: list[Machine], spread: list[Machine]) -> list[Option]:
    """Prefill and decode instances; decode also with a power cap, and both in units that keep KV on their nodes.

    Prefill within one node is the same in a unit or not. `spread` are machines over several nodes.
    """
    options = [Option("prefill", machine) for machine in machines]
    for cap in question.decode_caps():
        options += [Option("decode", replace(machine, power_cap=cap)) for machine in machines]
    if machines and machines[0].link == question.scenario.link:
        return options
    small = [machine for machine in machines if machine.num_gpus < question.gpus_per_node]
    options += [Option("decode", machine, is_near=True) for machine in small]
    return options + [Option(role, machine, is_near=True) for role in ("prefill", "decode") for machine in spread]


def colocated(question: Question, machines: list[Machine]) -> list[Option]:
    """Every policy and chunk budget on every machine; chunked prefill with a middling budget is the usual one."""
    usual = sorted(question.budgets)[(len(question.budgets) - 1) // 2]
    batchings: list[tuple[str, int | None, bool]] = [
        ("chunked_prefill", budget, budget != usual) for budget in question.budgets
    ]
    batchings += [(policy, None, True) for policy in COLOCATED if policy != "chunked_prefill"]
    return [
        Option("mixed", machine, policy, budget, is_unusual=is_unusual)
        for policy, budget, is_unusual in batchings
        for machine in machines
    ]
