"""Real KV: tensors in reused buffers, sent in groups of layers that are sealed with whose they are and a checksum."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import xxhash
from torch import Tensor

from cluster.errors import TransferFailed
from compute.kv_layout import KvLayout, Layers

ByteArray = npt.NDArray[np.uint8]


class KvSeal(NamedTuple):
    """What a payload says of itself."""

    request_id: int
    epoch: int
    """Epoch of the instance that computed it."""
    num_tokens: int
    layers: Layers
    checksum: int
    """XXH3-64 of the bytes."""


class KvPayload(NamedTuple):
    """What a pull returns. Ray hands `data` over without a copy; it is read-only at the receiver."""

    seal: KvSeal
    data: ByteArray


class KvStore:
    """KV of the requests that are handed over or were received here. Safe to use from several threads.

    Buffers come in powers of two and are kept for reuse: fresh memory is slow to touch for the first time. One
    that somebody still writes to is not given to anybody else, even when its request has been dropped.
    """

    _SMALLEST = 1 << 12

    def __init__(self, layout: KvLayout) -> None:
        self.layout = layout
        self._lock = Lock()
        self._free: dict[int, list[Tensor]] = defaultdict(list)
        self._held: dict[int, _Holding] = {}
        self._num_buffers = 0
        self._to_spoil = 0

    def held_bytes(self) -> int:
        with self._lock:
            return sum(holding.buffer.nbytes for holding in self._held.values())

    def num_buffers(self) -> int:
        """Buffers ever allocated, in use or free."""
        return self._num_buffers

    def expect(self, request_id: int, num_tokens: int, groups: Sequence[Layers]) -> None:
        """Set a buffer aside; a pull that comes before a group of layers is written waits for it."""
        holding = self._hold(request_id, num_tokens)
        holding.sealed = {layers: Future() for layers in groups}

    def write(self, request_id: int, epoch: int, layers: Layers, fill: Callable[[Tensor], None]) -> None:
        """Have `fill` write some layers, and seal them; nothing happens when the request has been dropped."""
        with self.in_use(request_id) as holding:
            if holding is None or layers not in holding.sealed:
                return
            fill(self.layout.tensor(holding.buffer, holding.num_tokens, layers))
            data = self._bytes(holding, layers)
            seal = KvSeal(request_id, epoch, holding.num_tokens, layers, xxhash.xxh3_64_intdigest(data.data))
            with suppress(InvalidStateError):  # dropped in the meantime
                holding.sealed[layers].set_result(KvPayload(seal, data))

    def sealed(self, request_id: int, layers: Layers) -> "Future[KvPayload]":
        """The payload of some layers; raises TransferFailed when it is not (or no longer) here."""
        with self._lock:
            holding = self._held.get(request_id)
        if holding is None or layers not in holding.sealed:
            raise TransferFailed(f"KV of request {request_id} is not here")
        return holding.sealed[layers]

    def spoil(self, payloads: int) -> None:
        """Damage the next so many payloads on their way out, to see whether anybody notices."""
        with self._lock:
            self._to_spoil += payloads

    def spoiled(self, payload: KvPayload) -> KvPayload:
        """The payload, or a damaged copy if that was asked for."""
        with self._lock:
            if not self._to_spoil:
                return payload
            self._to_spoil -= 1
        data = payload.data.copy()
        data[len(data) // 2] ^= 1
        return KvPayload(payload.seal, data)

    def await_kv(self, request_id: int, num_tokens: int) -> None:
        """Set a buffer aside for KV that is pulled here."""
        self._hold(request_id, num_tokens)

    def keep(self, request_id: int, epoch: int, layers: Layers, payload: KvPayload) -> None:
        """Copy some layers that were pulled to their place and verify them there; raises TransferFailed."""

        def copy(out: ByteArray) -> None:
            if out.shape != payload.data.shape:
                raise TransferFailed(f"KV of request {request_id} arrived damaged: {payload.data.nbytes} bytes")
            np.copyto(out, payload.data)

        self.receive(request_id, epoch, layers, payload.seal, copy)

    def receive(
        self, request_id: int, epoch: int, layers: Layers, seal: KvSeal, fill: Callable[[ByteArray], None]
    ) -> None:
        """Have `fill` write some layers to their place and verify them there; raises TransferFailed."""
        with self.in_use(request_id) as holding:
            if holding is None:
                raise TransferFailed(f"KV of request {request_id} is not wanted any more")
            expected = KvSeal(request_id, epoch, holding.num_tokens, layers, seal.checksum)
            if seal != expected:
                raise TransferFailed(f"asked for KV with {expected}, got {seal}")
            data = self._bytes(holding, layers)
            fill(data)
            if xxhash.xxh3_64_intdigest(data.data) != seal.checksum:
                raise TransferFailed(f"KV of request {request_id} arrived damaged: its checksum is wrong")

    def tensor(self, request_id: int) -> Tensor:
        """The whole KV of a request, in the layout's shape: a view."""
        with self._lock:
            holding = self._held[request_id]
        return self.layout.tensor(holding.buffer, holding.num_tokens)

    def drop(self, request_id: int) -> None:
        """Give the request's buffer back; unknown requests are none of our business."""
        with self._lock:
            holding = self._held.pop(request_id, None)
            if holding is None:
                return
            self._let_go(holding)
        for future in holding.sealed.values():
            if not future.done():
                future.set_exception(TransferFailed(f"KV of request {request_id} is not wanted any more"))

    def _hold(self, request_id: int, num_tokens: int) -> "_Holding":
        num_bytes = self.layout.num_bytes(num_tokens)
        size = max(self._SMALLEST, 1 << (num_bytes - 1).bit_length())
        with self._lock:
            free = self._free[size]
            self._num_buffers += not free
            holding = _Holding(free.pop() if free else torch.empty(size, dtype=torch.uint8), num_tokens)
            before = self._held.get(request_id)
            self._held[request_id] = holding
        assert before is None, f"request {request_id} holds KV here already"
        return holding

    def _let_go(self, holding: "_Holding") -> None:
        holding.num_users -= 1
        if not holding.num_users:
            self._free[holding.buffer.nbytes].append(holding.buffer)

    @contextmanager
    def in_use(self, request_id: int) -> Iterator["_Holding | None"]:
        """Until the end, its buffer is not given to anybody else; None when the request is not here."""
        with self._lock:
            holding = self._held.get(request_id)
            if holding is not None:
                holding.num_users += 1
        try:
            yield holding
        finally:
            if holding is not None:
                with self._lock:
                    self._let_go(holding)

    def _bytes(self, holding: "_Holding", layers: Layers) -> ByteArray:
        start = self.layout.num_bytes(holding.num_tokens, Layers(0, layers.first))
        end = self.layout.num_bytes(holding.num_tokens, Layers(0, layers.end))
        data: ByteArray = holding.buffer.numpy()[start:end]
        return data


class _Holding:
    __slots__ = ("buffer", "num_tokens", "num_users", "sealed")

    def __init__(self, buffer: Tensor, num_tokens: int) -> None:
        self.buffer = buffer
        self.num_tokens = num_tokens
        self.num_users = 1
        """Its request, and whoever writes right now."""
        self.sealed: dict[Layers, Future[KvPayload]] = {}
