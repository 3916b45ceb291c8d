"""Many items, wherever they run: the same results in the same order, and errors that stay sentences."""

import os
import time
from math import factorial

import pytest

from cluster.errors import ConfigError, WorldError
from scenario.loading import load_scenario
from sim.parallel import map_parallel


def last_is_first(item: int) -> int:
    time.sleep(0.01 * (4 - item))
    return item * item


def refuse(item: int) -> int:
    if item == 2:
        raise ConfigError(f"item is {item}; leave it out")
    return item


def die(item: int) -> int:
    os._exit(7)


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_results_come_in_the_order_of_the_items(jobs: int) -> None:
    heard: list[tuple[int, int]] = []
    results = map_parallel(
        last_is_first, range(5), jobs=jobs, on_done=lambda index, result: heard.append((index, result))
    )
    assert results == [0, 1, 4, 9, 16]
    assert sorted(heard) == list(enumerate(results))


def test_nothing_to_do() -> None:
    assert map_parallel(last_is_first, [], jobs=2) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_an_item_ends_the_whole(jobs: int) -> None:
    with pytest.raises(ConfigError, match="item is 2; leave it out"):
        map_parallel(refuse, range(4), jobs=jobs)


def test_a_process_that_dies() -> None:
    with pytest.raises(WorldError, match="a worker process died"):
        map_parallel(die, range(2), jobs=2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"jobs": 0}, "--jobs is 0"),
        ({"jobs": 2, "address": "auto"}, "use one of them"),
    ],
)
def test_options_in_error(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        map_parallel(refuse, range(2), **options)  # type: ignore[arg-type]


@pytest.mark.ray
def test_ray_tasks_give_the_same_in_the_same_order(ray_address: str) -> None:
    heard: list[int] = []
    assert map_parallel(factorial, range(6), on_done=lambda index, result: heard.append(index)) == [1, 1, 2, 6, 24, 120]
    assert sorted(heard) == [0, 1, 2, 3, 4, 5]


@pytest.mark.ray
def test_an_error_on_ray_is_the_same_sentence(ray_address: str) -> None:
    with pytest.raises(ConfigError, match="there is no scenario named 'nowhere'"):
        map_parallel(load_scenario, ["steady-8b", "nowhere"])
