"""Which instance serves a request: policies over the router's own books, and the reason for every choice.

The router counts what it has sent and not yet heard back about, so a burst between two load reports cannot
pile onto one instance. Adding to the books is part of choosing: one step, nothing in between.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from cluster.errors import ConfigError
from cluster.request import ENDED, Request
from cluster.role import Role
from cluster.suggestion import did_you_mean


class Choice(NamedTuple):
    """An instance and why: the policy, and the load in tokens it was chosen at."""

    instance: int
    policy: str
    load: int
    candidates: int

    @property
    def reason(self) -> str:
        return f"{self.policy}: instance {self.instance} at {self.load} tokens, of {self.candidates}"


class Candidates:
    """Instances that may be chosen for one kind of work, with the tokens of it each has, in two parallel lists."""

    __slots__ = ("at", "booked", "ids", "loads", "next_turn", "rng")

    def __init__(self, rng: Random) -> None:
        self.ids: list[int] = []
        self.loads: list[int] = []
        self.at: dict[int, int] = {}
        """Position of an instance in both lists."""
        self.booked: dict[int, int] = {}
        """Tokens of every instance that ever was a candidate, or still has work of this kind."""
        self.next_turn = 0
        self.rng = rng

    def add(self, instance: int) -> None:
        self.at[instance] = len(self.ids)
        self.ids.append(instance)
        self.loads.append(self.booked.setdefault(instance, 0))

    def remove(self, instance: int) -> None:
        """Choose it no more; what it has still counts."""
        position = self.at.pop(instance, None)
        if position is None:
            return
        del self.ids[position], self.loads[position]
        for other in self.ids[position:]:
            self.at[other] -= 1

    def only(self, instances: Iterable[int]) -> "Candidates":
        """Some of them, to choose among."""
        some = Candidates(self.rng)
        some.booked = self.booked
        some.next_turn = self.next_turn
        for instance in instances:
            some.add(instance)
        return some

    def book(self, instance: int, tokens: int) -> None:
        """Add to what an instance has; negative when work is over."""
        load = self.booked[instance] = self.booked.get(instance, 0) + tokens
        position = self.at.get(instance)
        if position is not None:
            self.loads[position] = load


def join_shortest_queue(candidates: Candidates) -> int:
    """The least loaded instance; ties are broken by the seeded generator."""
    loads = candidates.loads
    least = min(loads)
    first = loads.index(least)
    ties = loads.count(least)
    if ties > 1:
        for _ in range(int(candidates.rng.random() * ties)):
            first = loads.index(least, first + 1)
    return first


def round_robin(candidates: Candidates) -> int:
    candidates.next_turn = (candidates.next_turn + 1) % len(candidates.ids)
    return candidates.next_turn


def uniform(candidates: Candidates) -> int:
    return candidates.rng.randrange(len(candidates.ids))


def power_of_two(candidates: Candidates) -> int:
    """The less loaded of two drawn at random (Mitzenmacher, 2001)."""
    count = len(candidates.ids)
    if count == 1:
        return 0
    one, other = candidates.rng.sample(range(count), 2)
    return one if candidates.loads[one] <= candidates.loads[other] else other


POLICIES: dict[str, Callable[[Candidates], int]] = {
    "jsq": join_shortest_queue,
    "round_robin": round_robin,
    "random": uniform,
    "power_of_two": power_of_two,
}


class Router:
    """Books of work in flight per instance, and a policy for prompts and one for handoffs.

    A prompt goes to a prefill or a mixed instance; a handoff to a decode instance. With `pairs`, as in
    Splitwise, both are chosen when the prompt arrives, and a mixed instance may be either; a prompt whose two
    instances are the same, or both mixed, stays where it is computed. `reserves_output` says whether KV loads
    count the output a request has declared (as `reserve_output` admission does) or only what exists.
    """

    def __init__(
        self,
        *,
        prefill_policy: str = "jsq",
        decode_policy: str = "jsq",
        reserves_output: bool = True,
        pairs: bool = False,
        seed: int = 0,
    ) -> None:
        for field, name in (("prefill_policy", prefill_policy), ("decode_policy", decode_policy)):
            if name not in POLICIES:
                raise ConfigError(f"router.{field} is {name!r}; {did_you_mean(name, POLICIES)}")
        rng = Random(seed)
        self.prefill_policy = prefill_policy
        self.decode_policy = decode_policy
        self._choose_prefill = POLICIES[prefill_policy]
        self._choose_decode = POLICIES[decode_policy]
        self._reserves_output = reserves_output
        self._pairs = pairs
        self.prompts = Candidates(rng)
        """Prefill instances by prompt tokens not yet computed, mixed ones by all tokens of unfinished requests."""
        self.handoffs = Candidates(rng)
        """Decode instances by KV tokens of unfinished requests."""
        self._roles: dict[int, Role] = {}
        self._paired: dict[int, int] = {}
        """Decode instance chosen in advance, by request."""

    def open(self, instance: int, role: Role) -> None:
        """The instance serves `role` from now on."""
        self._roles[instance] = role
        if role is not Role.DECODE:
            self.prompts.add(instance)
        if role is Role.DECODE or (role is Role.MIXED and self._pairs):
            self.handoffs.add(instance)

    def close(self, instance: int) -> None:
        """Send the instance nothing more; what it has still counts."""
        self.prompts.remove(instance)
        self.handoffs.remove(instance)

    def forget(self, instance: int) -> None:
        """The instance is gone, and all its work with it."""
        self.close(instance)
        self.prompts.booked[instance] = self.handoffs.booked[instance] = 0
        self._paired = {request: decode for request, decode in self._paired.items() if decode != instance}

    def role_if_open(self, instance: int) -> Role | None:
        """The role it serves now; None when it gets no work."""
        is_open = instance in self.prompts.at or instance in self.handoffs.at
        return self._roles[instance] if is_open else None

    def route_prompt(self, request: Request) -> Choice | None:
        """Choose where to prefill, book it, and settle whether the KV leaves; None while nobody serves prompts."""
        prompts, handoffs = self.prompts, self.handoffs
        if not prompts.ids or (self._pairs and not handoffs.ids):
            return None
        position = self._choose_prefill(prompts)
        instance, load = prompts.ids[position], prompts.loads[position]
        if self._pairs:
            self.unpair(request)
            decode = handoffs.ids[self._choose_decode(handoffs)]
            if not self._may_take(decode, instance):
                decode = instance
            request.hands_over = decode != instance
            handoffs.book(decode, self._kv_tokens(request))
            if request.hands_over:
                self._paired[request.request_id] = decode
        else:
            request.hands_over = self._roles[instance] is Role.PREFILL
        prompts.book(instance, self._prompt_tokens(request))
        return Choice(instance, self.prefill_policy, load, len(prompts.ids))

    def route_handoff(self, request: Request) -> Choice | None:
        """Choose where to decode and book it; None while nobody serves decode who may take the KV."""
        handoffs = self.handoffs
        source = request.prefill_instance if request.decode_instance < 0 else request.decode_instance
        paired = self._paired.get(request.request_id)
        if paired is not None and paired in handoffs.at and self._may_take(paired, source):
            del self._paired[request.request_id]
            return Choice(paired, "pair", handoffs.booked[paired], len(handoffs.ids))
        self.unpair(request)
        if source in handoffs.at or self._pairs:
            handoffs = handoffs.only(one for one in handoffs.ids if self._may_take(one, source))
        if not handoffs.ids:
            return None
        position = self._choose_decode(handoffs)
        instance, load = handoffs.ids[position], handoffs.loads[position]
        self.handoffs.book(instance, self._kv_tokens(request))
        return Choice(instance, self.decode_policy, load, len(handoffs.ids))

    def book_prompt(self, instance: int, request: Request) -> None:
        """Take over a prompt that another router sent there; `hands_over` says what that one settled."""
        self.prompts.book(instance, self._prompt_tokens(request))

    def book_handoff(self, instance: int, request: Request) -> None:
        """Take over a handoff that another router sent there."""
        self.handoffs.book(instance, self._kv_tokens(request))

    def route_migration(self, request: Request, source: int, has_room: Callable[[int], bool]) -> int | None:
        """Choose where a decoding request goes on: the least loaded instance with room for it now, if there is one.

        It is booked there and no longer at its source; `route_handoff` will confirm the choice.
        """
        handoffs = self.handoffs
        with_room = [instance for instance in handoffs.ids if instance != source and has_room(instance)]
        if not with_room:
            return None
        target = min(with_room, key=handoffs.booked.__getitem__)
        self.leaves(request, source)
        handoffs.book(target, self._kv_tokens(request))
        self._paired[request.request_id] = target
        return target

    def leaves(self, request: Request, source: int) -> None:
        """A request no longer decodes at its source."""
        if request.decode_instance < 0:
            self.prompts.book(source, -self._prompt_tokens(request))
        if request.decode_instance >= 0 or self._pairs:
            self.handoffs.book(source, -self._kv_tokens(request))

    def migration_undone(self, request: Request, source: int) -> None:
        """The request ended or stays at its source before it could leave."""
        tokens = self._kv_tokens(request)
        self.unpair(request)
        if request.decode_instance < 0:
            self.prompts.book(source, self._prompt_tokens(request))
        if request.decode_instance >= 0 or self._pairs:
            self.handoffs.book(source, tokens)

    def done(self, instance: int, request: Request) -> None:
        """The prompt is computed and its KV will leave, or the request has ended there."""
        if request.hands_over:
            self.prompts.book(instance, -self._prompt_tokens(request))
            if request.status in ENDED:
                self.unpair(request)
        elif request.decode_instance >= 0:
            self.handoffs.book(instance, -self._kv_tokens(request))
        else:
            self.prompts.book(instance, -self._prompt_tokens(request))
            if self._pairs:
                self.handoffs.book(instance, -self._kv_tokens(request))

    def handoff_undone(self, instance: int, request: Request) -> None:
        """The handoff booked there will not come."""
        self.handoffs.book(instance, -self._kv_tokens(request))

    def unpair(self, request: Request) -> None:
        """Nothing will come to the decode instance that was chosen for it in advance."""
        paired = self._paired.pop(request.request_id, None)
        if paired is not None:
            self.handoffs.book(paired, -self._kv_tokens(request))

    def _may_take(self, decode: int, source: int) -> bool:
        # KV stays where it is rather than go from one mixed instance to another: two such could each hold the
        # room that the other waits for, for ever. From prefill to mixed to decode no circle can close.
        return decode != source and not self._roles[decode] is self._roles.get(source) is Role.MIXED

    def _prompt_tokens(self, request: Request) -> int:
        """A prompt counts with its output where the same queue has to decode it."""
        return request.prompt_tokens if request.hands_over or self._pairs else self._kv_tokens(request)

    def _kv_tokens(self, request: Request) -> int:
        return request.prompt_tokens + request.output_tokens if self._reserves_output else request.prompt_tokens


def spread(loads: Iterable[int]) -> tuple[int, float]:
    """How uneven loads are: (max - min, coefficient of variation); (0, 0.0) for none."""
    values = list(loads)
    mean = sum(values) / len(values) if values else 0.0
    if not mean:
        return (0, 0.0)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return (max(values) - min(values), variance**0.5 / mean)
