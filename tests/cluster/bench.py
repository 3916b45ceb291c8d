"""An instance on an agenda, and what it did and reported."""

from math import inf

from cluster.agenda import ARRIVAL, FLOW_END, Agenda
from cluster.cost import DecodeRun, StepCost
from cluster.events import Aborted, Event, RoomReserved
from cluster.handoff import Handoff
from cluster.instance import Instance
from cluster.request import Request, Status
from cluster.role import Role
from cluster.runner import Runner
from cluster.scheduling import EngineConfig


class OneSecond:
    """Every step takes a second; a GPU is saturated by 100 tokens."""

    def step_s(self, new_tokens, num_logits, attention_tokens, kv_tokens):
        return 1.0

    def decode_run(self, batch, context):
        return DecodeRun(1.0, 0.0)

    def saturation_tokens(self):
        return 100


class Bench:
    """Tell it what happens when, `run` it, and read what it did."""

    def __init__(
        self,
        role: Role = Role.MIXED,
        *,
        capacity: int = 1000,
        cost: StepCost | None = None,
        switch_time_s: float = 0.0,
        drain_timeout_s: float = inf,
        **engine,
    ) -> None:
        self.agenda = Agenda()
        config = EngineConfig(**engine)
        self.instance = Instance(0, role, cost=cost or OneSecond(), capacity=capacity, config=config)
        self.runner = Runner(
            self.instance,
            self.agenda,
            self._note,
            switch_time_s=switch_time_s,
            drain_timeout_s=drain_timeout_s,
        )
        self.events: list[tuple[float, str, int | None]] = []
        self.requests: list[Request] = []
        self.transfer_s: dict[int, float] = {}

    def submit(self, now: float, prompt: int, output: int, *, hands_over: bool | None = None) -> Request:
        """A prompt that arrives at `now`."""
        request = self._new(now, prompt, output)
        self.at(now, lambda runner, now: runner.submit(request, now, hands_over=hands_over))
        return request

    def offer(self, now: float, prompt: int, output: int, *, transfer_s: float = 0.0) -> Request:
        """A request prefilled elsewhere, whose KV is offered at `now` and comes `transfer_s` after it has room."""
        request = self._new(now, prompt, output)
        for status in (Status.QUEUED, Status.PREFILL, Status.HANDOFF):
            request.enter(status, now)
        request.generated = 1
        request.prefill_instance = 1
        self.hand_in(now, request)
        self.transfer_s[request.request_id] = transfer_s
        return request

    def hand_in(self, now: float, request: Request) -> None:
        """KV of a request that waits elsewhere is offered at `now` and comes at once when there is room."""
        self.transfer_s[request.request_id] = 0.0
        self.agenda.at(now, ARRIVAL, self._offer, Handoff(request, 1, 0, epoch=0, num_bytes=0))

    def at(self, now: float, action) -> None:
        """Call `action(runner, now)` at `now`."""
        self.agenda.at(now, ARRIVAL, lambda now, _: action(self.runner, now), None)

    def run(self, until: float = inf) -> "Bench":
        self.agenda.run(until)
        return self

    def _new(self, now: float, prompt: int, output: int) -> Request:
        self.requests.append(Request(len(self.requests), now, prompt, output))
        return self.requests[-1]

    def _offer(self, now: float, handoff: Handoff) -> None:
        if self.runner.accept(handoff, now):
            self._transfer(handoff, now)

    def _transfer(self, handoff: Handoff, now: float) -> None:
        handoff.begin(now)
        self.agenda.at(now + self.transfer_s[handoff.request.request_id], FLOW_END, self._arrive, handoff)

    def _arrive(self, now: float, handoff: Handoff) -> None:
        if handoff.request.status is Status.TRANSFER:
            self.runner.receive(handoff, now)

    def _note(self, event: Event, instance: Instance, now: float) -> None:
        request = getattr(event, "request", None)
        if isinstance(event, RoomReserved):
            request = event.handoff.request
            self._transfer(event.handoff, now)
        elif isinstance(event, Aborted):
            event.request.enter(Status.ABORTED, now)
        self.events.append((now, type(event).__name__, None if request is None else request.request_id))

    @property
    def steps(self) -> list[tuple[float, float, int, int]]:
        """(start, end, decodes, prompt tokens); a decode run is one."""
        return [(row.start_s, row.end_s, row.decodes, row.prefill_tokens) for row in self.instance.logs[0].rows()]

    def finished(self) -> dict[int, float]:
        """When each finished, by request id."""
        return {one.request_id: one.finished_s for one in self.requests if one.status is Status.FINISHED}

    def reported(self, name: str) -> list[tuple[float, int | None]]:
        return [(time, request_id) for time, event, request_id in self.events if event == name]
