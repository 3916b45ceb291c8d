"""The `conditional` policy: which prompts stay where they will be decoded, and what the books say of them."""

import pytest

from cluster.request import Request, Status
from cluster.role import Role
from planner.conditional import ConditionalRouter
from planner.config import ConditionalSettings
from planner.tools import Targets
from tests.planner.engines import tools_of

P, D = Role.PREFILL, Role.DECODE


def router(*, local_tokens=None, tpot_s=0.070, step_tokens=512):
    """Two prefill instances, 0 and 1, and two decode instances, 2 and 3."""
    conditional = ConditionalSettings(local_tokens=local_tokens)
    tools = tools_of("conditional", targets=Targets(0.5, tpot_s), conditional=conditional)
    made = ConditionalRouter(tools, step_tokens=step_tokens)
    for index, role in enumerate((P, P, D, D)):
        made.open(index, role)
    return made


def request(number=0, prompt=1000, output=100):
    return Request(number, 0.0, prompt, output)


@pytest.mark.parametrize(("prompt", "is_local"), [(1, True), (300, True), (301, False)])
def test_a_threshold_in_tokens(prompt, is_local):
    one = request(prompt=prompt)
    choice = router(local_tokens=300).route_prompt(one)
    assert (choice.instance in (2, 3)) is is_local
    assert one.hands_over is not is_local
    assert choice.policy == ("conditional local" if is_local else "conditional remote")


@pytest.mark.parametrize(
    ("queued", "decoding", "local", "prompt", "tpot_s", "is_local"),
    [
        # 500 tokens take 10 + 50 + 0.5 ms on an idle instance of either kind: local is not later.
        (0, 0, 0, 500, 0.070, True),
        (0, 0, 0, 500, 0.060, False),  # a step of 60.5 ms is above the target
        # 10 sequences of 1000 tokens make it 71.5 ms: over the target, and with a looser one later than remote.
        (0, 10, 0, 500, 0.070, False),
        (0, 10, 0, 500, 0.080, False),
        (1, 10, 0, 500, 0.080, True),  # unless a prompt of 1000 (111 ms) is in line there
        # 1000 tokens take two steps of 512 (62.2 ms each).
        (0, 0, 0, 1000, 0.070, False),
        (1, 0, 0, 1000, 0.070, True),
        # Three prompts of 500 wait there already: four steps of 61.7 ms for 2000 tokens.
        (1, 0, 3, 500, 0.070, False),
        (2, 0, 3, 500, 0.070, True),
    ],
)
def test_estimates(queued, decoding, local, prompt, tpot_s, is_local):
    made = router(tpot_s=tpot_s)
    for instance in (0, 1):
        for _ in range(queued):
            made.prompts.book(instance, 1000)
    for instance in (2, 3):
        for _ in range(decoding):
            made.handoffs.book(instance, 1000)
        made._local[instance] = {-number: request(-number, prompt=500) for number in range(1, local + 1)}
    assert (made.route_prompt(request(prompt=prompt)).instance in (2, 3)) is is_local


def test_no_local_prefill_without_room():
    made = router(tpot_s=10.0)
    for instance in (2, 3):
        made.handoffs.book(instance, 99_500)
    for instance in (0, 1):
        made.prompts.book(instance, 10_000)
    assert made.route_prompt(request(prompt=400, output=100)).instance in (2, 3)
    assert made.route_prompt(request(1, prompt=450, output=100)).instance in (0, 1)


def test_decodes_that_use_up_the_step_leave_no_prompt_a_token():
    made = router(step_tokens=8, tpot_s=10.0)
    for instance in (2, 3):
        for _ in range(8):
            made.handoffs.book(instance, 10)
    assert made.route_prompt(request(prompt=4)).instance in (0, 1)


def test_local_requests_are_on_the_books_of_the_decode_instance_to_their_end():
    made = router(local_tokens=300)
    first, second = request(0, prompt=300), request(1, prompt=200)
    place = made.route_prompt(first).instance
    other = made.route_prompt(second).instance
    assert {place, other} == {2, 3}
    assert made.handoffs.of(place) == (1, 400)
    for status in (Status.QUEUED, Status.PREFILL, Status.DECODE, Status.FINISHED):
        first.enter(status, 0.0)
    made.done(place, first)
    assert made.handoffs.of(place) == (0, 0)
    made.forget(other)
    assert made.handoffs.of(other) == (0, 0)
    assert made.prompts.of(place) == made.prompts.of(other) == (0, 0)


def test_a_remote_request_goes_its_usual_way():
    made = router(local_tokens=300)
    one = request(prompt=301)
    place = made.route_prompt(one).instance
    assert made.prompts.of(place) == (1, 301)
    for status in (Status.QUEUED, Status.PREFILL, Status.HANDOFF):
        one.enter(status, 0.0)
    made.done(place, one)
    decode = made.route_handoff(one).instance
    assert (made.prompts.of(place), made.handoffs.of(decode)) == ((0, 0), (1, 401))


def test_nobody_to_decode_means_nowhere_to_go():
    made = router()
    for instance in (2, 3):
        made.close(instance)
    assert made.route_prompt(request()) is None
