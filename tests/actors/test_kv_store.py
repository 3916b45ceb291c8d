"""Real KV: in the model's layout, sealed, verified, its buffers reused, and gone at the end."""

from concurrent.futures import Future
from threading import Thread

import pytest
import torch

from actors.kv_store import KvPayload, KvStore
from cluster.errors import TransferFailed
from cluster.request import Request
from compute.kv_layout import KvLayout, Layers
from compute.stand_in import StandIn
from scenario.loading import load_scenario

LAYOUT = KvLayout(num_layers=4, num_kv_heads=2, head_dim=8, dtype=torch.bfloat16)
TOKENS = 100
LAYER_BYTES = 2 * 2 * TOKENS * 8 * 2
ALL = LAYOUT.all_layers


def sender(request_id: int = 7, epoch: int = 1) -> KvStore:
    """Holds the KV of a request, computed as one group of layers."""
    store = KvStore(LAYOUT)
    write(store, request_id, epoch)
    return store


def write(store: KvStore, request_id: int, epoch: int = 1, groups: tuple[Layers, ...] = (ALL,)) -> None:
    request = Request(request_id, 0.0, TOKENS, 1)
    store.expect(request_id, TOKENS, groups)
    for layers in groups:
        store.write(request_id, epoch, layers, lambda out, at=layers: StandIn(LAYOUT, 1.0).write_kv(request, at, out))


def payload_of(store: KvStore, request_id: int = 7, layers: Layers = ALL) -> KvPayload:
    return store.sealed(request_id, layers).result(timeout=1)


@pytest.mark.parametrize(
    ("dtype", "name", "kv_dtype"),
    [(torch.bfloat16, "llama-3-8b", "bf16"), (torch.float8_e4m3fn, "llama-3-70b", "fp8")],
)
def test_layout_is_the_models(dtype, name, kv_dtype) -> None:
    model = load_scenario("demo", {"model": name, "model.kv_dtype": kv_dtype}).model
    layout = KvLayout.of_model(model)
    assert layout.dtype is dtype
    assert layout.num_bytes(3) == 3 * model.kv_bytes_per_token
    whole = layout.tensor(torch.zeros(layout.num_bytes(3), dtype=torch.uint8), 3)
    assert whole.shape == (model.num_layers, 2, model.num_kv_heads, 3, model.head_dim)


@pytest.mark.parametrize(
    ("most_bytes", "expected"),
    [
        (10**9, [(0, 4)]),
        (2 * LAYER_BYTES, [(0, 2), (2, 4)]),
        (3 * LAYER_BYTES + 1, [(0, 3), (3, 4)]),
        (1, [(0, 1), (1, 2), (2, 3), (3, 4)]),
    ],
)
def test_groups_of_layers(most_bytes, expected) -> None:
    assert list(LAYOUT.groups(TOKENS, most_bytes)) == expected


def test_payload_says_whose_it_is() -> None:
    payload = payload_of(sender())
    assert payload.seal[:4] == (7, 1, TOKENS, ALL)
    assert payload.data.nbytes == 4 * LAYER_BYTES


def test_every_request_and_layer_has_other_bytes() -> None:
    store, groups = KvStore(LAYOUT), (Layers(0, 2), Layers(2, 4))
    write(store, 7, groups=groups)
    write(store, 8, groups=groups)
    datas = {payload_of(store, request_id, layers).data.tobytes() for request_id in (7, 8) for layers in groups}
    assert len(datas) == 4


def damaged(payload: KvPayload) -> KvPayload:
    data = payload.data.copy()
    data[4321] ^= 1
    return KvPayload(payload.seal, data)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (damaged, "arrived damaged"),
        (lambda payload: KvPayload(payload.seal, payload.data[:-2]), "arrived damaged"),
        (lambda payload: KvPayload(payload.seal._replace(request_id=8), payload.data), "got .*request_id=8"),
        (lambda payload: KvPayload(payload.seal._replace(epoch=0), payload.data), "got .*epoch=0"),
        (lambda payload: KvPayload(payload.seal._replace(num_tokens=99), payload.data), "got .*num_tokens=99"),
        (lambda payload: KvPayload(payload.seal._replace(layers=Layers(0, 3)), payload.data), "got .*end=3"),
    ],
)
def test_wrong_payload_is_refused(spoil, message) -> None:
    receiver = KvStore(LAYOUT)
    receiver.await_kv(7, TOKENS)
    with pytest.raises(TransferFailed, match=message):
        receiver.keep(7, 1, ALL, spoil(payload_of(sender())))
    receiver.drop(7)
    assert receiver.held_bytes() == 0


def test_layers_come_in_any_order_and_outlive_the_sender() -> None:
    groups = (Layers(0, 1), Layers(1, 3), Layers(3, 4))
    store, receiver = KvStore(LAYOUT), KvStore(LAYOUT)
    write(store, 7, groups=groups)
    expected = store.tensor(7).clone()
    receiver.await_kv(7, TOKENS)
    for layers in reversed(groups):
        receiver.keep(7, 1, layers, payload_of(store, layers=layers))
    store.tensor(7).zero_()
    assert torch.equal(receiver.tensor(7), expected)


def test_buffers_are_reused_and_nothing_is_left() -> None:
    store = KvStore(LAYOUT)
    for request_id in range(5):
        write(store, request_id)
        assert store.held_bytes() == 32768
        store.drop(request_id)
    assert (store.held_bytes(), store.num_buffers()) == (0, 1)


def test_dropped_before_it_was_written() -> None:
    store = KvStore(LAYOUT)
    store.expect(3, TOKENS, [ALL])
    store.drop(3)
    store.write(3, 0, ALL, lambda out: pytest.fail("nobody wants it"))
    assert store.held_bytes() == 0
    with pytest.raises(TransferFailed, match="KV of request 3 is not here"):
        store.sealed(3, ALL)


def test_who_waits_for_kv_that_is_dropped_is_told() -> None:
    store = KvStore(LAYOUT)
    store.expect(3, TOKENS, [ALL])
    waiting = store.sealed(3, ALL)
    store.drop(3)
    with pytest.raises(TransferFailed, match="KV of request 3 is not wanted any more"):
        waiting.result(timeout=1)


def test_a_buffer_that_is_written_to_is_nobody_elses() -> None:
    store = KvStore(LAYOUT)
    writing, may_go_on = Future(), Future()

    def fill(out: torch.Tensor) -> None:
        writing.set_result(None)
        may_go_on.result(timeout=5)
        out.fill_(1.0)

    store.expect(3, TOKENS, [ALL])
    thread = Thread(target=store.write, args=(3, 0, ALL, fill))
    thread.start()
    writing.result(timeout=5)
    store.drop(3)
    store.await_kv(4, TOKENS)
    store.tensor(4).zero_()
    may_go_on.set_result(None)
    thread.join()
    assert not store.tensor(4).any()
    store.await_kv(5, TOKENS)
    assert store.num_buffers() == 2, "afterwards it is free"


@pytest.mark.parametrize(("prompt", "scale", "tokens"), [(755, 0.01, 8), (20, 0.01, 1), (755, 1.0, 755), (755, 0.0, 0)])
def test_scaled_tokens(prompt, scale, tokens) -> None:
    assert StandIn(LAYOUT, scale).kv_tokens(Request(0, 0.0, prompt, 1)) == tokens
