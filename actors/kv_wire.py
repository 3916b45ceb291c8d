"""KV between nodes over TCP sockets of our own, from the sender's buffer into the receiver's: no copy in between.

Ray's object store takes several copies and two more processes for that. Frames are fixed and hold plain numbers and
bytes: a greeting with the secret, then questions (request, layers) and answers (seal, bytes), one at a time.
"""

import asyncio
import socket
from collections import defaultdict
from contextlib import suppress
from functools import partial
from hmac import compare_digest
from secrets import token_bytes
from struct import Struct
from typing import Any, NamedTuple

from actors.calls import Calls
from actors.kv_store import ByteArray, KvSeal, KvStore
from cluster.errors import TransferFailed
from compute.kv_layout import Layers

_SECRET_BYTES = 32
_QUESTION = Struct("!qII")
"""Request, first layer, end of the layers."""
_ANSWER = Struct("!?qqQQ")
"""Whether the KV follows, epoch, tokens, checksum, bytes that follow: the KV, or why there is none."""
_GREETING_TIMEOUT_S = 10.0
_STALL_TIMEOUT_S = 30.0
"""Wall seconds without a byte after which a transfer has failed."""


class Endpoint(NamedTuple):
    """Where an instance sends its KV from. Who knows the secret has been told by Ray."""

    node_id: str
    host: str
    port: int
    secret: bytes


class KvServer:
    """Sends sealed KV of a store to whoever knows the secret."""

    def __init__(self, store: KvStore, calls: Calls) -> None:
        self._store, self._calls = store, calls
        self._endpoint: Endpoint | None = None

    def endpoint(self, node_id: str, host: str) -> Endpoint:
        """Listens on a free port of `host` from the first call on. Needs a running event loop."""
        if self._endpoint is None:
            listener = socket.create_server((host, 0))
            listener.setblocking(False)
            self._endpoint = Endpoint(node_id, host, listener.getsockname()[1], token_bytes(_SECRET_BYTES))
            self._calls.spawn(self._accept(listener, self._endpoint.secret))
        return self._endpoint

    async def _accept(self, listener: socket.socket, secret: bytes) -> None:
        with listener:
            while True:
                connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                self._calls.spawn(self._serve(connection, secret))

    async def _serve(self, connection: socket.socket, secret: bytes) -> None:
        with connection:
            connection.setblocking(False)
            try:
                async with asyncio.timeout(_GREETING_TIMEOUT_S):
                    greeting = await _receive(connection, _SECRET_BYTES)
                if not compare_digest(greeting, secret):
                    return
                while True:
                    request_id, first, end = _QUESTION.unpack(await _receive(connection, _QUESTION.size))
                    await self._answer(connection, request_id, Layers(first, end))
            except (OSError, EOFError):  # the other end has gone, or never said who it is
                return

    async def _answer(self, connection: socket.socket, request_id: int, layers: Layers) -> None:
        with self._store.in_use(request_id):  # so that its buffer is not given to another request meanwhile
            try:
                sealed = await asyncio.wrap_future(self._store.sealed(request_id, layers))
                seal, data = self._store.spoiled(sealed)
            except TransferFailed as error:
                reason = str(error).encode()
                await asyncio.to_thread(_send, connection, _ANSWER.pack(False, 0, 0, 0, len(reason)), reason)
                return
            head = _ANSWER.pack(True, seal.epoch, seal.num_tokens, seal.checksum, data.nbytes)
            await asyncio.to_thread(_send, connection, head, data.data)


class KvWire:
    """Pulls KV from other nodes into a store, over connections that are kept for the next time."""

    def __init__(self, store: KvStore, calls: Calls, node_id: str) -> None:
        self._store, self._calls, self._node_id = store, calls, node_id
        self._endpoints: dict[int, Endpoint] = {}
        self._idle: dict[Endpoint, list[socket.socket]] = defaultdict(list)

    async def endpoint_of(self, source: int, peer: Any) -> Endpoint | None:
        """Where an instance sends its KV from; None when it is on this node, and the object store is the better way."""
        if source not in self._endpoints:
            self._endpoints[source] = await self._calls.ask(peer.kv_endpoint)
        endpoint = self._endpoints[source]
        return None if endpoint.node_id == self._node_id else endpoint

    async def pull(self, endpoint: Endpoint, request_id: int, epoch: int, layers: Layers) -> None:
        """Have some layers verified in their place; raises TransferFailed when they cannot be had."""
        idle = self._idle[endpoint]
        connection = None
        try:
            connection = idle.pop() if idle else await _connect(endpoint)
            await asyncio.get_running_loop().sock_sendall(connection, _QUESTION.pack(request_id, *layers))
            answer = _ANSWER.unpack(await _receive(connection, _ANSWER.size))
            has_kv, epoch_there, num_tokens, checksum, num_bytes = answer
            if not has_kv:
                raise TransferFailed((await _receive(connection, num_bytes)).decode())
            seal = KvSeal(request_id, epoch_there, num_tokens, layers, checksum)
            fill = partial(_receive_into, connection, num_bytes)
            await asyncio.to_thread(self._store.receive, request_id, epoch, layers, seal, fill)
        except BaseException as error:
            if connection is not None:
                _hang_up(connection)
            if isinstance(error, OSError | EOFError):
                raise TransferFailed(
                    f"KV of request {request_id}: {error} ({endpoint.host}:{endpoint.port})"
                ) from error
            raise
        idle.append(connection)

    def forget(self, source: int) -> None:
        """The instance has died; another will take its number."""
        endpoint = self._endpoints.pop(source, None)
        if endpoint is not None:
            for connection in self._idle.pop(endpoint, []):
                connection.close()


async def _connect(endpoint: Endpoint) -> socket.socket:
    connection = socket.socket(socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (endpoint.host, endpoint.port))
        await loop.sock_sendall(connection, endpoint.secret)
    except BaseException:
        connection.close()
        raise
    return connection


async def _receive(connection: socket.socket, num_bytes: int) -> bytes:
    """A few bytes; raises EOFError when the other end hangs up before."""
    loop, parts = asyncio.get_running_loop(), b""
    while len(parts) < num_bytes:
        part = await loop.sock_recv(connection, num_bytes - len(parts))
        if not part:
            raise EOFError("the other end has hung up")
        parts += part
    return parts


def _send(connection: socket.socket, head: bytes, body: bytes | memoryview) -> None:
    """Many bytes, in a thread: the event loop has timers to keep."""
    connection.settimeout(_STALL_TIMEOUT_S)
    try:
        connection.sendall(head)
        connection.sendall(body)
    finally:
        connection.setblocking(False)


def _receive_into(connection: socket.socket, num_bytes: int, data: ByteArray) -> None:
    """Fill `data`, in a thread; raises EOFError when the other end hangs up before."""
    if num_bytes != data.nbytes:
        raise EOFError(f"{num_bytes} bytes are offered, not {data.nbytes}")
    connection.settimeout(_STALL_TIMEOUT_S)
    out = data.data
    while out:
        received = connection.recv_into(out)
        if not received:
            raise EOFError("the other end has hung up")
        out = out[received:]
    connection.setblocking(False)


def _hang_up(connection: socket.socket) -> None:
    """Also wakes up a thread that still reads from it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
