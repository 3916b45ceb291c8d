from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from scenario.strict_yaml import dump_yaml, parse_yaml, read_mapping


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("989e12", 989e12),
        ("-1.5E+3", -1500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("4.0", 4.0),
        ("010", 10),
        ("-7", -7),
        (".inf", float("inf")),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("1:30", "1:30"),
        ("2024-05-10", "2024-05-10"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("'4'", "4"),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    parsed = parse_yaml(text, "x")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp: 1\npp: 1\ntp: 2\n", "x:3: key tp is given twice"),
        ("a: {b: 1, b: 2}", "x: key b is given twice"),
        ("a: [1\n", "x:2: "),
        ("a: 1\n b: 2", "x:2: mapping values are not allowed"),
        ("a: !!set {b}", "x: could not determine a constructor for the tag 'tag:yaml.org,2002:set'"),
        (
            "a: !!python/name:os.system",
            "x: could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.system'",
        ),
        ("a: \x07", "x is not YAML: unacceptable character #x0007: "),
    ],
)
def test_faults_name_the_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "x")
    assert str(caught.value).startswith(message)


def test_unreadable_files(tmp_path: Path) -> None:
    binary, listed = tmp_path / "b.yaml", tmp_path / "l.yaml"
    binary.write_bytes(b"\xff")
    listed.write_text("- 1\n")
    for file, message in (
        (tmp_path / "none.yaml", f"cannot read {tmp_path}/none.yaml: No such file or directory"),
        (binary, f"{binary} is not UTF-8 text: invalid start byte at byte 0"),
        (listed, f"{listed} holds no mapping of keys to values at its top level"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_mapping(file)
        assert str(caught.value) == message


printable = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]))
text = printable | st.sampled_from(["1e-6", "no", "1e5", "010", "null", ".inf", "1:30", "=", "<<", "~", "2024-01-01"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text
plain = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3))


@given(plain)
def test_dump_and_parse_are_inverse(data: Any) -> None:
    assert parse_yaml(dump_yaml(data), "x") == data


@given(st.dictionaries(text, text))
def test_other_readers_take_text_for_text(data: dict[str, str]) -> None:
    assert yaml.safe_load(dump_yaml(data)) == data
