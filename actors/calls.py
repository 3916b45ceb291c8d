"""Calls to other actors and tasks of our own: counted, awaited, and never silently lost."""

import asyncio
import time
from collections.abc import Awaitable, Coroutine
from typing import Any

import ray.exceptions


class Calls:
    """`ask` awaits an answer, `tell` does not. That the other end has died is its supervisor's business; any other
    failure that nobody awaits comes out of `failure`, so that it stops the run.
    """

    def __init__(self) -> None:
        self.count = 0
        self._cpu_before_s = time.process_time()
        self._error: BaseException | None = None
        self._failed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    def ask(self, method: Any, *arguments: Any) -> Awaitable[Any]:
        """Call an actor method and return its awaitable answer."""
        self.count += 1
        answer: Awaitable[Any] = method.remote(*arguments)
        return answer

    def tell(self, method: Any, *arguments: Any) -> None:
        """Call an actor method whose answer does not matter; its supervisor will notice if it has died."""
        self.spawn(_wait(self.ask(method, *arguments)))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ray.exceptions.RayActorError):
            self._error = self._error or error
            self._failed.set()

    async def failure(self) -> None:
        """Raise the first failure of work that nobody awaits; never returns while there is none."""
        await self._failed.wait()
        assert self._error is not None
        raise self._error

    @property
    def cpu_s(self) -> float:
        """CPU seconds of this process since the first call could be made: starting it up does not count."""
        return time.process_time() - self._cpu_before_s

    async def stop(self) -> None:
        """Cancel what is still running."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait(answer: Awaitable[Any]) -> None:
    await answer
