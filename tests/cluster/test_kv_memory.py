"""used + free == capacity, whatever is reserved, grown and released."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import CapacityError, InvariantError
from cluster.kv_memory import KvMemory


@given(
    st.integers(1, 20),
    st.integers(20, 500),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 200)), max_size=60),
)
def test_books_agree(block_size, capacity, operations):
    """A request that holds nothing reserves if it fits, one that holds something releases it."""
    memory = KvMemory(capacity, block_size=block_size)
    assert 0 <= capacity - memory.capacity < block_size
    held: dict[int, int] = {}
    for request_id, tokens in operations:
        if request_id in held:
            assert memory.release(request_id) == held.pop(request_id) * block_size
        elif memory.can_reserve(tokens):
            memory.reserve(request_id, tokens)
            held[request_id] = -(-tokens // block_size)
        else:
            assert sum(held.values()) + -(-tokens // block_size) > memory.capacity // block_size
            with pytest.raises(InvariantError):
                memory.reserve(request_id, tokens)
        assert memory.used == sum(held.values()) * block_size
        assert memory.used + memory.free == memory.capacity
    for request_id in held:
        memory.release(request_id)
    memory.check_empty()


def test_growth_is_released_by_the_size_reached():
    memory = KvMemory(64, block_size=16)
    memory.reserve(1, 17)
    assert memory.used == 32
    memory.grow(16)
    assert memory.release(1, tokens=33) == 48
    assert memory.used == 0


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda memory: memory.reserve(1, 5), "cannot reserve 5 KV tokens for request 1: 5 free"),
        (lambda memory: memory.reserve(2, 6), "cannot reserve 6 KV tokens for request 2: 5 free"),
        (lambda memory: memory.grow(6), "KV memory grew to 11 of 10 tokens"),
        (lambda memory: memory.release(2), "request 2 holds no KV here"),
        (lambda memory: memory.release(1, 6), "KV memory of 10 tokens released more than it held"),
        (lambda memory: memory.check_empty(), "5 KV tokens leaked by requests [1]"),
    ],
)
def test_broken_books_stop_the_run(misuse, message):
    memory = KvMemory(10)
    memory.reserve(1, 5)
    with pytest.raises(InvariantError) as error:
        misuse(memory)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("capacity", "block_size", "message"),
    [
        (15, 16, "KV capacity is 15 tokens; at least one block of 16 is needed"),
        (10, 0, "block_size is 0; it must be at least 1"),
    ],
)
def test_a_pool_of_no_block(capacity, block_size, message):
    with pytest.raises(CapacityError) as error:
        KvMemory(capacity, block_size=block_size)
    assert str(error.value) == message
