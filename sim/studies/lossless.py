"""Chunked prefill is lossless: a real model's logits and tokens stay the same, only KV is read more often."""

from dataclasses import dataclass

import numpy as np
import torch

from compute.tiny_model import TinyConfig, TinyModel, greedy, prompt_of
from metrics.facts import number
from metrics.figure import figure, line, line_style
from sim.parallel import Mapper
from sim.studies.study import Claim, Study, StudyTable, Verdict

PROMPT_TOKENS = 192
OUTPUT_TOKENS = 32
CHUNKS = (8, 16, 32, 48, 64, 96, 192)
"""Tokens per chunk; the last is the whole prompt."""
SAME = 1e-12
"""Numbers that differ by less differ by the order of summation only."""
SECTION = "Lecture 7, section 2.3"
EXERCISE = "Lecture 7, exercise 2"


@dataclass(frozen=True, slots=True)
class Cut:
    """The prompt computed in chunks of `chunk` tokens, against all at once."""

    chunk: int
    flops: int
    extra_flops: int
    kv_tokens_read: int
    """Tokens whose KV an attention layer has read, and written, over all chunks."""
    logit_difference: float
    """Largest, after the prompt, of any token."""
    kv_difference: float
    """Largest, of any key or value of the prompt."""
    tokens: bytes
    whole_tokens: bytes
    """Greedy continuations."""

    @property
    def reads_ratio(self) -> float:
        return self.kv_tokens_read / PROMPT_TOKENS

    @property
    def predicted_ratio(self) -> float:
        """N / 2c + 1/2."""
        return PROMPT_TOKENS / (2 * self.chunk) + 0.5

    @property
    def predicted_extra_flops(self) -> int:
        """The output head for the last position of every chunk but one."""
        config = TinyConfig()
        return (PROMPT_TOKENS // self.chunk - 1) * 2 * config.vocab_size * config.hidden_size


def run(parallel: Mapper) -> Study:
    """The prompt at once and in chunks of several sizes."""
    cuts = parallel(measure, CHUNKS)
    at_16 = next(cut for cut in cuts if cut.chunk == 16)
    worst = max(cut.logit_difference for cut in cuts)
    worst_kv = max(cut.kv_difference for cut in cuts)
    is_same_text = all(cut.tokens == cut.whole_tokens for cut in cuts)
    is_only_head = all(cut.extra_flops == cut.predicted_extra_flops for cut in cuts)
    is_as_predicted = all(cut.reads_ratio == cut.predicted_ratio for cut in cuts)
    config = TinyConfig()
    return Study(
        name="lossless",
        title="Chunked prefill changes nothing but the KV reads",
        method=(
            f"Computed, not simulated: a Llama-style model of {config.num_layers} layers, hidden size "
            f"{config.hidden_size}, {config.num_heads} heads, {config.num_kv_heads} KV heads and a vocabulary of "
            f"{config.vocab_size}, with random weights in double precision, prefills {PROMPT_TOKENS} tokens at once and "
            f"in chunks, then generates {OUTPUT_TOKENS}. It counts operations and KV as it goes: those of attention "
            "as causality allows them, and, as the lecture does, the KV that stood before a chunk plus that of the chunk. "
            "Every chunk computes the logits of its last position."
        ),
        claims=[
            Claim(
                source=SECTION,
                statement="the same KV and the same logits, in whatever chunks",
                published="identical",
                ours=f"KV within {worst_kv:.0e}, logits within {worst:.0e}",
                verdict=_reproduced(max(worst, worst_kv) < SAME),
            ),
            Claim(
                source=SECTION,
                statement="the same generated tokens",
                published="identical",
                ours=f"all {OUTPUT_TOKENS}, with {len(cuts) - 1} chunk sizes" if is_same_text else "others",
                verdict=_reproduced(is_same_text),
            ),
            Claim(
                source=SECTION,
                statement="operations grow only by the output head at the end of each chunk",
                published="exactly",
                ours=f"chunks of 16: {number(at_16.extra_flops)} more, all of the head"
                if is_only_head
                else "by more than that",
                verdict=_reproduced(is_only_head),
            ),
            Claim(
                source=SECTION,
                statement=f"KV reads of {PROMPT_TOKENS} tokens in chunks of 16, over once",
                published="6.5",
                ours=number(at_16.reads_ratio),
                verdict=_reproduced(at_16.reads_ratio == 6.5),
            ),
            Claim(
                source=EXERCISE,
                statement="KV reads of N tokens in chunks of c, over once",
                published="N / 2c + 1/2",
                ours=f"exactly, for c of {', '.join(str(cut.chunk) for cut in cuts)}" if is_as_predicted else "others",
                verdict=_reproduced(is_as_predicted),
            ),
        ],
        tables=[
            StudyTable(
                f"{PROMPT_TOKENS} tokens in chunks",
                (
                    "chunk",
                    "MFLOP",
                    "more than at once",
                    "KV tokens read",
                    "over once",
                    "N / 2c + 1/2",
                    "logits differ by",
                    "KV differs by",
                    "tokens",
                ),
                [_row(cut) for cut in cuts],
                note="KV tokens read are those of one layer; all layers read alike.",
            )
        ],
        figures={
            "KV reads by chunk size": figure(
                [
                    {
                        **line(
                            np.array([cut.chunk for cut in cuts], dtype=np.float64),
                            np.array([cut.reads_ratio for cut in cuts]),
                            "KV read, over once",
                            line_style(0),
                        ),
                        "mode": "lines+markers",
                    }
                ],
                "tokens per chunk",
                "times",
                xaxis={"type": "log", "tickvals": list(CHUNKS), "ticktext": [str(chunk) for chunk in CHUNKS]},
            )
        },
    )


def measure(chunk: int) -> Cut:
    """Prefill in chunks and at once, and go on from both."""
    prompt = prompt_of(0, PROMPT_TOKENS)
    model, reference = TinyModel(), TinyModel()
    kv, whole_kv = (model.empty_kv(PROMPT_TOKENS + OUTPUT_TOKENS) for _ in range(2))
    logits, whole = _prefill(model, prompt, chunk, kv), _prefill(reference, prompt, PROMPT_TOKENS, whole_kv)
    counted = model.flops, model.kv_elements_read, reference.flops
    return Cut(
        chunk=chunk,
        flops=counted[0],
        extra_flops=counted[0] - counted[2],
        kv_tokens_read=counted[1] // kv[:, :, :, 0].numel(),
        logit_difference=float((logits - whole).abs().max()),
        kv_difference=float((kv - whole_kv)[:, :, :, :PROMPT_TOKENS].abs().max()),
        tokens=_generate(model, logits, kv),
        whole_tokens=_generate(reference, whole, whole_kv),
    )


def _prefill(model: TinyModel, prompt: bytes, chunk: int, kv: torch.Tensor) -> torch.Tensor:
    """Logits after the last chunk."""
    for start in range(0, len(prompt), chunk):
        logits = model.prefill_chunk(prompt[start : start + chunk], kv, start)
    return logits


def _generate(model: TinyModel, logits: torch.Tensor, kv: torch.Tensor) -> bytes:
    """Greedy decoding after a prefill."""
    tokens = bytearray([greedy(logits)])
    while len(tokens) < OUTPUT_TOKENS:
        tokens.append(greedy(model.decode(tokens[-1], kv, PROMPT_TOKENS + len(tokens) - 1)))
    return bytes(tokens)


def _reproduced(is_so: bool) -> Verdict:
    return Verdict.REPRODUCED if is_so else Verdict.DIFFERS


def _row(cut: Cut) -> tuple[str, ...]:
    return (
        str(cut.chunk) if cut.chunk < PROMPT_TOKENS else f"{cut.chunk} (at once)",
        number(cut.flops / 1e6),
        f"{cut.extra_flops / (cut.flops - cut.extra_flops):.2%}",
        number(cut.kv_tokens_read),
        number(cut.reads_ratio),
        number(cut.predicted_ratio),
        f"{cut.logit_difference:.1e}",
        f"{cut.kv_difference:.1e}",
        "the same" if cut.tokens == cut.whole_tokens else "others",
    )
