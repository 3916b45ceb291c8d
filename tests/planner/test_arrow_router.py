"""The `arrow` rule, condition by condition, on an engine whose times are computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.request import Request, Status
from cluster.role import Role
from planner.arrow import ArrowRouter
from planner.decision import How
from planner.tools import Targets
from tests.planner.engines import tools_of

P, D = Role.PREFILL, Role.DECODE
PROMPT_S = 0.010 + 0.1 + 0.001
"""Of 1000 tokens, alone in a step."""


def router(prefill=2, decode=2, *, ttft_s=0.5, tpot_s=0.033, **fields):
    made = ArrowRouter(tools_of("arrow", targets=Targets(ttft_s, tpot_s), **fields))
    for index in range(prefill + decode):
        made.open(index, P if index < prefill else D)
    return made


def request(number=0, prompt=1000, output=200):
    return Request(number, 0.0, prompt, output)


def flips(made):
    return [(order.instance, order.role, order.cause) for order in made.take_orders()]


def send(made, count, *, start=0, **lengths):
    """(prefill, decode) instances of so many requests."""
    pairs = []
    for number in range(start, start + count):
        one = request(number, **lengths)
        choice = made.route_prompt(one)
        pairs.append((choice.instance, made.route_handoff(one).instance))
    return pairs


def test_prefill_where_it_takes_the_least_time_and_decode_on_the_first_that_keeps_to_the_target():
    """A sequence is 1100 tokens on average: 10 + 1.2 n ms with n of them, so 19 keep to 33 ms and the 20th does not."""
    made = router(ttft_s=5.0)
    pairs = send(made, 20)
    assert [prefill for prefill, _ in pairs] == [0, 1] * 10
    assert [decode for _, decode in pairs] == [2] * 19 + [3]
    assert flips(made) == []


def test_times_count_not_tokens():
    """8 prompts of 100 tokens fit one step of 90.8 ms, one of 900 takes 100.9 ms."""
    made = router()
    sent = [made.route_prompt(request(0, prompt=900)).instance]
    sent += [made.route_prompt(request(number, prompt=100)).instance for number in range(1, 9)]
    assert sent == [0] + [1] * 8
    assert made.prefill_s(0) == pytest.approx(0.1009)
    assert made.prefill_s(1) == pytest.approx(8 * (0.010 + 0.1 + 0.001) / 10)
    assert made.route_prompt(request(9)).instance == 1


def overloaded(made, decode_requests):
    """Both prefill instances five prompts behind (0.555 s), and so many requests on each decode instance."""
    for instance in (0, 1):
        for _ in range(5):
            made.prompts.book(instance, 1000)
    for instance, count in zip((2, 3), decode_requests, strict=True):
        for _ in range(count):
            made.handoffs.book(instance, 1100)
    return made


@pytest.mark.parametrize(
    ("decode_requests", "guests", "ttft_s", "host"),
    [
        ((10, 2), 0, 0.5, 3),  # 13.6 ms there, below half of 33
        ((10, 5), 0, 0.5, 0),  # 17.2 ms, above
        ((2, 10), 0, 0.5, 0),  # the calmest is the one that will decode it
        ((10, 2), 0, 0.6, 0),  # prefill is within its target
        ((10, 2), 5, 0.5, 0),  # the host has as much prefill work
    ],
)
def test_a_calm_decode_instance_computes_prompts_when_prefill_is_late(decode_requests, guests, ttft_s, host):
    made = overloaded(router(ttft_s=ttft_s), decode_requests)
    for _ in range(guests):
        made.prompts.book(3, 1000)
    one = request()
    assert made.route_prompt(one).instance == host
    assert one.hands_over
    assert made.route_handoff(one).instance == 2


def test_a_guest_is_not_sent_to_decode_where_kv_waits_to_leave():
    """2 computed a prompt for 3 when it was a prefill instance, and still holds it: it may wait for 3, so 3 must not
    wait for it."""
    made = router(prefill=3, decode=1)
    owed = request(0)
    for instance in (0, 1):
        made.prompts.book(instance, 1000)
    assert made.route_prompt(owed).instance == 2
    made.close(2)
    made.open(2, D)
    overloaded(made, (10, 2))
    made.prompts.book(2, 1000)
    assert made.route_prompt(request(1)).instance == 0
    for status in (Status.QUEUED, Status.PREFILL, Status.HANDOFF, Status.TRANSFER, Status.READY):
        owed.enter(status, 1.0)
    made.prompts.book(0, 1000)
    assert made.route_prompt(request(2)).instance == 3


@pytest.mark.parametrize(
    ("prefill", "decode", "queued", "flipped"),
    [
        (2, 2, (0, 0), [(0, D, "decode_tpot")]),  # prefill has time: 0 s on average, below 0.5 x 1/2
        (2, 2, (2, 1), [(1, D, "decode_tpot")]),  # 0.17 s
        (2, 2, (3, 2), []),  # 0.28 s, and not fewer decode than prefill instances
        (3, 1, (5, 5, 5), [(0, D, "decode_tpot")]),  # late, but there is one decode instance only
        (1, 2, (0,), []),  # the last prefill instance stays
    ],
)
def test_prefill_becomes_decode_when_no_decode_instance_keeps_to_the_target(prefill, decode, queued, flipped):
    made = router(prefill, decode)
    for instance, prompts in enumerate(queued):
        for _ in range(prompts):
            made.prompts.book(instance, 1000)
    for instance in range(prefill, prefill + decode):
        for _ in range(20 + instance):
            made.handoffs.book(instance, 1100)
    one = request()
    sent = made.route_prompt(one)
    assert made.route_handoff(one).instance == prefill, "the decode instance that comes closest"
    assert flips(made) == flipped
    if flipped:
        assert sent.instance == flipped[0][0], "the prefill instance that was chosen"


def test_an_instance_that_is_to_flip_gets_nothing_until_it_has():
    made = router(3, 1, tpot_s=0.011)
    first = made.route_prompt(request(0)).instance
    (order,) = made.take_orders()
    assert (order.instance, order.role, order.how) == (first, D, How.FLIP)
    assert made.role_if_open(first) is P, "a driver may close it"
    assert first not in {made.route_prompt(request(number)).instance for number in range(1, 3)}
    made.close(first)
    assert made.role_if_open(first) is None
    made.open(first, D)
    assert made.role_if_open(first) is D


def finish(made, one, prefill, decode):
    """Its way from the prompt to its last token."""
    for status in (Status.QUEUED, Status.PREFILL, Status.HANDOFF):
        one.enter(status, 0.0)
    made.done(prefill, one)
    assert made.route_handoff(one).instance == decode
    one.decode_instance, one.hands_over = decode, False
    for status in (Status.TRANSFER, Status.READY, Status.DECODE, Status.FINISHED):
        one.enter(status, 0.0)
    made.done(decode, one)


def test_a_decode_instance_whose_last_request_ends_becomes_a_prefill_instance():
    made = router(2, 2)
    requests = [request(number) for number in range(2)]
    places = [made.route_prompt(one).instance for one in requests]
    assert flips(made) == []
    finish(made, requests[0], places[0], 2)
    assert flips(made) == [], "it has another one"
    finish(made, requests[1], places[1], 2)
    assert flips(made) == [(2, P, "decode_idle")]
    assert made.handoffs.ids == [3]


@pytest.mark.parametrize("fields", [{}, {"min_decode": 2}])
def test_the_last_decode_instances_stay(fields):
    made = router(1, 1 if not fields else 2, **fields)
    one = request()
    finish(made, one, made.route_prompt(one).instance, 1)
    assert flips(made) == []


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([50, 1000, 5000]), st.sampled_from([2, 200])), max_size=60)
)
def test_no_role_is_ever_empty_and_the_books_balance(events):
    """Requests come and, oldest first, end, with every flip carried out at once."""
    made = router(2, 2, ttft_s=0.2, tpot_s=0.015)
    live = []

    def carry_out():
        for order in made.take_orders():
            made.close(order.instance)
            made.open(order.instance, order.role)
        assert made.prompts.ids
        assert made.handoffs.ids

    for number, (ends, prompt, output) in enumerate(events):
        one = request(number, prompt, output)
        live.append((one, made.route_prompt(one).instance))
        carry_out()
        for _ in range(min(ends, len(live))):
            ended, prefill = live.pop(0)
            finish(made, ended, prefill, made._paired[ended.request_id])
            carry_out()
    while live:
        ended, prefill = live.pop(0)
        finish(made, ended, prefill, made._paired[ended.request_id])
        carry_out()
    for books in (made.prompts, made.handoffs):
        assert set(books.booked.values()) <= {0}
        assert set(books.requests.values()) <= {0}
    assert not made._leaving
