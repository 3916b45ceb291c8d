"""One function over many items: as Ray tasks where a cluster is up, else in processes of this machine."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from cluster.errors import BatonError, ConfigError, WorldError

T = TypeVar("T")
R = TypeVar("R")

CONNECT_TIMEOUT_S = 5.0


class Mapper(Protocol):
    """`map_parallel` with its options settled: results in the order of the items."""

    def __call__(self, function: Callable[[T], R], items: Sequence[T], /) -> list[R]:
        """function(item) for every item."""
        ...


def map_parallel(
    function: Callable[[T], R],
    items: Sequence[T],
    *,
    address: str | None = None,
    jobs: int | None = None,
    on_done: Callable[[int, R], None] | None = None,
) -> list[R]:
    """function(item) for every item, in the order of `items`.

    Runs in `jobs` processes of this machine, with one job in this process itself. Where `jobs` is not given, as
    tasks of the Ray cluster at `address` or $RAY_ADDRESS, or of the one this process is connected to; without
    any, in a process per core. The function, which is found by its name where it runs, the items and the results
    are pickled. `on_done` hears of every result with its item's number, as they come in. What `function` raises
    ends the whole; WorldError says that whoever ran it died.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs is {jobs}; it must be at least 1")
    if jobs is not None and address is not None:
        raise ConfigError("--jobs is for processes of this machine and --address for a Ray cluster; use one of them")
    address = None if jobs is not None else address or os.environ.get("RAY_ADDRESS")
    if address is not None or (jobs is None and _is_connected()):
        done = _done_by_ray(function, items, address or "auto")
    else:
        done = _done_by_processes(function, items, min(jobs or num_cores(), len(items)))
    results: dict[int, R] = {}
    for index, result in done:
        results[index] = result
        if on_done is not None:
            on_done(index, result)
    return [results[index] for index in range(len(items))]


def num_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0))


def _done_by_processes(function: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[tuple[int, R]]:
    if jobs <= 1:
        for index, item in enumerate(items):
            yield index, function(item)
        return
    # Workers are forked by a server without threads, which has imported what they need once for all calls.
    context = get_context("forkserver")
    context.set_forkserver_preload([getattr(function, "func", function).__module__])
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=signal.signal, initargs=_DIES_OF_CTRL_C)
    try:
        futures = {pool.submit(function, item): index for index, item in enumerate(items)}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise WorldError(
            "a worker process died, most likely for want of memory; run fewer at a time with --jobs"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_DIES_OF_CTRL_C = (signal.SIGINT, signal.SIG_DFL)


def _is_connected() -> bool:
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def _done_by_ray(function: Callable[[T], R], items: Sequence[T], address: str) -> Iterator[tuple[int, R]]:
    import ray

    with _connected(address):
        remote: Any = ray.remote(num_cpus=1)(_call)
        tasks = {remote.remote(function, item): index for index, item in enumerate(items)}
        waiting = list(tasks)
        try:
            while waiting:
                ready, waiting = ray.wait(waiting)
                yield tasks[ready[0]], ray.get(ready[0])
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, BatonError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            raise WorldError(f"a Ray task died: {str(error).strip().splitlines()[0]}") from None
        finally:
            for task in waiting:
                ray.cancel(task, force=True)


def _call(function: Callable[[T], R], item: T) -> R:
    return function(item)


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """A connection to the cluster at `address`; one that is there already is used and kept."""
    import ray

    if _is_connected():
        yield
        return
    _check_answers(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(_no_cluster(address, str(error).strip().split("\n")[0])) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Fail at once, not after Ray's own minute of retries, when nothing listens at HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(_no_cluster(address, str(error))) from error


def _no_cluster(address: str, reason: str) -> str:
    return (
        f"no Ray cluster answers at {address} ({reason}); start one with `ray start --head`, or leave --address and "
        "RAY_ADDRESS out to run in processes of this machine"
    )
