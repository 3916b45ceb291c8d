"""KV over sockets: whole, verified, refused with a reason, and nothing for strangers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
import torch
from test_kv_store import ALL, LAYOUT, TOKENS, write

from actors.calls import Calls
from actors.kv_store import KvStore
from actors.kv_wire import Endpoint, KvServer, KvWire
from cluster.errors import TransferFailed
from compute.kv_layout import Layers


class Ends(NamedTuple):
    """A server on loopback with the store it sends from, and a puller with the store it writes to."""

    here: KvStore
    there: KvStore
    server: KvServer
    wire: KvWire
    calls: Calls

    @property
    def endpoint(self) -> Endpoint:
        return self.server.endpoint("node", "127.0.0.1")

    @property
    def kv_endpoint(self) -> "Ends":
        """Like a handle's method: it has `remote`."""
        return self

    async def remote(self) -> Endpoint:
        return self.endpoint


@asynccontextmanager
async def ends() -> AsyncIterator[Ends]:
    calls, here, there = Calls(), KvStore(LAYOUT), KvStore(LAYOUT)
    there.await_kv(7, TOKENS)
    both = Ends(here, there, KvServer(here, calls), KvWire(there, calls, "other node"), calls)
    try:
        assert await both.wire.endpoint_of(0, both) == both.endpoint
        await asyncio.sleep(0)  # the server begins to listen
        yield both
    finally:
        both.wire.forget(0)
        await calls.stop()


async def pull(both: Ends, layers: Layers = ALL, epoch: int = 1, request_id: int = 7) -> None:
    async with asyncio.timeout(10):
        await both.wire.pull(both.endpoint, request_id, epoch, layers)


def arrived(both: Ends) -> torch.Tensor:
    return both.there.tensor(7).view(torch.uint8)


def run(check) -> None:
    async def with_ends() -> None:
        async with ends() as both:
            await check(both)

    asyncio.run(with_ends())


def test_layers_arrive_in_their_places_over_one_connection() -> None:
    async def check(both: Ends) -> None:
        groups = Layers(0, 3), Layers(3, 4)
        write(both.here, 7, groups=groups)
        for layers in reversed(groups):
            await pull(both, layers)
        assert torch.equal(arrived(both), both.here.tensor(7).view(torch.uint8))
        assert [len(idle) for idle in both.wire._idle.values()] == [1]

    run(check)


def test_a_pull_waits_until_its_layers_are_written() -> None:
    async def check(both: Ends) -> None:
        both.here.expect(7, TOKENS, [ALL])
        waiting = asyncio.create_task(pull(both))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        both.here.drop(7)
        with pytest.raises(TransferFailed, match="not wanted any more"):
            await waiting
        write(both.here, 7)
        await pull(both)

    run(check)


@pytest.mark.parametrize(
    ("request_id", "epoch", "reason"), [(8, 1, "KV of request 8 is not here"), (7, 2, "asked for KV with .*epoch=2")]
)
def test_what_cannot_be_had_is_told(request_id, epoch, reason) -> None:
    async def check(both: Ends) -> None:
        write(both.here, 7)
        with pytest.raises(TransferFailed, match=reason):
            await pull(both, request_id=request_id, epoch=epoch)
        await pull(both)  # and the next one works

    run(check)


def test_damage_is_noticed() -> None:
    async def check(both: Ends) -> None:
        write(both.here, 7)
        both.here.spoil(1)
        with pytest.raises(TransferFailed, match="checksum"):
            await pull(both)
        await pull(both)
        assert torch.equal(arrived(both), both.here.tensor(7).view(torch.uint8))

    run(check)


def test_strangers_get_nothing() -> None:
    async def check(both: Ends) -> None:
        write(both.here, 7)
        stranger = both.endpoint._replace(secret=bytes(32))
        with pytest.raises(TransferFailed, match=r"hung up|reset"):
            async with asyncio.timeout(10):
                await both.wire.pull(stranger, 7, 1, ALL)

    run(check)


def test_an_instance_on_the_same_node_is_asked_through_the_object_store() -> None:
    async def check(both: Ends) -> None:
        neighbour = KvWire(both.there, both.calls, "node")
        assert await neighbour.endpoint_of(0, both) is None

    run(check)


def test_a_sender_that_dies_in_the_middle_is_a_failed_transfer() -> None:
    async def check(both: Ends) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            dying = both.endpoint._replace(port=silent.getsockname()[1])
            waiting = asyncio.create_task(both.wire.pull(dying, 7, 1, ALL))
            connection, _ = await asyncio.to_thread(silent.accept)
            await asyncio.to_thread(connection.recv, 32)
            connection.close()
            with pytest.raises(TransferFailed, match=r"request 7: .*127\.0\.0\.1"):
                await waiting
        with pytest.raises(TransferFailed, match="Connect"):
            await both.wire.pull(dying, 7, 1, ALL)

    run(check)


def test_a_pull_that_is_given_up_lets_its_buffer_go() -> None:
    async def check(both: Ends) -> None:
        both.here.expect(7, TOKENS, [ALL])
        waiting = asyncio.create_task(pull(both))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        both.there.drop(7)
        assert both.there.held_bytes() == 0
        assert not any(both.wire._idle.values())

    run(check)
