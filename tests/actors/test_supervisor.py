"""Who counts as hung."""

import pytest

from actors.supervisor import hung_instance


@pytest.mark.parametrize(
    ("silent_s", "expected"),
    [
        ({0: 0.1, 1: 4.9}, None),
        ({0: 0.1, 1: 5.1, 2: 7.0}, 2),
        ({0: 6.0, 1: 5.1, 2: 7.0}, None),
        ({0: 5.1}, 0),
        ({}, None),
    ],
    ids=["in time", "the longest", "all: a slow host", "only one", "nobody"],
)
def test_hung(silent_s, expected) -> None:
    assert hung_instance(silent_s, 5.0) == expected
