from math import inf

import pytest
from made_runs import ABORTED, COLOCATED, HANDED_OVER, NO_TOKEN, ONE_TOKEN, REJECTED, records

from cluster.errors import ConfigError
from metrics.slo import SloSpec, meets, parse_goodput


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], SloSpec()),
        (["ttft:1000", "tpot:20"], SloSpec(ttft_ms=1000, tpot_ms=20)),
        (["e2e:1.5e3"], SloSpec(e2e_ms=1500)),
        (["e2el:0.5"], SloSpec(e2e_ms=0.5)),
        (["ttft:inf"], SloSpec(ttft_ms=inf)),
    ],
)
def test_goodput_words(words, expected):
    assert parse_goodput(words) == expected


def test_goodput_words_keep_the_attainment():
    assert parse_goodput(["ttft:1"], attainment=0.5) == SloSpec(ttft_ms=1, attainment=0.5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ttft=1000"], "goodput target 'ttft=1000' is not KEY:VALUE"),
        (["itl:5"], "unknown key 'itl'; use one of ttft, tpot, e2e, e2el"),
        (["ttft:fast"], "'ttft:fast' needs a number of milliseconds above 0"),
        (["ttft:"], "'ttft:' needs a number"),
        (["tpot:-1"], "'tpot:-1' needs a number"),
        (["tpot:0"], "'tpot:0' needs a number"),
        (["tpot:nan"], "'tpot:nan' needs a number"),
        (["e2e:1", "e2el:2"], "gives e2el a second time"),
    ],
)
def test_bad_goodput_words(words, message):
    with pytest.raises(ConfigError, match=message):
        parse_goodput(words)


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        (SloSpec(), [True, True, True, True, False, False]),
        (SloSpec(ttft_ms=150), [True, True, False, True, False, False]),
        (SloSpec(ttft_ms=149.9), [False, True, False, True, False, False]),
        (SloSpec(tpot_ms=50), [False, True, True, True, False, False]),
        (SloSpec(tpot_ms=100), [True, True, True, True, False, False]),
        (SloSpec(e2e_ms=200), [False, True, False, True, False, False]),
        (SloSpec(ttft_ms=150, tpot_ms=50), [False, True, False, True, False, False]),
    ],
)
def test_who_meets_which_targets(slo, good):
    table = records(HANDED_OVER, COLOCATED, ONE_TOKEN, NO_TOKEN, REJECTED, ABORTED)
    assert meets(table, slo).tolist() == good


def test_a_latency_equal_to_its_target_passes_whatever_the_clock_says():
    late = {**COLOCATED, "arrival_s": 0.7, "first_token_s": 0.8}
    assert 0.8 - 0.7 > 0.1
    assert meets(records(late), SloSpec(ttft_ms=100)).tolist() == [True]
