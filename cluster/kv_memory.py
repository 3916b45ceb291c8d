"""KV memory of one instance, in tokens: who holds how much, and used + free == capacity."""

from cluster.errors import CapacityError, InvariantError


class KvMemory:
    """A pool of `capacity` tokens. `block_size` 1 counts tokens, larger values round each holding up to blocks."""

    __slots__ = ("block_size", "capacity", "held", "used")

    def __init__(self, capacity: int, *, block_size: int = 1) -> None:
        if block_size < 1:
            raise CapacityError(f"block_size is {block_size}; it must be at least 1")
        self.capacity = capacity - capacity % block_size
        if self.capacity < 1:
            raise CapacityError(f"KV capacity is {capacity} tokens; at least one block of {block_size} is needed")
        self.block_size = block_size
        self.used = 0
        self.held: dict[int, int] = {}
        """Tokens set aside at admission, by request id; growth of running requests is only in `used`."""

    @property
    def free(self) -> int:
        return self.capacity - self.used

    def round_up(self, tokens: int) -> int:
        """Tokens of the whole blocks that hold `tokens`."""
        size = self.block_size
        return tokens if size == 1 else -(-tokens // size) * size

    def can_reserve(self, tokens: int) -> bool:
        return self.used + self.round_up(tokens) <= self.capacity

    def reserve(self, request_id: int, tokens: int) -> None:
        """Set `tokens` aside; raises InvariantError without room or when the request already holds some."""
        tokens = tokens if self.block_size == 1 else self.round_up(tokens)
        used = self.used + tokens
        if used > self.capacity or request_id in self.held:
            raise InvariantError(f"cannot reserve {tokens} KV tokens for request {request_id}: {self.free} free")
        self.used = used
        self.held[request_id] = tokens

    def grow(self, tokens: int) -> None:
        """Add whole blocks for running requests that fill their last one."""
        self.used += tokens
        if self.used > self.capacity:
            raise InvariantError(f"KV memory grew to {self.used} of {self.capacity} tokens")

    def release(self, request_id: int, tokens: int | None = None) -> int:
        """Free what the request holds and return it; `tokens` is its size now when it grew since admission."""
        held = self.held.pop(request_id, None)
        if held is None:
            raise InvariantError(f"request {request_id} holds no KV here")
        if tokens is not None:
            held = self.round_up(tokens)
        self.used -= held
        if self.used < 0:
            raise InvariantError(f"KV memory of {self.capacity} tokens released more than it held")
        return held

    def check_empty(self) -> None:
        """Raise InvariantError unless everything was released."""
        if self.used or self.held:
            raise InvariantError(f"{self.used} KV tokens leaked by requests {sorted(self.held)[:10]}")
