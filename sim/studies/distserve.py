"""DistServe's evaluation: its three applications and models, its placements, against vLLM's policy and chunked prefill."""

from dataclasses import dataclass, replace

from cluster.model import ModelSpec
from metrics.figure import Figure, figure, line_style
from metrics.slo import SloSpec
from scenario.hardware import HardwareByRole, RoleHardware
from scenario.loading import load_spec
from scenario.spec import Scenario
from sim.goodput import find_goodput
from sim.parallel import Mapper
from sim.probe import Finding, Probe
from sim.studies.serving import (
    CHAT,
    CODE,
    SAMPLING,
    SUMMARISATION,
    TOLERANCE,
    Batching,
    Carried,
    Task,
    Traffic,
    apart,
    colocated,
    per_gpu,
    search,
    serving,
    split_name,
)
from sim.studies.study import Claim, Study, StudyTable, told

SPLITS = ((1, 1), (2, 1), (1, 2))
VLLM, CHUNKS = "vLLM", "DeepSpeed-MII"
BATCHINGS: dict[str, Batching] = {VLLM: ("prefill_first", None), CHUNKS: ("chunked_prefill", 512)}
SOURCE = "DistServe, section 6.2"


@dataclass(frozen=True, slots=True)
class Application:
    """A row of Table 1, with the parallelism of Table 3 and section 6.1 as (tp, pp), and what figures 8 and 9 report."""

    traffic: Traffic
    model: str
    slo: str
    together: int
    """tp of the baselines."""
    prefill: tuple[int, int]
    decode: tuple[int, int]
    over_vllm: str
    over_chunks: str
    tighter: str
    """SLOs that the same rate meets, over those of vLLM and of DeepSpeed-MII."""

    @property
    def name(self) -> str:
        return f"{self.traffic.name}, {self.model}"


CHAT_REPORTED = ("2.0 to 4.6 times", "1.6 to 7.4 times", "1.8 to 3.2 times over vLLM")
"""For all three models."""
APPLICATIONS = (
    Application(CHAT, "opt-13b", "chatbot-opt-13b", 1, (2, 1), (1, 1), *CHAT_REPORTED),
    Application(CHAT, "opt-66b", "chatbot-opt-66b", 4, (4, 1), (2, 2), *CHAT_REPORTED),
    Application(CHAT, "opt-175b", "chatbot-opt-175b", 8, (3, 3), (4, 3), *CHAT_REPORTED),
    Application(
        CODE, "opt-66b", "code-completion-opt-66b", 4, (4, 1), (2, 2), "5.7 times", "1.6 times", "1.4 times over vLLM"
    ),
    Application(
        SUMMARISATION,
        "opt-66b",
        "summarization-opt-66b",
        4,
        (4, 1),
        (2, 2),
        "4.3 times",
        "1.8 times",
        "12.6 times over vLLM, 2.6 over DeepSpeed-MII",
    ),
)

Rates = dict[tuple[str, str], float]
"""Requests/s per GPU, by application and system."""


@dataclass(frozen=True, slots=True)
class ScaleTask:
    """How tight SLOs may be at a rate."""

    scenario: Scenario
    request_rate: float


def run(parallel: Mapper) -> Study:
    """Goodput of every system, then how tight SLOs may be at a rate that all carry."""
    tasks = {
        (one, system): scenario for one in APPLICATIONS for system, scenario in systems_of(one, attainment=0.9).items()
    }
    strict = systems_of(APPLICATIONS[0], attainment=0.99)
    found = parallel(search, [Task(one) for one in [*tasks.values(), *strict.values()]])
    carried = dict(zip(tasks, found, strict=False))
    best = {
        one: max(_split_names(), key=lambda way: per_gpu(tasks[one, way], carried[one, way])) for one in APPLICATIONS
    }
    rates = {(one.name, system): per_gpu(tasks[one, system], carried[one, system]) for one, system in tasks}
    at_99 = {name: per_gpu(strict[name], one) for name, one in zip(strict, found[len(tasks) :], strict=True)}
    scaled = {
        (one.name, system): ScaleTask(
            tasks[one, system], _common_rate(rates, one, best[one]) * tasks[one, system].num_gpus
        )
        for one in APPLICATIONS
        for system in (VLLM, CHUNKS, best[one])
    }
    scales = dict(zip(scaled, parallel(tightest, list(scaled.values())), strict=True))
    return Study(
        name="distserve",
        title="DistServe's applications, models and placements",
        method=(
            "On A100 with tensor-parallel communication and KV over NVLink, lengths lognormal with the means of the "
            "paper's datasets and cut to 2,048 tokens, SLOs of Table 1, parallelism as the paper chose it: vLLM "
            "(prefill_first) and DeepSpeed-MII (chunks of 512) with TP 1, 4 and 8, DistServe's prefill and decode "
            f"instances as {', '.join(map(split_name, SPLITS))}, of which the best counts. Goodput per GPU."
        ),
        claims=[
            *(claim for one in APPLICATIONS for claim in _claims(one, rates, scales, best[one], carried)),
            _at_99(at_99),
        ],
        tables=[
            StudyTable(
                "Goodput per GPU, req/s",
                ("application", VLLM, CHUNKS, *map(split_name, SPLITS)),
                [
                    (one.name, *(f"{rates[one.name, system]:.2f}" for system in (VLLM, CHUNKS, *_split_names())))
                    for one in APPLICATIONS
                ],
            ),
            StudyTable(
                "The tightest SLOs, as a share of Table 1's, at 70 % of the rate that all three carry",
                ("application", VLLM, CHUNKS, "best xPyD"),
                [
                    (one.name, *(f"{scales[one.name, system]:.2f}" for system in (VLLM, CHUNKS, best[one])))
                    for one in APPLICATIONS
                ],
            ),
        ],
        figures={"Goodput per GPU over vLLM's": _figure(rates, best)},
    )


def tightest(task: ScaleTask) -> float:
    """What SLOs can be multiplied with at the rate; 0 where they are missed as they are."""

    def at(tightness: float) -> Finding:
        slo = task.scenario.slo
        assert slo.ttft_ms is not None
        assert slo.tpot_ms is not None
        scaled = replace(slo, ttft_ms=slo.ttft_ms / tightness, tpot_ms=slo.tpot_ms / tightness)
        scenario = replace(task.scenario, slo=scaled)
        return Probe(scenario, sampling=SAMPLING, drift_limit=TOLERANCE).at(task.request_rate)

    found = find_goodput(at, hint=1.0, lowest=0.25, highest=64.0, relative_tolerance=0.03).request_rate
    return 1 / found if found else 0.0


def _claims(
    one: Application, rates: Rates, scales: Rates, best: str, carried: dict[tuple[Application, str], Carried]
) -> list[Claim]:
    ours = rates[one.name, best]
    claims = []
    for system, published in ((VLLM, one.over_vllm), (CHUNKS, one.over_chunks)):
        ratio = ours / rates[one.name, system]
        claim = told(
            SOURCE,
            f"{one.name}: goodput per GPU over {system}",
            published,
            f"{ratio:.2f} times ({best})",
            holds=ratio > 1,
            reason=_why(one, best, carried[one, best], wins=ratio > 1),
        )
        claims.append(claim)
    tighter = [scales[one.name, system] / scales[one.name, best] for system in (VLLM, CHUNKS)]
    claims.append(
        told(
            SOURCE,
            f"{one.name}: tighter SLOs at the same rate",
            one.tighter,
            f"{tighter[0]:.2f} times over {VLLM}, {tighter[1]:.2f} over {CHUNKS}",
            holds=tighter[0] > 1,
            reason="the rate, per GPU, is one that all three carry here"
            if tighter[0] > 1
            else _why(one, best, carried[one, best], wins=False),
        )
    )
    return claims


def _why(one: Application, best: str, carried: Carried, *, wins: bool) -> str:
    if wins:
        return "the baseline has no runtime overhead here, and loses less"
    kv_mb = load_spec(ModelSpec, one.model).kv_bytes_per_token / 1e6
    return (
        f"short first of {best} is {carried.limit}: with {kv_mb:.1f} MB of KV a token, colocated instances use the memory "
        "of every GPU, and the baselines have no runtime overhead here"
    )


def _at_99(rates: dict[str, float]) -> Claim:
    best = max(_split_names(), key=lambda way: rates[way])
    ratio = rates[best] / rates[VLLM] if rates[VLLM] else float("inf")
    return told(
        SOURCE,
        f"{APPLICATIONS[0].name}, 99 % of requests good: goodput per GPU over {VLLM}",
        "3 to 8 times",
        f"{ratio:.2f} times ({best} {rates[best]:.2f}, {VLLM} {rates[VLLM]:.2f})",
        holds=ratio > 1,
        reason="the baseline has no runtime overhead here, and loses less",
    )


def _common_rate(rates: Rates, one: Application, best: str) -> float:
    """Per GPU, well within what each carries at the SLOs as they are."""
    return 0.7 * min(rates[one.name, system] for system in (VLLM, CHUNKS, best))


def _split_names() -> list[str]:
    return list(map(split_name, SPLITS))


def systems_of(one: Application, *, attainment: float) -> dict[str, Scenario]:
    targets = load_spec(SloSpec, one.slo)
    base = serving(
        one.traffic,
        model=one.model,
        gpu="a100-80gb",
        link="nvlink-a100",
        ttft_ms=targets.ttft_ms,
        tpot_ms=targets.tpot_ms,
        tp=one.together,
    )
    base = replace(base, slo=replace(base.slo, attainment=attainment))
    roles = HardwareByRole(
        prefill=RoleHardware(tp=one.prefill[0], pp=one.prefill[1]),
        decode=RoleHardware(tp=one.decode[0], pp=one.decode[1]),
    )
    systems = {name: colocated(base, batching) for name, batching in BATCHINGS.items()}
    return systems | {split_name(split): replace(apart(base, *split), hardware=roles) for split in SPLITS}


def _figure(rates: Rates, best: dict[Application, str]) -> Figure:
    names = [one.name for one in APPLICATIONS]
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": names,
            "y": [round(rates[one.name, way or best[one]] / rates[one.name, VLLM], 3) for one in APPLICATIONS],
            "marker": {"color": line_style(index)["color"]},
        }
        for index, (name, way) in enumerate(((VLLM, VLLM), (CHUNKS, CHUNKS), ("best xPyD", "")))
    ]
    return figure(bars, "", "times", height=340, barmode="group", xaxis={"type": "category"})
