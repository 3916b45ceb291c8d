"""Splitwise's cluster designs: which GPUs for prompts, which for tokens, within a power or a cost budget."""

from dataclasses import replace

from cluster.gpu import GpuSpec
from cluster.link import LinkSpec
from metrics.figure import ROLE_COLORS, Figure, figure
from scenario.loading import load_spec
from scenario.spec import HandoffConfig, Scenario
from sim.parallel import Mapper
from sim.placement.designs import COLOCATED, plans_of
from sim.placement.machine import GpuPool, Machine
from sim.placement.option import Option
from sim.placement.plan import Group, Plan, instances_for
from sim.placement.question import TOKEN_POWER_CAP, Question
from sim.studies.serving import Task, Traffic, colocated, search, serving
from sim.studies.steps import Steps
from sim.studies.study import Claim, Study, StudyTable, told

# Means of the Azure 2023 traces; sigma from their medians, 1,500 + 13 and 1,020 + 129 (Splitwise, section III-A).
CODE = Traffic(name="code", prompt=2048, output=28, sigma=0.79, output_sigma=1.24)
CHAT = Traffic(name="conversation", prompt=1155, output=211, sigma=0.50, output_sigma=0.99)
WORKLOADS = (CODE, CHAT)
MODEL = "llama-2-70b"
NUM_H100, NUM_A100 = 40, 70
"""Machines of 8 GPUs that draw the same power (section VI-B)."""
CODE_RATE = 70.0
BASELINE = ("mixed_batch", None)
SOURCE, PAPER = "Lecture 7, section 4.3", "Splitwise, section VI"

Goodputs = dict[tuple[str, str], float]
"""Requests/s of one machine, by workload and `label` of what it does on what."""


def run(parallel: Mapper) -> Study:
    """Single machines by simulation, clusters of them by rounding and limits, as `baton plan` does."""
    tasks: dict[tuple[str, str], Task] = {}
    for traffic in WORKLOADS:
        for option in all_options():
            scenario = option_scenario(traffic, option)
            part = {"prefill": "prefill", "decode": "decode"}.get(option.role, "whole")
            tasks[traffic.name, option.label] = Task(scenario, part)  # type: ignore[arg-type]
    found = dict(zip(tasks, parallel(search, list(tasks.values())), strict=True))
    goodputs = {key: carried.request_rate for key, carried in found.items()}
    by_power = {one.name: plans_within(one, goodputs, max_watts=power_budget_w()) for one in WORKLOADS}
    by_cost = {one.name: plans_within(one, goodputs, max_usd_per_hour=0.8 * cost_budget_usd()) for one in WORKLOADS}
    return Study(
        name="clusters",
        title="Splitwise's cluster designs",
        method=(
            "Llama-2-70B on machines of 8 GPUs (tensor parallel 8, KV layer by layer over 400 Gb/s InfiniBand), lengths lognormal by mean "
            "and median of the Azure traces. 90 % of requests within 3 times the TTFT and 1.5 times the TPOT that a "
            "request of mean length has alone on A100 (Splitwise asks for these of each request's own). Baselines are "
            f"colocated, with mixed batches. A budget of power is that of {NUM_H100} DGX-H100 or {NUM_A100} DGX-A100, as "
            f"in the paper; HHcap's token machines draw {TOKEN_POWER_CAP:.0%}."
        ),
        claims=_claims(goodputs, by_power, by_cost),
        tables=[
            StudyTable(
                "Goodput of one machine, req/s",
                ("machine", *(one.name for one in WORKLOADS)),
                [
                    (option.label, *(f"{goodputs[one.name, option.label]:.2f}" for one in WORKLOADS))
                    for option in all_options()
                ],
            ),
            *(
                StudyTable(
                    f"{one.name.capitalize()}: what the power budget carries",
                    ("design", "machines", "req/s", "kW", "$/h"),
                    [_row(name, plan) for name, plan in by_power[one.name].items()],
                )
                for one in WORKLOADS
            ),
        ],
        figures={"Requests/s within the power budget": _figure(by_power)},
    )


def _claims(
    goodputs: Goodputs, by_power: dict[str, dict[str, Plan]], by_cost: dict[str, dict[str, Plan]]
) -> list[Claim]:
    gain = {
        name: max(p.carries for d, p in plans.items() if d != _A100) / plans[_A100].carries
        for name, plans in by_power.items()
    }
    cheaper = {
        name: max(plan.carries for plan in plans.values())
        / (by_power[name][_A100].carries * cost_budget_usd() / by_power[name][_A100].usd_per_hour)
        for name, plans in by_cost.items()
    }
    counts = {name: machine_counts(plans["HH"]) for name, plans in by_power.items()}
    cap = {
        name: plans["HHcap"].watts / plans["HHcap"].carries * plans["HH"].carries / plans["HH"].watts
        for name, plans in by_power.items()
    }
    prefill, decode = (
        instances_for(CODE_RATE, goodputs[CODE.name, f"{role} on h100-sxm tp8"]) for role in ("prefill", "decode")
    )
    old = Steps.of(MODEL, "a100-80gb", tp=8)
    stall = old.step_s(8, int(CHAT.prompt), int(CHAT.prompt)) / old.step_s(8, int(CHAT.prompt))
    baseline = (
        f"mixed batches carry little here: a prompt of mean length makes a step {stall:.0f} times as long for the decodes "
        "in it, and the TPOT target allows 1.5 times"
    )
    optimism = "machines carry more here, so that fewer are needed"
    return [
        told(
            SOURCE,
            "code at 70 req/s on H100: prompt machines, token machines",
            "27, 3",
            f"{prefill}, {decode}",
            holds=prefill >= 3 * decode,
            reason=optimism,
        ),
        told(
            SOURCE,
            f"{NUM_H100} DGX-H100: code wants more prompt machines, conversation more token machines",
            "35 + 5, 25 + 15",
            ", ".join(f"{name} {x} + {y}" for name, (x, y) in counts.items()),
            holds=counts[CODE.name][0] > counts[CHAT.name][0] and counts[CODE.name][0] > counts[CODE.name][1],
            reason="ratios follow this model's and these SLOs' goodputs; the order is the paper's",
        ),
        told(
            PAPER,
            "within the same power: the best design over colocated A100",
            "up to 2.35 times",
            ", ".join(f"{name} {value:.2f} times" for name, value in gain.items()),
            holds=max(gain.values()) > 1,
            reason=baseline,
        ),
        told(
            PAPER,
            "for 20 % less money: the best design over colocated A100",
            "1.4 times",
            ", ".join(f"{name} {value:.2f} times" for name, value in cheaper.items()),
            holds=max(cheaper.values()) > 1,
            reason=baseline,
        ),
        told(
            PAPER,
            "HHcap carries what HH does on less power",
            "25 % less than the baseline",
            ", ".join(f"{name} {1 - value:.0%} less" for name, value in cap.items()),
            holds=max(cap.values()) <= 1,
            reason="only token machines are capped, and how many there are depends on the workload",
        ),
    ]


_A100 = "colocated A100"


def all_options() -> list[Option]:
    new, old = (_machine(gpu) for gpu in ("h100-sxm", "a100-80gb"))
    capped = replace(new, power_cap=TOKEN_POWER_CAP)
    return [
        *(Option("prefill", machine) for machine in (new, old)),
        *(Option("decode", machine) for machine in (new, old, capped)),
        *(Option("mixed", machine, *BASELINE) for machine in (new, old)),
    ]


def _machine(name: str) -> Machine:
    gpu = load_spec(GpuSpec, name)
    return Machine(gpu, load_spec(LinkSpec, gpu.link), tp=8)


def option_scenario(traffic: Traffic, option: Option) -> Scenario:
    """One such machine, to be searched whole or in halves."""
    base = _base(traffic)
    machine = option.machine
    alone = replace(base, gpu=machine.gpu, gpu_link=machine.link, power_cap=machine.power_cap)
    return colocated(alone, BASELINE)


def _base(traffic: Traffic) -> Scenario:
    old = Steps.of(MODEL, "a100-80gb", tp=8)
    ttft_ms = 3e3 * old.prefill_s(int(traffic.prompt))
    tpot_ms = 1.5e3 * old.step_s(1, int(traffic.prompt))
    base = serving(traffic, model=MODEL, gpu="h100-sxm", link="infiniband-400", ttft_ms=ttft_ms, tpot_ms=tpot_ms, tp=8)
    return replace(base, handoff=HandoffConfig(initiative="push", mode="layerwise"))


def power_budget_w() -> float:
    return NUM_H100 * _machine("h100-sxm").watts


def cost_budget_usd() -> float:
    return NUM_A100 * _machine("a100-80gb").usd_per_hour


def plans_within(traffic: Traffic, goodputs: Goodputs, **limit: float) -> dict[str, Plan]:
    """The best cluster of each design within the limit."""
    pools = tuple(GpuPool(machine.gpu, machine.link, 8000) for machine in (_machine("h100-sxm"), _machine("a100-80gb")))
    question = Question(scenario=_base(traffic), pools=pools, objective="rate", **limit)  # type: ignore[arg-type]
    groups = [
        Group(option, 1, goodputs[traffic.name, option.label])
        for option in all_options()
        if goodputs[traffic.name, option.label]
    ]
    best: dict[str, Plan] = {}
    for plan in plans_of(question, groups):
        best.setdefault(_design(plan), plan)
    return {name: best[name] for name in (_A100, "colocated H100", "AA", "HH", "HA", "HHcap") if name in best}


def _design(plan: Plan) -> str:
    if plan.design != COLOCATED:
        return plan.design.split()[-1]
    return f"{COLOCATED} {plan.groups[0].machine.gpu.name.partition('-')[0].upper()}"


def machine_counts(plan: Plan) -> tuple[int, int]:
    prefill, decode = plan.groups
    return prefill.count, decode.count


def _row(name: str, plan: Plan) -> tuple[str, ...]:
    return (name, plan.counts, f"{plan.carries:.0f}", f"{plan.watts / 1e3:.1f}", f"{plan.usd_per_hour:,.0f}")


def _figure(by_power: dict[str, dict[str, Plan]]) -> Figure:
    colors = {CODE.name: ROLE_COLORS["prefill"], CHAT.name: ROLE_COLORS["decode"]}
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": list(plans),
            "y": [round(plan.carries, 2) for plan in plans.values()],
            "marker": {"color": colors[name]},
        }
        for name, plans in by_power.items()
    ]
    return figure(bars, "", "req/s", height=340, barmode="group", xaxis={"type": "category"})
