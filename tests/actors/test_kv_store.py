"""Real KV bytes: sealed, verified, reused, and gone at the end."""

import numpy as np
import pytest

from actors.kv_store import KvPayload, KvSeal, KvStore
from cluster.errors import TransferFailed


def sealed(request_id: int = 7, epoch: int = 1, num_bytes: int = 10_000) -> tuple[KvStore, KvPayload]:
    store = KvStore()
    store.expect(request_id)
    store.compute(request_id, epoch, num_bytes)
    return store, store.sealed(request_id).result(timeout=1)


def test_payload_says_whose_it_is() -> None:
    _, payload = sealed()
    assert payload.seal[:3] == (7, 1, 10_000)
    assert payload.data.nbytes == 10_000


def test_every_request_has_other_bytes() -> None:
    assert not np.array_equal(sealed(request_id=7)[1].data, sealed(request_id=8)[1].data)


def damaged(payload: KvPayload) -> KvPayload:
    data = payload.data.copy()
    data[4321] ^= 1
    return KvPayload(payload.seal, data)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (damaged, "arrived damaged"),
        (lambda payload: KvPayload(payload.seal, payload.data[:-2]), "arrived damaged"),
        (lambda payload: KvPayload(KvSeal(8, *payload.seal[1:]), payload.data), "got request 8 epoch 1"),
        (lambda payload: KvPayload(payload.seal._replace(epoch=0), payload.data), "got request 7 epoch 0"),
    ],
)
def test_wrong_payload_is_refused_and_holds_nothing(spoil, message) -> None:
    _, payload = sealed()
    receiver = KvStore()
    with pytest.raises(TransferFailed, match=message):
        receiver.keep(7, 1, spoil(payload))
    assert receiver.held_bytes() == 0


def test_kept_copy_outlives_the_sender() -> None:
    _sender, payload = sealed()
    expected = payload.data.copy()
    receiver = KvStore()
    receiver.keep(7, 1, payload)
    payload.data[:] = 0
    assert receiver.held_bytes() > 0
    assert np.array_equal(receiver.bytes_of(7), expected)


def test_buffers_are_reused_and_nothing_is_left() -> None:
    store = KvStore()
    for request_id in range(5):
        store.expect(request_id)
        store.compute(request_id, 0, 100_000)
        assert store.held_bytes() == 131_072
        store.drop(request_id)
    assert (store.held_bytes(), store.num_buffers()) == (0, 1)


def test_dropped_before_it_was_computed() -> None:
    store = KvStore()
    store.expect(3)
    store.drop(3)
    store.compute(3, 0, 1_000)
    assert store.held_bytes() == 0
    with pytest.raises(TransferFailed, match="KV of request 3 is not here"):
        store.sealed(3)
