"""The reference engines under a clock: a list of events, of which the least is taken again and again."""

from collections.abc import Callable
from functools import partial
from math import inf

from cluster.link import LinkSpec
from cluster.request import Status
from cluster.role import Role
from cluster.router import Router
from scenario.spec import Scenario
from tests.reference.engine import Engine, Lane, Sequence
from tests.reference.fluid import Fluid, FluidFlow
from workload.trace import Trace

STEP_END, FLOW_END, ARRIVAL = range(3)


class ReferenceSimulator:
    """One run without role changes. `run` gives all sequences in order of arrival.

    `ambiguous` tells that things happened at the same time, but for rounding, in places that do not know of each
    other: which came first has no right answer.
    """

    def __init__(self, scenario: Scenario, trace: Trace) -> None:
        counts = scenario.instances
        roles = [Role.PREFILL] * counts.prefill + [Role.DECODE] * counts.decode + [Role.MIXED] * counts.mixed
        self.scenario = scenario
        self.engines = [Engine(scenario, index, role) for index, role in enumerate(roles)]
        self.nodes = self.place()
        self.router = Router(
            prefill_policy=scenario.router.prefill_policy,
            decode_policy=scenario.router.decode_policy,
            reserves_output=scenario.engine.admission == "reserve_output",
            pairs=scenario.router.pairs,
            seed=scenario.seed,
        )
        for engine in self.engines:
            self.router.open(engine.index, engine.role)
        model = scenario.model
        kv_width = 1 if model.kv_dtype == "fp8" else 2
        self.kv_bytes_per_token = 2 * model.num_layers * model.num_kv_heads * model.head_dim * kv_width
        self.fluid = Fluid()
        columns = (trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self.sequences = [Sequence(index, *row) for index, row in enumerate(rows)]
        self.limit = min(engine.capacity for engine in self.engines)
        self.streams: dict[Sequence, FluidFlow] = {}
        """Flows of layers whose prompt is not complete."""
        self.events: list[tuple[float, int, int, object, Callable[[float], None]]] = []
        self.num_events = 0
        self.ambiguous = False

    def place(self) -> list[int]:
        """The node of each instance: nodes are filled in order, or hold one each."""
        room = self.scenario.gpus_per_node or 0
        nodes: list[int] = []
        node, used = -1, inf
        for engine in self.engines:
            if used + engine.num_gpus > room:
                node, used = node + 1, 0
            used += engine.num_gpus
            nodes.append(node)
        return nodes

    def at(self, time: float, priority: int, place: object, action: Callable[[float], None]) -> None:
        self.num_events += 1
        self.events.append((time, priority, self.num_events, place, action))

    def run(self) -> list[Sequence]:
        for sequence in self.sequences:
            self.at(sequence.stamps[Status.ARRIVED], ARRIVAL, self, partial(self.arrive, sequence))
        before: tuple[float, object] = (-1.0, self)
        while self.events:
            event = min(self.events, key=lambda event: event[:3])
            self.events.remove(event)
            now, _, _, place, action = event
            self.ambiguous |= place is not before[1] and now - before[0] < 1e-11 * now
            before = (now, place)
            action(now)
        return self.sequences

    # Prompts.

    def arrive(self, sequence: Sequence, now: float) -> None:
        if sequence.prompt_tokens + sequence.output_tokens > self.limit:
            sequence.stamp(Status.REJECTED, now)
        elif sequence.output_tokens == 0:
            sequence.stamp(Status.FINISHED, now)
        else:
            engine = self.engines[self.router.route_prompt(sequence).instance]
            sequence.prefill_instance = engine.index
            engine.waiting.append(sequence)
            self.plan(engine, now)

    def plan(self, engine: Engine, now: float) -> None:
        started = engine.start(now)
        if started is not None:
            lane, end_s = started
            self.at(end_s, STEP_END, engine, partial(self.complete, engine, lane))
            self.at(engine.stage_free_s[0], STEP_END, engine, partial(self.plan, engine))
            if self.scenario.handoff.initiative == "push":
                for sequence, tokens in lane.step[0]:
                    if sequence.computed + tokens == sequence.target and not engine.stays(sequence):
                        self.push(sequence, now, end_s)

    def complete(self, engine: Engine, lane: Lane, now: float) -> None:
        finished, prefilled = engine.complete(lane, now)
        reserved = engine.reserve_offers()
        for sequence in finished:
            self.router.done(engine.index, sequence)
        for sequence in prefilled:
            self.router.done(engine.index, sequence)
            if self.scenario.handoff.initiative == "pull":
                self.offer(sequence, now)
            elif sequence.decode_instance >= 0:
                self.send(sequence, now)
        self.have_room(reserved, now)
        self.plan(engine, now)

    # Handoffs.

    def push(self, sequence: Sequence, now: float, end_s: float) -> None:
        """Ask for room as the prompt's step starts, and, layer by layer, begin to send if there is some."""
        if sequence.output_tokens > 1:
            self.offer(sequence, now)
            if self.scenario.handoff.mode == "layerwise" and sequence.decode_instance >= 0:
                total = self.kv_bytes(sequence)
                flow = self.streams[sequence] = self.start_flow(sequence, total - self.layer_bytes(sequence), now)
                flow.supply = total / (end_s - now)
                self.watch_links()

    def offer(self, sequence: Sequence, now: float) -> None:
        """Room is given at once to a handoff that finds nobody in line, and to those in line when a step ends."""
        target = self.engines[self.router.route_handoff(sequence).instance]
        target.offers.append(sequence)
        if target.offers == [sequence]:
            self.have_room(target.reserve_offers(), now)

    def have_room(self, sequences: list[Sequence], now: float) -> None:
        for sequence in sequences:
            if sequence.token_s:
                self.send(sequence, now)

    def send(self, sequence: Sequence, now: float) -> None:
        """The prompt is computed and there is room: all of its KV goes, or what is left of it."""
        sequence.stamp(Status.TRANSFER, now)
        stream = self.streams.pop(sequence, None)
        if stream is None:
            self.start_flow(sequence, self.kv_bytes(sequence), now)
        else:
            self.fluid.move_to(now)
            stream.supply = inf
            stream.bytes_left += self.layer_bytes(sequence)
            stream.latency_left_s = stream.link.alpha_s
        self.watch_links()

    def start_flow(self, sequence: Sequence, num_bytes: float, now: float) -> FluidFlow:
        source, target = sequence.prefill_instance, sequence.decode_instance
        near = self.nodes[source] == self.nodes[target]
        link: LinkSpec = self.engines[source].link if near else self.scenario.link
        return self.fluid.start(sequence, source, target, link, num_bytes, now)

    def kv_bytes(self, sequence: Sequence) -> float:
        return sequence.prompt_tokens * self.kv_bytes_per_token

    def layer_bytes(self, sequence: Sequence) -> float:
        return self.kv_bytes(sequence) / self.scenario.model.num_layers

    def watch_links(self) -> None:
        """Come back when the next flow ends; a change before that makes the event out of date."""
        state = self.watch = object()
        if self.fluid.flows and self.fluid.end_s(self.fluid.next_to_end()) < inf:
            flow = self.fluid.next_to_end()

            def arrive(now: float) -> None:
                if self.watch is state:
                    self.fluid.stop(flow, now)
                    self.watch_links()
                    self.deliver(flow.what, now)

            self.at(self.fluid.end_s(flow), FLOW_END, flow, arrive)

    def deliver(self, sequence: Sequence, now: float) -> None:
        target, source = self.engines[sequence.decode_instance], self.engines[sequence.prefill_instance]
        target.receive(sequence, now)
        self.plan(target, now)
        del source.held[sequence]
        self.have_room(source.reserve_offers(), now)
        self.plan(source, now)
