"""What a single process generates, against what came out of a cluster."""

from collections.abc import Mapping, Sequence

from compute.tiny_model import TinyModel, prompt_of


def wrong_texts(texts: Mapping[int, bytes], prompt_tokens: Sequence[int], seed: int) -> list[int]:
    """Requests whose text differs from that of one model that computes the whole prompt, then token by token."""
    model = TinyModel()
    return [
        request_id
        for request_id, text in sorted(texts.items())
        if model.generate(prompt_of(request_id, int(prompt_tokens[request_id]), seed), len(text)) != text
    ]
