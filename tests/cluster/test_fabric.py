"""Transfers that share NICs, against a fluid recomputed from scratch at every change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.agenda import ARRIVAL, STEP_END, Agenda
from cluster.fabric import Fabric, Flow
from cluster.handoff import Handoff
from cluster.link import LinkSpec
from cluster.request import Request
from tests.reference.cases import INFINIBAND
from tests.reference.fluid import Fluid, FluidFlow

LINK = LinkSpec(name="test", bandwidth_bytes_s=125.0, alpha_s=0.5, efficiency=0.8)
"""100 bytes a second."""


def send(
    flows: list[tuple[float, int, int, int]], link: LinkSpec = LINK, cancels: dict[int, float] | None = None
) -> dict[int, float]:
    """When each flow (start, source, target, bytes) ends, by its number; `cancels` stops some before."""
    agenda = Agenda()
    ends: dict[int, float] = {}
    fabric = Fabric(agenda, lambda flow, now: ends.__setitem__(flow.handoff.request.request_id, now))
    started: dict[int, Flow] = {}

    def start(now: float, number: int) -> None:
        _, source, target, num_bytes = flows[number]
        handoff = Handoff(Request(number, now, 1, 1), source, target, epoch=0, num_bytes=num_bytes)
        started[number] = fabric.start(handoff, link, now)

    for number, flow in enumerate(flows):
        agenda.at(flow[0], ARRIVAL, start, number)
    for number, time in (cancels or {}).items():
        agenda.at(time, ARRIVAL, lambda now, number: fabric.cancel(started[number], now), number)
    agenda.run()
    return ends


@pytest.mark.parametrize(
    ("flows", "ends"),
    [
        ([(1.0, 0, 1, 200)], [3.5]),
        # Two on one NIC, leaving or entering, take twice as long; two that share none do not.
        ([(0.0, 0, 1, 200), (0.0, 0, 2, 200)], [4.5, 4.5]),
        ([(0.0, 0, 2, 200), (0.0, 1, 2, 200)], [4.5, 4.5]),
        ([(0.0, 0, 1, 200), (0.0, 2, 3, 200)], [2.5, 2.5]),
        # A NIC is full duplex: what leaves does not slow what enters.
        ([(0.0, 0, 1, 200), (0.0, 1, 0, 200)], [2.5, 2.5]),
        # One joins when the other is half through, whose rest takes 2 s then; it has sent 75 bytes itself by that time.
        ([(0.0, 0, 1, 200), (1.5, 0, 2, 200)], [3.5, 4.75]),
        # The smaller of two shares counts, and what it leaves unused at the other NIC is nobody's.
        ([(0.0, 0, 1, 100), (0.0, 0, 2, 100), (0.0, 3, 2, 100)], [2.5, 2.5, 2.5]),
    ],
)
def test_sharing(flows, ends):
    assert send(flows) == dict(enumerate(ends))


def test_a_transfer_alone_is_alpha_plus_bytes():
    assert send([(0.0, 0, 1, 10**9)], INFINIBAND) == {0: INFINIBAND.transfer_s(10**9)}
    assert INFINIBAND.transfer_s(10**9) == 5e-6 + 10**9 / 40e9


def test_a_cancelled_flow_never_ends_and_frees_its_share():
    assert send([(0.0, 0, 1, 200), (0.0, 0, 2, 200)], cancels={1: 1.5}) == {0: 3.0}


def test_cancelling_what_has_ended_changes_nothing():
    assert send([(0.0, 0, 1, 100), (0.0, 0, 2, 300)], cancels={0: 3.0}) == {0: 2.5, 1: 4.5}


def fluid_ends(flows: list[tuple[float, int, int, int]], cancels: dict[int, float]) -> dict[int, float]:
    fluid = Fluid()
    changes = [(flow[0], number, True) for number, flow in enumerate(flows)]
    changes += [(time, number, False) for number, time in cancels.items()]
    changes.sort()
    started: dict[int, FluidFlow] = {}
    ends: dict[int, float] = {}
    while changes or fluid.flows:
        if fluid.flows and (not changes or fluid.end_s(fluid.next_to_end()) <= changes[0][0]):
            flow = fluid.next_to_end()
            ends[flow.what] = fluid.end_s(flow)
            fluid.stop(flow, ends[flow.what])
            continue
        time, number, begins = changes.pop(0)
        if begins:
            started[number] = fluid.start(number, *flows[number][1:3], LINK, flows[number][3], time)
        elif started[number] in fluid.flows:
            fluid.stop(started[number], time)
    return ends


TIMES = st.floats(0.0, 20.0).map(lambda time: time + 0.0123)
FLOWS = st.lists(st.tuples(TIMES, st.integers(0, 3), st.integers(0, 3), st.integers(1, 1000)), min_size=1, max_size=15)


@given(FLOWS, st.data())
def test_joins_and_leaves(flows, data):
    cancels = {
        number: start + data.draw(st.floats(0.001, 10.0))
        for number, (start, *_) in enumerate(flows)
        if data.draw(st.integers(0, 4)) == 0
    }
    expected = fluid_ends(flows, cancels)
    assert send(flows, cancels=cancels) == pytest.approx(expected, rel=1e-9)
    assert expected.keys() >= set(range(len(flows))) - cancels.keys()


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 1000)), min_size=1, max_size=15))
def test_no_byte_is_lost_and_none_comes_twice(flows):
    """All leave one NIC at once, which is busy until the last byte is out, however they share it."""
    link = LinkSpec(name="test", bandwidth_bytes_s=125.0, alpha_s=0.0, efficiency=0.8)
    ends = send([(0.0, 0, target, num_bytes) for target, num_bytes in flows], link)
    assert max(ends.values()) == pytest.approx(sum(num_bytes for _, num_bytes in flows) / 100)
    for number, (_, num_bytes) in enumerate(flows):
        # Equal shares: by the time a flow ends, each other has had as many bytes, or all of its own.
        assert ends[number] * 100 == pytest.approx(sum(min(num_bytes, other) for _, other in flows))


@pytest.mark.parametrize(
    ("prefill_s", "neighbour", "end"),
    [
        # 1000 bytes in 10 layers. The link keeps up: the last layer and its latency are left after the prefill.
        (20.0, None, 20.0 + 0.5 + 1.0),
        # It does not: 450 bytes are out by then, and 550 are left.
        (5.0, None, 5.0 + 0.5 + 5.5),
        # A neighbour takes half of the NIC for the first 4.5 s, so that 250 bytes are out.
        (5.0, 200, 5.0 + 0.5 + 7.5),
        # Layers that come at no more than 50 bytes a second leave the neighbour's half alone.
        (20.0, 200, 20.0 + 0.5 + 1.0),
    ],
)
def test_layers_leave_while_the_prompt_is_computed(prefill_s, neighbour, end):
    agenda = Agenda()
    ends = {}
    fabric = Fabric(agenda, lambda flow, now: ends.__setitem__(flow.handoff.request.request_id, now))

    def handoff(number: int, num_bytes: int) -> Handoff:
        return Handoff(Request(number, 0.0, 1, 1), 0, 1, epoch=0, num_bytes=num_bytes)

    flow = fabric.start_layerwise(handoff(0, 1000), LINK, 0.0, prefill_s=prefill_s, last_layer_bytes=100)
    if neighbour is not None:
        fabric.start(handoff(1, neighbour), LINK, 0.0)
    agenda.at(prefill_s, STEP_END, lambda now, _: fabric.finish_prefill(flow, 100, now), None)
    agenda.run()
    assert ends[0] == pytest.approx(end)
