"""The public files themselves, where they are at hand; docs/reference/traces.md says where to get them."""

from pathlib import Path

import pytest

from workload.readers import read_trace

TRACES = Path(__file__).parents[2].parent / "shared/data/traces"


@pytest.mark.parametrize(
    ("name", "known", "num_requests", "prompt_range", "output_range", "span_s", "first", "last"),
    [
        ("azure_llm_2023_conv.csv", "azure", 19366, (2, 14050), (7, 1000), 3501.721937, (374, 44), (197, 183)),
        ("azure_llm_2023_code.csv", "azure", 8819, (3, 7437), (6, 1899), 3435.948056, (4808, 10), (549, 173)),
        ("mooncake_conversation.jsonl", "mooncake", 12031, (891, 126195), (1, 2000), 3536.999, (6758, 500), None),
    ],
)
def test_public_trace(name, known, num_requests, prompt_range, output_range, span_s, first, last):
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the public trace {name} is not here")
    trace = read_trace(path)
    prompt, output = trace.prompt_tokens, trace.output_tokens
    assert (trace.info.format, len(trace), trace.info.num_rows) == (known, num_requests, num_requests)
    assert (prompt.min(), prompt.max()) == prompt_range
    assert (output.min(), output.max()) == output_range
    assert trace.arrival_s[0] == 0.0
    assert trace.span_s == pytest.approx(span_s, abs=1e-6)
    assert (prompt[0], output[0]) == first
    assert last is None or (prompt[-1], output[-1]) == last
    if known == "mooncake":
        assert trace.prefix_hashes is not None
        assert trace.prefix_hashes[0] == tuple(range(14))
        assert all(len(ids) == -(-tokens // 512) for ids, tokens in zip(trace.prefix_hashes, prompt, strict=True))
