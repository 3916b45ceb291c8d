import pytest

from cluster.suggestion import did_you_mean

NAMES = ["llama-3-8b", "llama-3-70b", "qwen2.5-7b", "opt-13b", "H100-sxm"]


@pytest.mark.parametrize(
    ("word", "ending"),
    [
        ("llama3-8b", "did you mean llama-3-8b or llama-3-70b?"),
        ("qwen", "did you mean qwen2.5-7b?"),
        ("h100", "did you mean H100-sxm?"),
        ("OPT-13B", "did you mean opt-13b?"),
        ("gpt-4", "use H100-sxm, llama-3-70b, llama-3-8b, opt-13b, qwen2.5-7b"),
        ("", "use H100-sxm, llama-3-70b, llama-3-8b, opt-13b, qwen2.5-7b"),
    ],
)
def test_did_you_mean(word: str, ending: str) -> None:
    assert did_you_mean(word, NAMES) == ending


def test_nothing_is_known() -> None:
    assert did_you_mean("x", []) == "there are none"
