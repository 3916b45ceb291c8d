"""Which instance serves a request: policies over the router's own books, and the reason for every choice.

The router counts what it has sent and not yet heard back about, so a burst between two load reports cannot
pile onto one instance. Adding to the books is part of choosing: one step, nothing in between.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from cluster.errors import ConfigError
from cluster.request import Request
from cluster.role import Role


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
    """Instances serving one role, with their loads in tokens, in two parallel lists.

    `loads` is what queue policies compare: prompt tokens not yet computed (prefill), or KV tokens of all
    unfinished requests (decode and mixed).
    """

    __slots__ = ("at", "ids", "loads", "next_turn", "rng")

    def __init__(self, rng: Random) -> None:
        self.ids: list[int] = []
        self.loads: list[int] = []
        self.at: dict[int, int] = {}
        """Position of an instance in both lists."""
        self.next_turn = 0
        self.rng = rng

    def add(self, instance: int, load: int) -> None:
        self.at[instance] = len(self.ids)
        self.ids.append(instance)
        self.loads.append(load)

    def remove(self, instance: int) -> None:
        position = self.at.pop(instance)
        del self.ids[position], self.loads[position]
        for other in self.ids[position:]:
            self.at[other] -= 1


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

    A prompt goes to a prefill or a mixed instance; a handoff to a decode instance. `reserves_output` says
    whether KV loads count the output a request has declared (as `reserve_output` admission does) or only
    what exists.
    """

    def __init__(
        self, *, prefill_policy: str = "jsq", decode_policy: str = "jsq", reserves_output: bool = True, seed: int = 0
    ) -> None:
        for field, name in (("prefill_policy", prefill_policy), ("decode_policy", decode_policy)):
            if name not in POLICIES:
                raise ConfigError(f"router.{field} is {name!r}; use one of {', '.join(POLICIES)}")
        rng = Random(seed)
        self.prefill_policy = prefill_policy
        self.decode_policy = decode_policy
        self._choose_prefill = POLICIES[prefill_policy]
        self._choose_decode = POLICIES[decode_policy]
        self._reserves_output = reserves_output
        self.prompts = Candidates(rng)
        """Prefill and mixed instances."""
        self.handoffs = Candidates(rng)
        """Decode instances."""
        self._loads: dict[int, int] = {}
        """Load of every instance known, serving or not."""
        self._roles: dict[int, Role] = {}

    def open(self, instance: int, role: Role) -> None:
        """The instance serves `role` from now on."""
        self._roles[instance] = role
        candidates = self.handoffs if role is Role.DECODE else self.prompts
        candidates.add(instance, self._loads.setdefault(instance, 0))

    def close(self, instance: int) -> None:
        """Send the instance nothing more; what it has still counts."""
        for candidates in (self.prompts, self.handoffs):
            if instance in candidates.at:
                candidates.remove(instance)

    def forget(self, instance: int) -> None:
        """The instance is gone, and all its work with it."""
        self.close(instance)
        self._loads[instance] = 0

    def role_if_open(self, instance: int) -> Role | None:
        """The role it serves now; None when it gets no work."""
        is_open = instance in self.prompts.at or instance in self.handoffs.at
        return self._roles[instance] if is_open else None

    def load_of(self, instance: int) -> int:
        """Tokens in flight there by the books of this router."""
        return self._loads[instance]

    def route_prompt(self, request: Request) -> Choice | None:
        """Choose where to prefill and book it; None while nobody serves prompts."""
        if not self.prompts.ids:
            return None
        return self._book(self.prompts, self._choose_prefill(self.prompts), self.prefill_policy, request)

    def route_handoff(self, request: Request) -> Choice | None:
        """Choose where to decode and book it; None while nobody serves decode."""
        if not self.handoffs.ids:
            return None
        return self._book(self.handoffs, self._choose_decode(self.handoffs), self.decode_policy, request)

    def done(self, instance: int, request: Request) -> None:
        """The work booked for this request there is over: prompt computed, finished, moved or cancelled."""
        self._add(instance, -self._tokens(instance, request))

    def _tokens(self, instance: int, request: Request) -> int:
        if self._reserves_output and self._roles[instance] is not Role.PREFILL:
            return request.prompt_tokens + request.output_tokens
        return request.prompt_tokens

    def _book(self, candidates: Candidates, position: int, policy: str, request: Request) -> Choice:
        instance = candidates.ids[position]
        load = candidates.loads[position]
        self._add(instance, self._tokens(instance, request))
        return Choice(instance, policy, load, len(candidates.ids))

    def _add(self, instance: int, tokens: int) -> None:
        load = self._loads[instance] = self._loads[instance] + tokens
        for candidates in (self.prompts, self.handoffs):
            position = candidates.at.get(instance)
            if position is not None:
                candidates.loads[position] = load


def spread(loads: Iterable[int]) -> tuple[int, float]:
    """How uneven loads are: (max - min, coefficient of variation); (0, 0.0) for none."""
    values = list(loads)
    mean = sum(values) / len(values) if values else 0.0
    if not mean:
        return (0, 0.0)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return (max(values) - min(values), variance**0.5 / mean)
