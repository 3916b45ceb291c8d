"""Real KV bytes: tensors in reused buffers, sealed with request id, epoch and checksum, verified on arrival."""

import zlib
from collections import defaultdict
from concurrent.futures import Future
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from cluster.errors import TransferFailed

ByteArray = npt.NDArray[np.uint8]


class KvSeal(NamedTuple):
    """What a KV payload says of itself."""

    request_id: int
    epoch: int
    """Epoch of the prefill instance that computed it."""
    num_bytes: int
    checksum: int
    """CRC-32 of the bytes."""


class KvPayload(NamedTuple):
    """What a pull returns. Ray hands `data` over without a copy; it is read-only at the receiver."""

    seal: KvSeal
    data: ByteArray


class KvStore:
    """KV tensors of the requests an instance holds. Safe to use from several threads.

    Buffers come in powers of two and are kept for reuse: fresh memory is slow to touch for the first time.
    """

    _SMALLEST = 1 << 12

    def __init__(self) -> None:
        self._lock = Lock()
        self._free: dict[int, list[torch.Tensor]] = defaultdict(list)
        self._held: dict[int, tuple[torch.Tensor, int]] = {}
        """Buffer and bytes of it in use, by request."""
        self._sealed: dict[int, Future[KvPayload]] = {}
        self._to_spoil = 0
        self._pattern = torch.zeros(0, dtype=torch.int16)

    def held_bytes(self) -> int:
        with self._lock:
            return sum(buffer.nbytes for buffer, _ in self._held.values())

    def num_buffers(self) -> int:
        """Buffers ever allocated, in use or free."""
        with self._lock:
            return len(self._held) + sum(map(len, self._free.values()))

    def bytes_of(self, request_id: int) -> ByteArray:
        """The request's KV as it lies here: a view."""
        with self._lock:
            buffer, num_bytes = self._held[request_id]
        return _bytes_of(buffer, num_bytes)

    def expect(self, request_id: int) -> None:
        """Announce a payload that `compute` will seal: a pull that comes early waits for it."""
        with self._lock:
            self._sealed[request_id] = Future()

    def compute(self, request_id: int, epoch: int, num_bytes: int) -> None:
        """Stand in for the prefill kernel: write KV that only this request has, and seal it."""
        count = num_bytes // 2
        buffer = self._take(request_id, num_bytes)
        with self._lock:
            if self._pattern.numel() < count:
                self._pattern = torch.arange(max(count, 1 << 20), dtype=torch.int32).to(torch.int16)
            pattern = self._pattern
        torch.add(pattern[:count], request_id % 32749, out=buffer[:count].view(torch.int16))
        data = _bytes_of(buffer, 2 * count)
        seal = KvSeal(request_id, epoch, 2 * count, zlib.crc32(data.data))
        with self._lock:
            future = self._sealed.get(request_id)
        if future is None:
            self.drop(request_id)
        else:
            future.set_result(KvPayload(seal, data))

    def sealed(self, request_id: int) -> "Future[KvPayload]":
        """The payload of a request; raises TransferFailed when it is not (or no longer) here."""
        with self._lock:
            future = self._sealed.get(request_id)
        if future is None:
            raise TransferFailed(f"KV of request {request_id} is not here")
        return future

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

    def keep(self, request_id: int, epoch: int, payload: KvPayload) -> None:
        """Verify a received payload and copy it into a buffer of ours; raises TransferFailed."""
        verify(payload, request_id, epoch)
        size = payload.seal.num_bytes
        buffer = self._take(request_id, size)
        np.copyto(_bytes_of(buffer, size), payload.data)

    def drop(self, request_id: int) -> None:
        """Give the request's buffer back; unknown requests are none of our business."""
        with self._lock:
            self._sealed.pop(request_id, None)
            held = self._held.pop(request_id, None)
            if held is not None:
                buffer, _ = held
                self._free[buffer.nbytes].append(buffer)

    def _take(self, request_id: int, num_bytes: int) -> torch.Tensor:
        size = max(self._SMALLEST, 1 << max(0, num_bytes - 1).bit_length())
        with self._lock:
            free = self._free[size]
            buffer = free.pop() if free else torch.empty(size // 2, dtype=torch.bfloat16)
            self._held[request_id] = (buffer, num_bytes)
        return buffer


def _bytes_of(buffer: torch.Tensor, num_bytes: int) -> ByteArray:
    data: ByteArray = buffer.view(torch.uint8).numpy()[:num_bytes]
    return data


def verify(payload: KvPayload, request_id: int, epoch: int) -> None:
    """Raise TransferFailed unless the payload is this request's, of this epoch, and whole."""
    seal = payload.seal
    if (seal.request_id, seal.epoch) != (request_id, epoch):
        raise TransferFailed(
            f"asked for KV of request {request_id} epoch {epoch}, got request {seal.request_id} epoch {seal.epoch}"
        )
    if payload.data.nbytes != seal.num_bytes or zlib.crc32(payload.data.data) != seal.checksum:
        raise TransferFailed(f"KV of request {request_id} arrived damaged: checksum or size is wrong")
