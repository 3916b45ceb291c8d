"""Whom the router chooses, why, and that its books balance."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from cluster.request import Request, Status
from cluster.role import Role
from cluster.router import POLICIES, Router, spread


def router(*, prefill: int = 0, decode: int = 0, mixed: int = 0, **fields) -> Router:
    made = Router(**fields)
    for index, role in enumerate([Role.PREFILL] * prefill + [Role.DECODE] * decode + [Role.MIXED] * mixed):
        made.open(index, role)
    return made


def load_of(made: Router, instance: int) -> int:
    """Tokens in flight there, of either kind."""
    return made.prompts.booked.get(instance, 0) + made.handoffs.booked.get(instance, 0)


def request(prompt: int = 100, output: int = 10, number: int = 0) -> Request:
    return Request(number, 0.0, prompt, output)


@pytest.mark.parametrize("seed", range(20))
def test_eight_at_once_go_four_and_four(seed):
    made = router(prefill=2, seed=seed)
    assert Counter(made.route_prompt(request()).instance for _ in range(8)) == {0: 4, 1: 4}


def test_the_shortest_queue_counts_tokens_not_requests():
    made = router(prefill=2)
    long = made.route_prompt(request(prompt=1000)).instance
    assert [made.route_prompt(request(prompt=90)).instance for _ in range(11)] == [1 - long] * 11
    choice = made.route_prompt(request(prompt=90))
    assert choice == (1 - long, "jsq", 990, 2)
    assert choice.reason == f"jsq: instance {1 - long} at 990 tokens, of 2"
    assert made.route_prompt(request()).instance == long


def test_ties_are_drawn_evenly_and_the_same_for_one_seed():
    def choices(seed: int) -> list[int]:
        made = router(prefill=3, seed=seed)
        drawn = []
        for number in range(600):
            sent = request(number=number)
            drawn.append(made.route_prompt(sent).instance)
            made.done(drawn[-1], sent)
        return drawn

    assert choices(5) == choices(5) != choices(6)
    assert all(150 < count < 250 for count in Counter(choices(5)).values())


@pytest.mark.parametrize(
    ("role", "reserves_output", "load"),
    [
        (Role.PREFILL, True, 100),
        (Role.DECODE, True, 110),
        (Role.MIXED, True, 110),
        (Role.DECODE, False, 100),
        (Role.MIXED, False, 100),
    ],
)
def test_a_declared_output_counts_only_where_admission_reserves_it(role, reserves_output, load):
    made = Router(reserves_output=reserves_output)
    made.open(7, role)
    route = made.route_handoff if role is Role.DECODE else made.route_prompt
    assert route(request()).instance == 7
    assert load_of(made, 7) == load


def test_other_policies():
    turns = router(mixed=3, prefill_policy="round_robin")
    assert [turns.route_prompt(request()).instance for _ in range(5)] == [1, 2, 0, 1, 2]
    dice = router(mixed=3, prefill_policy="random")
    assert set(Counter(dice.route_prompt(request()).instance for _ in range(100))) == {0, 1, 2}
    two = router(mixed=2, prefill_policy="power_of_two")
    assert Counter(two.route_prompt(request()).instance for _ in range(100)) == {0: 50, 1: 50}
    assert router(mixed=1, prefill_policy="power_of_two").route_prompt(request()).instance == 0


def test_prompts_and_handoffs_go_to_their_roles_only():
    made = router(prefill=1, decode=2, mixed=1)
    assert {made.route_prompt(request()).instance for _ in range(20)} == {0, 3}
    assert {made.route_handoff(request()).instance for _ in range(20)} == {1, 2}
    assert [made.role_if_open(index) for index in range(4)] == [Role.PREFILL, Role.DECODE, Role.DECODE, Role.MIXED]


def test_a_closed_instance_gets_nothing_and_its_work_still_counts():
    made = router(prefill=2)
    made.route_prompt(request())
    busy = next(index for index in (0, 1) if load_of(made, index))
    made.close(busy)
    assert made.role_if_open(busy) is None
    assert [made.route_prompt(request()).instance for _ in range(3)] == [1 - busy] * 3
    made.open(busy, Role.PREFILL)
    assert made.route_prompt(request()).instance == busy
    made.close(0)
    made.close(1)
    assert made.route_prompt(request()) is None
    assert made.route_handoff(request()) is None


def test_a_forgotten_instance_leaves_no_load():
    made = router(decode=1)
    made.route_handoff(request())
    made.forget(0)
    assert (load_of(made, 0), made.role_if_open(0)) == (0, None)


@given(
    st.sampled_from(sorted(POLICIES)),
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500), st.booleans()), max_size=60),
    st.integers(0, 9),
)
def test_books_return_to_zero(policy, works, seed):
    """Work begins and ends in any order; the chosen load is what is in flight there."""
    made = router(prefill=2, decode=3, prefill_policy=policy, decode_policy=policy, seed=seed)
    in_flight: list[tuple[int, Request]] = []
    for number, (prompt, output, is_prompt) in enumerate(works):
        one = request(prompt, output, number)
        choice = made.route_prompt(one) if is_prompt else made.route_handoff(one)
        one.decode_instance = -1 if is_prompt else choice.instance
        assert choice.load == sum(
            other.prompt_tokens if instance < 2 else other.max_tokens
            for instance, other in in_flight
            if instance == choice.instance
        )
        in_flight.append((choice.instance, one))
        if number % 3 == 2:
            made.done(*in_flight.pop(number % len(in_flight)))
    for instance, one in in_flight:
        made.done(instance, one)
    assert [load_of(made, index) for index in range(5)] == [0] * 5


def test_pairs_are_chosen_at_arrival_and_kept():
    """A prompt and a token instance, booked together; a token instance that left is replaced."""
    made = router(prefill=1, decode=2, pairs=True)
    one, other = request(number=1), request(number=2)
    assert (made.route_prompt(one).instance, made.route_prompt(other).instance) == (0, 0)
    assert made.prompts.booked == {0: 200}
    assert made.handoffs.booked == {1: 110, 2: 110}
    first = made.route_handoff(one)
    assert first.policy == "pair"
    left = 3 - first.instance
    made.close(left)
    assert made.route_handoff(other) == (first.instance, "jsq", 110, 1)
    assert made.handoffs.booked == {first.instance: 220, left: 0}


@pytest.mark.parametrize("mixed", [1, 2])
def test_a_pair_of_mixed_instances_stays_where_the_prompt_is(mixed):
    """Two that hand over to each other could each hold the room that the other waits for."""
    made = router(mixed=mixed, pairs=True)
    for number in range(20):
        one = request(number=number)
        instance = made.route_prompt(one).instance
        assert not one.hands_over
        assert load_of(made, instance) == 100 + 110
        made.done(instance, one)
        assert load_of(made, instance) == 0


def test_a_migration_may_go_back_to_where_the_prompt_was_computed():
    """That instance decodes by now."""
    made, one = router(decode=2), request(100, 10)
    one.prefill_instance, one.decode_instance = 0, 1
    made.book_handoff(1, one)
    made.close(1)
    assert made.route_migration(one, 1, lambda _: True) == 0
    choice = made.route_handoff(one)
    assert choice is not None
    assert (choice.instance, choice.policy) == (0, "pair")
    assert made.handoffs.booked == {0: 110, 1: 0}


def test_spread():
    assert spread([]) == (0, 0.0)
    assert spread([0, 0]) == (0, 0.0)
    assert spread([83, 78, 5, 0, 0]) == (83, pytest.approx(1.16, abs=0.01))


def test_an_unknown_policy():
    with pytest.raises(ConfigError) as error:
        Router(decode_policy="jfq")
    assert str(error.value) == "router.decode_policy is 'jfq'; did you mean jsq?"


@pytest.mark.parametrize("end", ["finished", "routed again", "instance gone"])
def test_a_pair_that_comes_to_nothing_leaves_no_load(end):
    made = router(prefill=1, decode=1, pairs=True)
    one = request(output=1)
    made.route_prompt(one)
    if end == "finished":
        one.status = Status.FINISHED
        made.done(0, one)
    elif end == "routed again":
        made.done(0, one)
        made.route_prompt(one)
        made.done(0, one)
        made.handoff_undone(made.route_handoff(one).instance, one)
    else:
        made.done(0, one)
        made.forget(1)
        assert made.route_handoff(one) is None
    assert load_of(made, 0) == load_of(made, 1) == 0


def test_kv_is_not_handed_to_the_instance_that_has_it():
    """It has become a decode instance meanwhile, and the emptiest one."""
    made = router(prefill=1, decode=1)
    one = request()
    one.prefill_instance = made.route_prompt(one).instance
    made.done(0, one)
    made.close(0)
    made.open(0, Role.DECODE)
    made.route_handoff(request(prompt=5000, number=1))
    assert made.route_handoff(one).instance == 1
    made.close(1)
    assert made.route_handoff(one) is None


def test_kv_of_a_mixed_instance_goes_to_decode_instances_only():
    """The pair of a prompt has become mixed, as the prompt's own instance is: another takes the KV."""
    made = router(decode=2, mixed=1, pairs=True)
    made.handoffs.book(2, 1000)
    one = request()
    one.prefill_instance = made.route_prompt(one).instance
    pair = next(index for index in (0, 1) if load_of(made, index))
    made.handoffs.book(2, -1000)
    made.close(pair)
    made.open(pair, Role.MIXED)
    assert made.route_handoff(one).instance == 1 - pair
