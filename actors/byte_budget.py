"""How many KV bytes may be on their way to one receiver: Ray itself never pushes back, it spills to disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteBudget:
    """First come first served. A payload larger than the whole budget travels alone."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, num_bytes: int) -> AsyncIterator[None]:
        num_bytes = min(num_bytes, self.total_bytes)
        async with self._freed:
            await self._freed.wait_for(lambda: self.used_bytes + num_bytes <= self.total_bytes)
            self.used_bytes += num_bytes
        try:
            yield
        finally:
            async with self._freed:
                self.used_bytes -= num_bytes
                self._freed.notify_all()
