"""What each phase needs of a GPU, and whether decoding on an older one pays: it hangs on the TPOT target."""

from dataclasses import replace

import numpy as np

from cluster.cost import Roofline
from cluster.gpu import GpuSpec, capped_compute
from cluster.link import LinkSpec
from cluster.model import ModelSpec
from metrics.figure import Figure, figure, line, line_style
from scenario.hardware import HardwareByRole, RoleHardware
from scenario.loading import load_spec
from scenario.spec import Scenario
from sim.parallel import Mapper
from sim.studies.serving import CHAT, Carried, Task, apart, search, serving
from sim.studies.steps import Steps
from sim.studies.study import Claim, Study, StudyTable, beyond, printed, told

PHASES, COST = "Lecture 7, section 4.1", "Lecture 7, section 4.3"
TTFT_MS = 200.0
TARGETS_MS = (50.0, 40.0, 30.0, 25.0)
H100, ONE_A100, TWO_A100 = "one H100 instance", "one A100 instance", "two A100 instances"
DECODES = {H100: ("h100-sxm", 1), ONE_A100: ("a100-80gb", 1), TWO_A100: ("a100-80gb", 2)}
"""What decodes beside two H100 instances that prefill."""
LOOSE, TIGHT, TIGHTEST = TARGETS_MS[0], TARGETS_MS[2], TARGETS_MS[3]

Found = dict[tuple[float, str], Carried]


def run(parallel: Mapper) -> Study:
    """The phases by the cost model, and the price of decoding on A100 by simulation."""
    scenarios = {(target, what): _scenario(target, what) for target in TARGETS_MS for what in DECODES}
    found = dict(zip(scenarios, parallel(search, [Task(one) for one in scenarios.values()]), strict=True))
    dollars = _dollars(scenarios)
    return Study(
        name="splitwise",
        title="What each phase needs of a GPU, and decoding on older ones",
        method=(
            "The phases by the cost model, for BLOOM-176B on a node of 8. Then Llama-3-70B, tensor parallel over 4 GPUs: "
            "two H100 instances prefill, H100 or A100 decode, KV over 400 Gb/s InfiniBand; chat, 90 % of requests within "
            f"a TTFT of {TTFT_MS:g} ms (the lecture does not tell its own) and the TPOT target. Prices as in Splitwise's "
            "Table 1: $4.75 and $2.20 an hour."
        ),
        claims=[*phase_claims(), *_cost(found, dollars)],
        tables=[
            StudyTable(
                "Goodput, req/s (and per dollar of an hour), by TPOT target",
                ("decode", "$/h", *(f"{target:g} ms" for target in TARGETS_MS)),
                [
                    (
                        what,
                        f"{dollars[what]:.2f}",
                        *(
                            f"{found[target, what].request_rate:.1f} ({found[target, what].request_rate / dollars[what]:.3f})"
                            for target in TARGETS_MS
                        ),
                    )
                    for what in DECODES
                ],
            )
        ],
        figures={"Requests/s per dollar of an hour, by TPOT target": _figure(found, dollars)},
    )


def phase_claims() -> list[Claim]:
    new, old = (Steps.of("bloom-176b", gpu, tp=8) for gpu in ("h100-sxm", "a100-80gb"))
    capped = _capped(0.5)
    batches = {batch: batch / new.step_s(batch, 1500) for batch in (1, 8, 32)}
    slower = capped.prefill_s(1500) / new.prefill_s(1500)
    long, longer = (tokens / new.prefill_s(tokens) for tokens in (2048, 4096))
    roofline = "ratios of a roofline are those of the data sheets, 0.32 and 0.61; kernels reach less of a new GPU"
    return [
        printed(
            PHASES,
            "BLOOM-176B: a prompt of 1,500 tokens takes as long as generating",
            "6 tokens",
            [new.prefill_s(1500) / new.step_s(1, 1500)],
        ),
        told(
            PHASES,
            "from A100 to H100: TTFT, and TBT",
            "0.5, 0.7 times",
            f"{new.prefill_s(1500) / old.prefill_s(1500):.2f}, {new.step_s(1, 1500) / old.step_s(1, 1500):.2f} times",
            holds=new.prefill_s(1500) / old.prefill_s(1500) < new.step_s(1, 1500) / old.step_s(1, 1500) < 1,
            reason=roofline,
        ),
        told(
            PHASES,
            "half the power leaves the time of a token almost as it is, and not that of a prompt",
            "almost unchanged; slower",
            f"token {capped.step_s(32, 1500) / new.step_s(32, 1500):.2f} times, prompt {slower:.2f} times",
            holds=capped.step_s(32, 1500) < 1.02 * new.step_s(32, 1500) and slower > 1.3,
        ),
        told(
            PHASES,
            "decodes: the larger the batch the better, until memory is full",
            "better",
            ", ".join(f"{batch}: {rate:,.0f} tokens/s" for batch, rate in batches.items()),
            holds=sorted(batches.values()) == list(batches.values()),
        ),
        beyond(
            PHASES,
            "prompts: beyond 2,048 tokens in a batch throughput falls",
            "it falls",
            "what makes large kernels slower is not in a roofline; only attention over a longer prompt is",
            ours=f"{long:,.0f} tokens/s at 2,048, {longer:,.0f} at 4,096",
        ),
        beyond(
            PHASES,
            "chat on Azure: share of time with at most 20 active tokens; median prompts and outputs",
            "60 to 70 %; 1,020 + 129, code 1,500 + 13",
            "a property of the traces; `baton trace` tells it of one",
        ),
    ]


def _cost(found: Found, dollars: dict[str, float]) -> list[Claim]:
    def per_dollar(target: float, what: str) -> float:
        return found[target, what].request_rate / dollars[what]

    new, old = (load_spec(GpuSpec, gpu) for gpu in ("h100-sxm", "a100-80gb"))
    steps = [Steps.of("llama-3-70b", gpu, tp=4).step_s(16, 855) for gpu in ("a100-80gb", "h100-sxm")]
    enough = found[LOOSE, ONE_A100].request_rate / found[LOOSE, H100].request_rate
    at_tight = [found[TIGHT, what].request_rate / found[TIGHT, H100].request_rate for what in (ONE_A100, TWO_A100)]
    at_tightest = max(found[TIGHTEST, what].request_rate for what in (ONE_A100, TWO_A100))
    return [
        printed(
            COST, "an A100 decodes slower, by bandwidth", "1.64 times", [new.bandwidth_bytes_s / old.bandwidth_bytes_s]
        ),
        told(
            COST,
            "an A100 decodes slower, by a step of 16 sequences on 4 GPUs",
            "1.64 times",
            f"{steps[0] / steps[1]:.2f} times",
            holds=1.4 < steps[0] / steps[1] < 1.65,
            reason="the overhead of a step and the latency of all-reduces are the same on both",
        ),
        printed(
            COST,
            "where one A100 instance is enough, requests per dollar: more by",
            "22 %",
            [100 * (dollars[H100] / dollars[ONE_A100] - 1)],
        ),
        told(
            COST,
            f"TPOT {LOOSE:g} ms: one A100 instance is enough",
            "+22 % per dollar",
            f"{enough:.0%} of the requests, {per_dollar(LOOSE, ONE_A100) / per_dollar(LOOSE, H100) - 1:+.0%} per dollar",
            holds=enough > 0.85 and per_dollar(LOOSE, ONE_A100) > per_dollar(LOOSE, H100),
            reason=f"the lecture's prefill instances carry less, as its TTFT target or lengths differ: short first is "
            f"{found[LOOSE, ONE_A100].limit}",
        ),
        told(
            COST,
            f"TPOT {TIGHT:g} ms: one A100 instance is not enough, two draw level, and the advantage is almost gone",
            "level, almost no advantage",
            f"one {at_tight[0]:.0%}, two {at_tight[1]:.0%} of the requests, "
            f"{per_dollar(TIGHT, TWO_A100) / per_dollar(TIGHT, H100) - 1:+.0%} per dollar",
            holds=at_tight[0] < 0.8 and at_tight[1] > 0.9,
        ),
        told(
            COST,
            f"TPOT {TIGHTEST:g} ms: A100 hardly meets it",
            "hardly",
            f"{at_tightest:.1f} req/s, and H100 {found[TIGHTEST, H100].request_rate:.1f}",
            holds=at_tightest < 0.25 * found[TIGHTEST, H100].request_rate,
        ),
    ]


def _capped(power_cap: float) -> Steps:
    gpu = load_spec(GpuSpec, "h100-sxm")
    link = load_spec(LinkSpec, gpu.link)
    model = load_spec(ModelSpec, "bloom-176b")
    return Steps(Roofline(model, gpu, tp=8, link=link, compute_scale=capped_compute(power_cap)))


def _scenario(tpot_ms: float, what: str) -> Scenario:
    name, count = DECODES[what]
    gpu = load_spec(GpuSpec, name)
    base = serving(
        CHAT, model="llama-3-70b", gpu="h100-sxm", link="infiniband-400", ttft_ms=TTFT_MS, tpot_ms=tpot_ms, tp=4
    )
    decode = RoleHardware() if gpu == base.gpu else RoleHardware(gpu=gpu, gpu_link=load_spec(LinkSpec, gpu.link))
    return replace(apart(base, 2, count), hardware=HardwareByRole(decode=decode))


def _dollars(scenarios: dict[tuple[float, str], Scenario]) -> dict[str, float]:
    """An hour of all GPUs."""
    return {
        what: sum(one.hardware_of(role).running_cost().usd_per_hour for role in one.roles)
        for what in DECODES
        for one in [scenarios[LOOSE, what]]
    }


def _figure(found: Found, dollars: dict[str, float]) -> Figure:
    targets = np.array(TARGETS_MS)
    lines = [
        {
            **line(
                targets,
                np.array([found[target, what].request_rate / dollars[what] for target in TARGETS_MS]),
                f"decode on {what}",
                line_style(index),
            ),
            "mode": "lines+markers",
        }
        for index, what in enumerate(DECODES)
    ]
    return figure(lines, "TPOT target, ms", "req/s per $/h", height=320)
