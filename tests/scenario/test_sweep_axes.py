"""Sweeps as they are written, and the combinations they stand for."""

import pytest

from cluster.errors import ConfigError
from scenario.sweep import combinations, parse_axes, value_text


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("engine.token_budget=128,256", (128, 256)),
        ("model=llama-3-8b, opt-13b", ("llama-3-8b", "opt-13b")),
        ("engine.token_budget=null,1e3", (None, 1000.0)),
        ("planner.policy=load", ("load",)),
        ("instances={prefill: 1, decode: 3},{mixed: 4}", ({"prefill": 1, "decode": 3}, {"mixed": 4})),
        ("workload.phases=[[]]", ([[]],)),
    ],
)
def test_values_are_yaml(text, values):
    (axis,) = parse_axes([text])
    assert (axis.path, axis.values) == (text.partition("=")[0], values)


def test_every_combination_the_last_axis_fastest():
    assert combinations(parse_axes(["a=1,2", "b=x,y,z"])) == [
        (1, "x"),
        (1, "y"),
        (1, "z"),
        (2, "x"),
        (2, "y"),
        (2, "z"),
    ]
    assert combinations([]) == [()]


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["engine.token_budget=1"], ["token_budget"]),
        (["engine.policy=a", "planner.policy=b"], ["engine.policy", "planner.policy"]),
        (["policy=a", "engine.policy=b"], ["policy", "engine.policy"]),
        (
            ["workload.phases.0.request_rate=1", "workload.phases.1.request_rate=2"],
            ["0.request_rate", "1.request_rate"],
        ),
    ],
)
def test_labels_are_the_shortest_that_tell_axes_apart(texts, labels):
    assert [axis.label for axis in parse_axes(texts)] == labels


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (512, "512"),
        ("jsq", "jsq"),
        (None, "null"),
        (True, "true"),
        ({"prefill": 1, "decode": 3}, "{prefill: 1, decode: 3}"),
    ],
)
def test_values_as_text(value, text):
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["tp"], "--sweep tp does not say what to sweep"),
        (["tp="], "does not say what to sweep"),
        (["=1,2"], "does not say what to sweep"),
        (["tp=1,2,1"], "--sweep tp=1,2,1 has 1 twice"),
        (["tp=1", "tp=2"], "--sweep tp is given twice"),
        (["tp=[1"], "--sweep tp=[1"),
    ],
)
def test_errors(texts, sentence):
    with pytest.raises(ConfigError) as error:
        parse_axes(texts)
    assert sentence in str(error.value)
