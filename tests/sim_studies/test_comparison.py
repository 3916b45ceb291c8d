"""Variants of a scenario are the same runs wherever they run."""

from functools import partial

import pytest

from metrics.comparison import Outcome
from scenario.sweep import parse_axes
from sim.comparison import run_variant, variants_of
from sim.parallel import map_parallel


def facts(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    """What must not depend on where a variant ran."""
    told = []
    for one in outcomes:
        summary = {
            name: value for name, value in (one.summary or {}).items() if "cpu_s" not in name and name != "wall_s"
        }
        told.append((one.name, one.error, summary, one.files.get("requests.jsonl"), one.files.get("timeline.json")))
    return told


SHORT = {"workload.num_requests": 40}


VARIANTS = variants_of(["steady-8b", "colocated-8b"], SHORT, parse_axes(["seed=1,2", "tp=1,3"]))
RUN = partial(run_variant, keep_files=True)


def test_variants_in_processes_are_those_run_one_by_one() -> None:
    serial = [RUN(variant) for variant in VARIANTS]
    assert [one.name for one in serial] == [
        f"{scenario} seed={seed} tp={tp}"
        for scenario in ("steady-8b", "colocated-8b")
        for seed in (1, 2)
        for tp in (1, 3)
    ]
    assert [bool(one.error) for one in serial] == [False, True] * 4
    assert facts(map_parallel(RUN, VARIANTS, jobs=2)) == facts(serial)


@pytest.mark.ray
def test_variants_on_ray_are_those_run_one_by_one(ray_address: str) -> None:
    assert facts(map_parallel(RUN, VARIANTS)) == facts([RUN(variant) for variant in VARIANTS])
