"""What a prompt costs the decodes it shares a step with: free below the ridge point, a stall far above it."""

import numpy as np

from metrics.figure import Figure, figure, line, line_style
from sim.parallel import Mapper
from sim.studies.steps import Steps
from sim.studies.study import Claim, Study, StudyTable, beyond, printed, told

BATCHES = (4, 8, 16, 32, 64, 128)
CHUNKS = (64, 128, 256, 512, 1024, 2048, 4096)
PROMPTS = (2048, 4096, 8192)
INTERFERENCE, FREE, CHUNKED, BUBBLES = (f"Lecture 7, section {number}" for number in ("1.2", "2.2", "2.5", "2.6"))


def run(parallel: Mapper) -> Study:  # noqa: ARG001 - nothing here takes long
    """Llama-3-8B on an H100, and what the papers measured of larger models."""
    llama = Steps.of("llama-3-8b", "h100-sxm")
    return Study(
        name="steptime",
        title="Step times: what a prompt costs the decodes beside it",
        method=(
            "The cost model alone, no simulation: Llama-3-8B on one H100 unless a row says otherwise. Published digits "
            "must come out as they are printed. The lecture's tables of batches and prompts are not in its text; here "
            f"they are {BATCHES[0]} to {BATCHES[-1]} decodes and prompts of {PROMPTS[0]:,} to {PROMPTS[-1]:,} tokens."
        ),
        claims=[
            *_interference(llama),
            *_free_compute(llama),
            *_ridge_points(),
            *_chunking(llama),
            *_bubbles(),
        ],
        tables=[
            StudyTable(
                "A step of decodes at context 512 with a whole prompt in it, over the same without",
                ("decodes", "alone, ms", *(f"+ {chunk:,} tokens" for chunk in CHUNKS)),
                [_slowdown_row(llama, batch) for batch in BATCHES],
            ),
            StudyTable(
                "A prompt in chunks, over the same at once",
                ("prompt", "at once, ms", *(f"chunks of {chunk:,}" for chunk in CHUNKS if chunk < 4096)),
                [_chunking_row(llama, tokens) for tokens in PROMPTS],
                note="Chunks below the ridge point read all weights for little work; every chunk has the step's overhead.",
            ),
        ],
        figures={
            "A step with a prompt in it": _step_figure(llama),
            "Cost of a prompt in chunks": _chunking_figure(llama),
        },
    )


def _interference(steps: Steps) -> list[Claim]:
    def slowdowns(chunk: int) -> tuple[float, float]:
        all_of_them = [_slowdown(steps, batch, chunk) for batch in BATCHES]
        return min(all_of_them), max(all_of_them)

    decodes = f"among {BATCHES[0]} to {BATCHES[-1]} decodes at context 512"
    share = (steps.step_s(32, 512, 4096) - steps.step_s(32, 512)) / 200
    added = [steps.step_s(batch, 512, 1024) / steps.prefill_s(1024) - 1 for batch in BATCHES]
    opt = Steps.of("opt-13b", "a100-80gb")
    return [
        printed(
            INTERFERENCE, f"a prompt of 1,024 tokens slows the step {decodes}", "2.6 to 3.5 times", slowdowns(1024)
        ),
        printed(INTERFERENCE, f"one of 4,096 tokens slows the step {decodes}", "10 to 14 times", slowdowns(4096)),
        told(
            INTERFERENCE,
            "a short prompt hardly slows the step",
            "hardly",
            f"256 tokens: {max(_slowdown(steps, batch, 256) for batch in BATCHES) - 1:.1%}",
            holds=max(_slowdown(steps, batch, 256) for batch in BATCHES) < 1.01,
        ),
        told(
            INTERFERENCE,
            "the other way round less: a prompt suffers more from more decodes, but not much",
            "small, grows with the batch",
            f"1,024 tokens: +{added[0]:.1%} beside {BATCHES[0]}, +{added[-1]:.1%} beside {BATCHES[-1]}",
            holds=added == sorted(added) and added[-1] < _slowdown(steps, 128, 1024) - 1,
        ),
        told(
            "DistServe, figure 2",
            "OPT-13B on an A100: a prompt of 1,024 tokens in a batch of 8 decodes slows them, and they slow it less",
            "both directions",
            f"decodes {opt.step_s(8, 512, 1024) / opt.step_s(8, 512):.1f} times, prompt "
            f"{opt.step_s(8, 512, 1024) / opt.prefill_s(1024):.2f} times",
            holds=opt.step_s(8, 512, 1024) / opt.step_s(8, 512) > opt.step_s(8, 512, 1024) / opt.prefill_s(1024) > 1,
        ),
        printed("Lecture 7, section 1.5", "one gap of 90 ms among 200 adds to the mean gap", "0.4 ms", [1e3 * share]),
    ]


def _free_compute(steps: Steps) -> list[Claim]:
    base = steps.step_s(32, 1024)
    per_token_s = (steps.step_s(32, 1024, 256) - base) / 256
    wide = steps.step_s(128, 1024, 512) / steps.step_s(128, 1024) - 1
    beside = "beside 32 decodes at context 1,024"
    return [
        printed(FREE, f"each of 256 prompt tokens {beside} costs", "52 ns", [1e9 * per_token_s]),
        printed(FREE, "each of 1,024 tokens of a prompt alone costs", "21 µs", [1e6 * steps.prefill_s(1024) / 1024]),
        printed(FREE, "512 tokens beside 128 decodes slow the step by", "10 %", [100 * wide]),
    ]


def _ridge_points() -> list[Claim]:
    llama_70b = [
        Steps.at_peak("llama-2-70b", "a100-80gb", bandwidth_bytes_s=bandwidth).cost.saturation_tokens()
        for bandwidth in (2.039e12, 1.555e12)
    ]
    opt = Steps.of("opt-13b", "a100-80gb")
    rates = {tokens: tokens / opt.prefill_s(tokens) for tokens in (512, 2048)}
    return [
        told(
            FREE,
            "LLaMA2-70B at the A100's nominal rates is bound by compute from",
            "about 200 tokens",
            f"{llama_70b[0]} tokens",
            holds=100 < llama_70b[0] < 250,
            reason=(
                f"the ratio of the 40 GB A100 (1.555 TB/s) gives {llama_70b[1]}; the 80 GB one that both papers used has "
                "2.039 TB/s"
            ),
        ),
        beyond(
            FREE,
            "in practice, because of fixed costs, only from",
            "500 to 600 tokens",
            "a kernel's efficiency at small sizes is not in a roofline, whose 70 % and 80 % hold everywhere",
            ours=f"{Steps.of('llama-2-70b', 'a100-80gb').cost.saturation_tokens()} tokens",
        ),
        told(
            "DistServe, figure 3",
            "OPT-13B: one prompt of 512 tokens saturates an A100, and longer batches only take longer",
            "512 tokens",
            f"from {opt.cost.saturation_tokens()} tokens; {rates[512]:,.0f} tokens/s at 512, {rates[2048]:,.0f} at 2,048",
            holds=opt.cost.saturation_tokens() <= 512 and rates[2048] < 1.02 * rates[512],
        ),
    ]


def _chunking(steps: Steps) -> list[Claim]:
    def overheads(chunk: int) -> tuple[float, float]:
        shares = [100 * _overhead(steps, tokens, chunk) for tokens in PROMPTS]
        return min(shares), max(shares)

    yi = Steps.of("yi-34b", "a100-80gb", tp=2)
    yi_512, yi_2048 = (max(_overhead(yi, tokens, chunk) for tokens in (4096, 16384)) for chunk in (512, 2048))
    prompts = f"prompts of {PROMPTS[0]:,} to {PROMPTS[-1]:,} tokens"
    return [
        printed(CHUNKED, f"{prompts} in chunks of 512 take longer by", "3 to 4 %", overheads(512)),
        printed(CHUNKED, f"{prompts} in chunks of 256 take longer by", "8 to 9 %", overheads(256)),
        told(
            CHUNKED,
            "Sarathi-Serve measured on Yi-34B (2 A100): chunks of 512 cost some, chunks of 2,048 almost nothing",
            "at most 25 %; negligible",
            f"{yi_512:.1%}; {yi_2048:.1%}",
            holds=yi_512 > 4 * yi_2048 and yi_2048 < 0.01,
            reason="a roofline loses only the overhead of a step and the KV reads, not the efficiency of small kernels",
        ),
        beyond(
            CHUNKED,
            "a chunk of 257 tokens takes longer than one of 256 by",
            "32 %",
            "tile quantisation is not modelled",
            ours=f"{steps.prefill_s(257) / steps.prefill_s(256) - 1:.1%}",
        ),
    ]


def _bubbles() -> list[Claim]:
    """Of two stages, each of four A100."""
    stage = Steps.of("falcon-180b", "a100-80gb", tp=4, pp=2)
    prompt_ms, decode_ms = 1e3 * stage.prefill_s(4096), 1e3 * stage.step_s(32, 1024)
    chunk_ms = 1e3 * stage.step_s(32, 1024, 512, ends=False)
    return [
        told(
            BUBBLES,
            "Falcon-180B in two stages of 4 A100: a prompt of 4K tokens, then 32 decodes, leave a bubble",
            "1,150 ms, 200 ms: bubble of 950 ms",
            f"{prompt_ms:,.0f} ms, {decode_ms:,.0f} ms: bubble of {prompt_ms - decode_ms:,.0f} ms",
            holds=prompt_ms > 4 * decode_ms,
            reason=(
                "the roofline reads the weights at 80 % of the bandwidth; the paper's decode step takes "
                f"{200 / decode_ms:.0f} times as long"
            ),
        ),
        told(
            BUBBLES,
            "micro-batches with a chunk each are far more alike",
            "far smaller bubbles",
            f"512 prompt tokens beside 32 decodes: {chunk_ms:,.0f} ms, every micro-batch",
            holds=chunk_ms < prompt_ms / 4,
        ),
    ]


def _slowdown(steps: Steps, batch: int, chunk: int) -> float:
    return steps.step_s(batch, 512, chunk) / steps.step_s(batch, 512)


def _overhead(steps: Steps, tokens: int, chunk: int) -> float:
    return steps.prefill_s(tokens, chunk) / steps.prefill_s(tokens) - 1


def _slowdown_row(steps: Steps, batch: int) -> tuple[str, ...]:
    alone_ms = 1e3 * steps.step_s(batch, 512)
    return (str(batch), f"{alone_ms:.2f}", *(f"{_slowdown(steps, batch, chunk):.2f}" for chunk in CHUNKS))


def _chunking_row(steps: Steps, tokens: int) -> tuple[str, ...]:
    shares = (f"+{_overhead(steps, tokens, chunk):.1%}" for chunk in CHUNKS if chunk < 4096)
    return (f"{tokens:,}", f"{1e3 * steps.prefill_s(tokens):.1f}", *shares)


def _step_figure(steps: Steps) -> Figure:
    chunks = np.arange(0, 1088, 16)
    lines = [
        line(
            chunks.astype(np.float64),
            np.array([1e3 * steps.step_s(batch, 512, int(chunk)) for chunk in chunks]),
            f"{batch} decodes" if batch else "no decodes",
            line_style(index),
        )
        for index, batch in enumerate((0, 8, 32, 128))
    ]
    return figure(lines, "prompt tokens in the step", "ms")


def _chunking_figure(steps: Steps) -> Figure:
    lines = []
    for index, tokens in enumerate(PROMPTS):
        chunks = np.array([chunk for chunk in CHUNKS if chunk < min(tokens, 4096)], dtype=np.float64)
        shares = np.array([100 * _overhead(steps, tokens, int(chunk)) for chunk in chunks])
        drawn = line(chunks, shares, f"prompt of {tokens:,}", line_style(index))
        lines.append({**drawn, "mode": "lines+markers"})
    marks = [chunk for chunk in CHUNKS if chunk < 4096]
    ticks = {"type": "log", "tickvals": marks, "ticktext": list(map(str, marks))}
    return figure(lines, "tokens per chunk", "% longer than at once", xaxis=ticks, yaxis={"type": "log", "dtick": 1})
