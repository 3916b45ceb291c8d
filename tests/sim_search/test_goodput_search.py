"""The search alone: a predicate of the rate, and what must be found of it."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from sim.goodput import find_goodput


@dataclass(frozen=True)
class Mark:
    passed: bool
    attainment: float = 0.5


def below(limit):
    return lambda rate: Mark(rate <= limit, 1 / (1 + rate))


RATES = st.floats(1e-5, 1e5)


@given(RATES, RATES, st.floats(1e-3, 0.5))
def test_finds_the_limit_to_the_tolerance_from_any_hint(limit, hint, tolerance):
    result = find_goodput(below(limit), hint=hint, lowest=1e-6, highest=1e6, relative_tolerance=tolerance)
    assert result.status == "found"
    assert result.request_rate <= limit < result.request_rate * (1 + tolerance) * (1 + 1e-12)
    assert result.attainment == 1 / (1 + result.request_rate)
    assert result.refusal.request_rate <= result.request_rate * (1 + tolerance)


@given(RATES, RATES)
def test_a_finer_tolerance_never_finds_less(limit, hint):
    found = [find_goodput(below(limit), hint=hint, relative_tolerance=each).request_rate for each in (0.3, 0.1, 0.02)]
    if None not in found:
        assert found == sorted(found)


@given(st.sets(st.integers(0, 400), min_size=1), st.floats(0.1, 300))
def test_whatever_the_predicate_what_is_reported_has_passed(good, hint):
    """Also where passing is not monotone in the rate."""
    result = find_goodput(lambda rate: Mark(int(rate) in good), hint=hint, lowest=0.01, highest=400)
    passed = {trial.request_rate: trial.verdict.passed for trial in result.history}
    assert len(passed) == len(result.history)
    if result.status == "none_pass":
        assert result.request_rate is None
        assert not passed[0.01]
    else:
        assert passed[result.request_rate]
        assert result.request_rate == max(rate for rate, good in passed.items() if good and rate < result_fails(result))


def result_fails(result):
    """The failing end of the final bracket."""
    above = [t.request_rate for t in result.history if not t.verdict.passed and t.request_rate > result.request_rate]
    return min(above, default=float("inf"))


def test_bracket_then_bisection_in_the_order_tried():
    result = find_goodput(below(5.0), hint=1.0, relative_tolerance=0.2)
    rates = [trial.request_rate for trial in result.history]
    assert rates == pytest.approx([1, 2, 4, 8, 32**0.5, (4 * 32**0.5) ** 0.5])
    assert result.request_rate == pytest.approx((4 * 32**0.5) ** 0.5)


@pytest.mark.parametrize(
    ("limit", "lowest", "highest", "status", "rate", "tried"),
    [
        (0.5, 1.0, 100.0, "none_pass", None, [8, 4, 2, 1]),
        (1e9, 1.0, 100.0, "all_pass", 100.0, [8, 16, 32, 64, 100]),
        (7.0, 8.0, 8.0, "none_pass", None, [8]),
        (8.0, 8.0, 8.0, "all_pass", 8.0, [8]),
    ],
)
def test_limits(limit, lowest, highest, status, rate, tried):
    result = find_goodput(below(limit), hint=8.0, lowest=lowest, highest=highest)
    assert (result.status, result.request_rate) == (status, rate)
    assert [trial.request_rate for trial in result.history] == tried
    assert (result.attainment is None) == (rate is None)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hint": 0.0}, "the rate to begin with is 0.0; it must be a finite number above 0"),
        ({"lowest": -1.0}, "rates -1.0 to 1048576.0 cannot be searched; both must be finite numbers above 0"),
        ({"lowest": 5.0, "highest": 2.0}, "the lowest rate 5 is above the highest 2; exchange them"),
        ({"relative_tolerance": 0.0}, "the tolerance is 0.0; it must be between 1e-6 and 1"),
        ({"relative_tolerance": 2.0}, "the tolerance is 2.0"),
    ],
)
def test_contradictions(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        find_goodput(below(1.0), **{"hint": 1.0, **changes})
