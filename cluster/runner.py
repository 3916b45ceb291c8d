"""An instance on an agenda: what both drivers do alike.

It plans after every input and every step, completes steps when they end, and carries a role change from
draining to serving. What the rest of the cluster must hear about goes to `on_event`.
"""

from collections.abc import Callable
from math import inf

from cluster.agenda import ROLE, STEP_END, Agenda
from cluster.events import Event, PrefillStarted, RoleCommitted, RoleServed
from cluster.handoff import Handoff
from cluster.instance import Instance
from cluster.request import Request
from cluster.role import Phase, Role
from cluster.step import Step


class Runner:
    """switch_time_s: modelled time from the end of draining to serving in the new role.

    drain_timeout_s: a drain that takes longer is rolled back.
    tells_prefill_starts: emit PrefillStarted, for KV that is pushed.
    """

    __slots__ = ("_agenda", "_on_event", "drain_timeout_s", "instance", "switch_time_s", "tells_prefill_starts")

    def __init__(
        self,
        instance: Instance,
        agenda: Agenda,
        on_event: Callable[[Event, Instance, float], None],
        *,
        switch_time_s: float = 0.0,
        drain_timeout_s: float = inf,
        tells_prefill_starts: bool = False,
    ) -> None:
        self.instance = instance
        self.drain_timeout_s = drain_timeout_s
        self.switch_time_s = switch_time_s
        self.tells_prefill_starts = tells_prefill_starts
        self._agenda = agenda
        self._on_event = on_event

    def submit(self, request: Request, now: float, *, hands_over: bool | None = None) -> None:
        """A prompt to prefill here; see Instance.submit."""
        self.instance.submit(request, now, hands_over=hands_over)
        self.plan(now)

    def accept(self, handoff: Handoff, now: float) -> bool:
        """KV on offer: True when room is reserved, False when RoomReserved will tell."""
        accepted = self.instance.accept(handoff, now)
        if self.instance.scheduler.preempts:
            self.plan(now)
        return accepted

    def receive(self, handoff: Handoff, now: float) -> None:
        """The KV of an accepted handoff is here."""
        self.instance.receive(handoff, now)
        self.plan(now)

    def release(self, request: Request, now: float) -> None:
        """The KV of a prefilled request has arrived elsewhere."""
        for event in self.instance.release(request, now):
            self._on_event(event, self.instance, now)
        self.plan(now)
        self._commit_if_drained(now)

    def eject(self, request: Request, now: float) -> None:
        """Have a decoding request go on elsewhere; Ejected follows, now or when its step has ended."""
        for event in self.instance.eject(request):
            self._on_event(event, self.instance, now)
        self.plan(now)

    def take_back(self, request: Request, now: float) -> None:
        """An ejected request goes on here after all."""
        self.instance.take_back(request, now)
        self.plan(now)

    def abort(self, request: Request, now: float) -> None:
        """Cancel a request; Aborted follows, now or when its step has ended."""
        for event in self.instance.abort(request, now):
            self._on_event(event, self.instance, now)
        self.plan(now)
        self._commit_if_drained(now)

    def plan(self, now: float) -> None:
        step = self.instance.plan(now)
        if step is not None:
            end = step.end_s
            self._agenda.at(end, STEP_END, self._complete, None)
            if step.next_plan_s < end:
                self._agenda.at(step.next_plan_s, STEP_END, self._plan_again, None)
            if self.tells_prefill_starts and step.chunks:
                self._tell_prefill_starts(step, now)

    def _tell_prefill_starts(self, step: Step, now: float) -> None:
        for request, tokens in step.chunks:
            completes = request.computed + tokens == request.target
            if request.hands_over and completes and request.generated + 1 < request.output_tokens:
                self._on_event(PrefillStarted(request, step.end_s), self.instance, now)

    def _plan_again(self, now: float, _: None) -> None:
        self.plan(now)

    def _complete(self, now: float, _: None) -> None:
        instance = self.instance
        in_flight = instance.in_flight
        if not in_flight or in_flight[0].end_s != now:
            return  # this step was cut short after it was put on the agenda
        for event in instance.complete(now):
            self._on_event(event, instance, now)
        self.plan(now)
        if not in_flight:
            self._commit_if_drained(now)

    def begin_drain(self, role: Role, epoch: int, now: float) -> list[Handoff] | None:
        """Head for another role; None refuses. Returns handoffs still in line here, to be offered elsewhere."""
        turned_away = self.instance.begin_drain(role, epoch, now)
        if turned_away is not None:
            self._agenda.at(now + self.drain_timeout_s, ROLE, self._roll_back, now)
            self._commit_if_drained(now)
        return turned_away

    def flip(self, role: Role, epoch: int, now: float) -> list[Handoff] | None:
        """Take another role at once; None refuses. Returns handoffs in line here, to be offered elsewhere."""
        turned_away = self.instance.flip(role, epoch, now)
        if turned_away is not None:
            self._on_event(RoleCommitted(), self.instance, now)
            self._on_event(RoleServed(), self.instance, now)
            self.plan(now)
        return turned_away

    def recall_prompts(self, now: float) -> list[Request]:
        """Prompts that have not started here, to be computed elsewhere."""
        recalled = self.instance.recall_prompts()
        self._commit_if_drained(now)
        return recalled

    def _roll_back(self, now: float, began_s: float) -> None:
        """Give up a drain that takes too long and serve on in the old role."""
        state = self.instance.state
        if state.phase is Phase.DRAINING and state.since_s == began_s:
            state.rollback(now)
            self._on_event(RoleServed(), self.instance, now)

    def _commit_if_drained(self, now: float) -> None:
        instance = self.instance
        if instance.drained:
            instance.commit_role(now)
            self._on_event(RoleCommitted(), instance, now)
            self._agenda.at(now + self.switch_time_s, ROLE, self._serve, None)

    def _serve(self, now: float, _: None) -> None:
        self.instance.serve(now)
        self._on_event(RoleServed(), self.instance, now)
