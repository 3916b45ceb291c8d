"""How big the KV of a prompt is, how long it takes to move, and what sending it layer by layer hides."""

from dataclasses import replace

import numpy as np

from cluster.link import LinkSpec
from cluster.model import ModelSpec
from metrics.figure import Figure, figure, line, line_style
from metrics.latency import e2e_s, ttst_s
from scenario.loading import load_scenario, load_spec
from scenario.spec import HandoffConfig, InstanceCounts, Scenario
from sim.parallel import Mapper
from sim.studies.steps import Steps
from sim.studies.study import Claim, Study, StudyTable, printed, told
from sim.variants import run_scenario, with_phases
from workload.spec import Lengths

PROMPTS = (512, 1024, 2048, 4096)
LINKS = ("nvlink-a100", "infiniband-400", "ethernet-25")
MODELS = ("opt-13b", "opt-66b", "opt-175b", "llama-3-8b", "llama-3-70b")
SIZES, LAYERWISE = "Lecture 7, section 3.4", "Lecture 7, section 4.2"
CODE_PROMPT, CODE_OUTPUT = 1500, 13
"""Medians of Splitwise's coding trace (section III-A)."""


def run(parallel: Mapper) -> Study:
    """Sizes and times by the cost model; what a handoff adds to a request by simulating one."""
    ways = {
        "no transfer": _one_request("ideal", HandoffConfig()),
        "serial": _one_request("infiniband-400", HandoffConfig(initiative="push")),
        "layerwise": _one_request("infiniband-400", HandoffConfig(initiative="push", mode="layerwise")),
    }
    added = dict(zip(ways, parallel(second_token_and_e2e_s, list(ways.values())), strict=True))
    return Study(
        name="transfer",
        title="KV transfers: how much, how long, and what layers hide",
        method=(
            "The cost model: KV bytes of a prompt, alone on a link at 80 % of its nominal rate. The rows on Llama-3-70B "
            "have 4 H100 with their tensor-parallel communication and one 400 Gb/s InfiniBand port. What a handoff adds "
            f"to a request of {CODE_PROMPT:,} + {CODE_OUTPUT} tokens (Splitwise's coding trace in the median) is "
            "simulated with that request alone."
        ),
        claims=[*_sizes(), *_layerwise(), *_one_handoff(added)],
        tables=[
            StudyTable(
                "KV of a prompt of 512 tokens",
                ("model", "GB", "GiB", *(f"{link}, ms" for link in LINKS), "Gb/s at 10 req/s"),
                [_size_row(name) for name in MODELS],
            ),
            StudyTable(
                "Llama-3-70B on 4 H100, over InfiniBand: what is left to send after the prefill, over its time",
                ("prompt", "prefill, ms", "serial, ms", "layer by layer, ms", "serial", "layer by layer"),
                [_layer_row(tokens) for tokens in PROMPTS],
            ),
        ],
        figures={"Transfer time of a prompt's KV": _figure()},
    )


def _sizes() -> list[Claim]:
    opt, gqa = load_spec(ModelSpec, "opt-66b"), load_spec(ModelSpec, "llama-3-70b")
    kv_bytes = 512 * opt.kv_bytes_per_token
    prefill_s = Steps.of("opt-66b", "a100-80gb", tp=4).prefill_s(512)
    nvlink_s, ethernet_s = (_link(name).transfer_s(kv_bytes) for name in ("nvlink-a100", "ethernet-25"))
    return [
        printed(SIZES, "OPT-66B: KV of 512 tokens", "1.21 GB (1.12 GiB)", [kv_bytes / 1e9, kv_bytes / 2**30]),
        printed(
            "DistServe, section 3.3",
            "OPT-66B: KV of 512 tokens",
            "1.13 GB",
            [kv_bytes / 2**30],
            reason="it is 1.125 GiB, which the paper calls GB and rounds up",
        ),
        printed(SIZES, "ten such requests a second need", "97 Gb/s", [10 * kv_bytes * 8 / 1e9]),
        told(
            SIZES,
            "one of them over 25 Gb/s Ethernet takes",
            "almost half a second",
            f"{ethernet_s:.3f} s",
            holds=0.45 < ethernet_s < 0.5,
        ),
        told(
            SIZES,
            "over NVLink it takes a small part of the prefill's time",
            "a fraction",
            f"{1e3 * nvlink_s:.1f} ms beside {1e3 * prefill_s:.0f} ms on 4 A100: {nvlink_s / prefill_s:.0%}",
            holds=nvlink_s < 0.1 * prefill_s,
        ),
        told(
            SIZES,
            "grouped-query attention makes KV smaller by an order of magnitude (Llama-3-70B against OPT-66B)",
            "an order of magnitude",
            f"{opt.kv_bytes_per_token / gqa.kv_bytes_per_token:.1f} times",
            holds=opt.kv_bytes_per_token > 5 * gqa.kv_bytes_per_token,
            reason="8 KV heads of 64, in a model of a quarter more layers than OPT-66B",
        ),
        _opt_175b(),
    ]


def _opt_175b() -> Claim:
    """DistServe's placement for chat: 3 stages of 3 GPUs prefill, 3 of 4 decode, KV on the NVLink of its nodes."""
    model = load_spec(ModelSpec, "opt-175b")
    # Of 755 tokens in the mean and sigma 0.6, 95 % are shorter than this.
    p95 = 755 * float(np.exp(-(0.6**2) / 2 + 1.645 * 0.6))
    whole_ms = 1e3 * _link("nvlink-a100").transfer_s(p95 * model.kv_bytes_per_token)
    nine_ms = 1e3 * _link("nvlink-a100").transfer_s(p95 * model.kv_bytes_per_token / 9)
    mean_s = _link("nvlink-a100").transfer_s(755 * model.kv_bytes_per_token / 9)
    decode_s = 3 * 199 * Steps.of("opt-175b", "a100-80gb", tp=4, pp=3).step_s(16, 855)
    return told(
        "DistServe, section 6.3",
        "OPT-175B, chat, KV on the NVLink of a node: 95 % of transfers, and their share of the latency",
        "below 30 ms, below 0.1 %",
        f"{nine_ms:.1f} ms, {mean_s / (mean_s + decode_s):.2%}",
        holds=nine_ms < 30 and mean_s < 0.001 * decode_s,
        reason=(
            f"all 9 prefill GPUs send their part at once; over one link, which is what Baton's instances have, it takes "
            f"{whole_ms:.0f} ms"
        ),
    )


def _layerwise() -> list[Claim]:
    serial, layered = _shares(2048)
    layers = load_spec(ModelSpec, "llama-3-70b").num_layers
    what = "a prompt of 2,048 tokens: visible transfer, over the prefill's time"
    return [
        printed(LAYERWISE, f"{what}, serial", "13 %", [100 * serial]),
        printed(LAYERWISE, f"{what}, layer by layer", "0.2 %", [100 * layered]),
        printed(LAYERWISE, "of the KV, what is left when the prefill ends", "1/80", [1, layers]),
    ]


def _one_handoff(added: dict[str, tuple[float, float]]) -> list[Claim]:
    base, serial, layered = (added[way] for way in ("no transfer", "serial", "layerwise"))
    second = [one[0] / base[0] - 1 for one in (serial, layered)]
    whole = [one[1] / base[1] - 1 for one in (serial, layered)]
    layered_ms = 1e3 * (layered[0] - base[0])
    return [
        told(
            "Splitwise, section VI-A",
            "what a handoff adds to the second token: serial, layer by layer",
            "64 %, 16.5 %",
            f"{second[0]:.0%}, {second[1]:.1%}",
            holds=second[0] > 3 * second[1] > 0,
            reason="their layer-wise sends cost 5 ms (H100) to synchronise; here only the last layer is left",
        ),
        told(
            "Splitwise, section VI-A",
            "layer by layer, what does not overlap is the same for all prompts: A100, H100",
            "8 ms, 5 ms",
            f"H100: {layered_ms:.2f} ms",
            holds=layered_ms < 5,
            reason="the software's share is not modelled, only the link",
        ),
        told(
            "Splitwise, section VI-A",
            "layer by layer, a handoff adds to the end-to-end latency",
            "0.8 %",
            f"{whole[1]:.2%}",
            holds=whole[1] < 0.008,
            reason="the software's share is not modelled, only the link",
        ),
        told(
            "Splitwise, section VI-A",
            "the visible transfer is, of the prompt's computation, less than",
            "7 %",
            f"{max(_shares(tokens)[1] for tokens in PROMPTS):.1%}",
            holds=max(_shares(tokens)[1] for tokens in PROMPTS) < 0.07,
        ),
    ]


def second_token_and_e2e_s(scenario: Scenario) -> tuple[float, float]:
    """From the first to the second token, and end to end, of the scenario's only request."""
    records = run_scenario(scenario).records
    return float(ttst_s(records)[0]), float(e2e_s(records)[0])


def _one_request(link: str, handoff: HandoffConfig) -> Scenario:
    base = load_scenario("steady-8b", {"model": "llama-3-70b", "tp": 4, "link": link})
    prompt, output = Lengths(mean=CODE_PROMPT, kind="fixed"), Lengths(mean=CODE_OUTPUT, kind="fixed")
    phase = replace(
        base.workload.phases[0], duration_s=1, request_rate=1, arrivals="constant", prompt=prompt, output=output
    )
    one = replace(base, instances=InstanceCounts(prefill=1, decode=1), handoff=handoff)
    return with_phases(one, [phase])


def _link(name: str) -> LinkSpec:
    return load_spec(LinkSpec, name)


def _parts_s(tokens: int) -> tuple[float, float, float]:
    """Prefill, the whole transfer, and that of one layer."""
    model = load_spec(ModelSpec, "llama-3-70b")
    kv_bytes = tokens * model.kv_bytes_per_token
    link = _link("infiniband-400")
    prefill_s = Steps.of("llama-3-70b", "h100-sxm", tp=4).prefill_s(tokens)
    return prefill_s, link.transfer_s(kv_bytes), link.transfer_s(kv_bytes / model.num_layers)


def _shares(tokens: int) -> tuple[float, float]:
    prefill_s, whole_s, layer_s = _parts_s(tokens)
    return whole_s / prefill_s, layer_s / prefill_s


def _size_row(name: str) -> tuple[str, ...]:
    kv_bytes = 512 * load_spec(ModelSpec, name).kv_bytes_per_token
    times = (f"{1e3 * _link(link).transfer_s(kv_bytes):.2f}" for link in LINKS)
    return (name, f"{kv_bytes / 1e9:.3f}", f"{kv_bytes / 2**30:.3f}", *times, f"{10 * kv_bytes * 8 / 1e9:.1f}")


def _layer_row(tokens: int) -> tuple[str, ...]:
    times = (f"{1e3 * time_s:.2f}" for time_s in _parts_s(tokens))
    return (f"{tokens:,}", *times, *(f"{share:.2%}" for share in _shares(tokens)))


def _figure() -> Figure:
    tokens = np.geomspace(128, 16384, 22)
    lines = []
    for number, name in enumerate(("opt-66b", "llama-3-70b")):
        per_token = load_spec(ModelSpec, name).kv_bytes_per_token
        for index, link in enumerate(LINKS):
            times = np.array([1e3 * _link(link).transfer_s(count * per_token) for count in tokens])
            style = {**line_style(index), "dash": ("solid", "dot")[number]}
            lines.append(line(tokens, times, f"{name}, {link}", style))
    log = {"type": "log", "dtick": 1}
    return figure(lines, "prompt tokens", "ms", height=340, xaxis={**log, "dtick": "D2"}, yaxis=log)
