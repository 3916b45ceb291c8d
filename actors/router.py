"""The router under the wall clock: the core's books and policies, and who is owed an answer."""

from collections import deque
from typing import Any

from actors.calls import Calls
from actors.clock import Clock
from actors.messages import Offer, Report, RouterHistory, Serving, Snapshot
from cluster.load import LoadView
from cluster.request import Request, Status
from metrics.prometheus import MetricStore
from metrics.records import Records
from metrics.watch import observe_requests
from planner.decision import RoleOrder
from planner.observation import Observation
from scenario.build import build_router, instance_names
from scenario.spec import Scenario

EXPORT_EVERY = 10
"""Reports from instances for each metric delta to the exporter."""


class RouterActor:
    """Sends prompts and handoffs to instances and keeps the record of every request that ended."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._names = instance_names(scenario)
        self._core = build_router(scenario)
        self._epochs: dict[int, int] = {}
        self._loads: dict[int, LoadView] = {}
        self._live: dict[int, Request] = {}
        self._records = Records()
        self._metrics = MetricStore()
        self._calls = Calls()
        self._homeless_prompts: deque[Request] = deque()
        self._homeless_offers: deque[Offer] = deque()
        self._num_sent = 0
        self._num_ended = 0
        self._num_good = 0
        self._num_refused = 0
        self._num_reports = 0
        self._changes: deque[str] = deque(maxlen=5)

    async def start(self, clock: Clock, instances: dict[int, Any], exporter: Any) -> None:
        """Join the run: every instance serves its first role."""
        self._clock, self._instances, self._exporter = clock, instances, exporter
        for index, role in enumerate(self._scenario.roles):
            self._epochs[index] = 0
            self._core.open(index, role)

    # Requests.

    async def submit(self, requests: list[Request]) -> None:
        """Requests that have arrived; those marked REJECTED or FINISHED are only recorded."""
        self._num_sent += len(requests)
        for request in requests:
            if request.status is Status.ARRIVED:
                self._live[request.request_id] = request
                self._route_prompt(request)
            else:
                self._record([request])

    def _route_prompt(self, request: Request) -> None:
        choice = self._core.route_prompt(request)
        if choice is None:
            self._homeless_prompts.append(request)
        else:
            self._calls.spawn(self._submit(choice.instance, request))

    async def _submit(self, instance: int, request: Request) -> None:
        refused = await self._calls.ask(self._instances[instance].submit, [request], self._epochs[instance])
        if refused:
            self._num_refused += 1
            self._core.done(instance, request)
            self._route_prompt(request)

    async def prefilled(self, offer: Offer) -> None:
        """A prompt is computed; find its KV a decode instance."""
        self._core.done(offer.source, offer.request)
        self._route_offer(offer)

    def _route_offer(self, offer: Offer) -> None:
        choice = self._core.route_handoff(offer.request)
        if choice is None:
            self._homeless_offers.append(offer)
        else:
            self._calls.spawn(self._offer(choice.instance, offer))

    async def _offer(self, instance: int, offer: Offer) -> None:
        accepted = await self._calls.ask(self._instances[instance].accept, offer, self._epochs[instance])
        if not accepted:
            self._num_refused += 1
            self._core.handoff_undone(instance, offer.request)
            self._route_offer(offer)

    async def report(self, report: Report) -> None:
        """An instance's load, and who ended there."""
        self._loads[report.load.index] = report.load
        for request in report.ended:
            self._core.done(report.load.index, request)
        self._record(report.ended)
        self._num_reports += 1
        if self._num_reports % EXPORT_EVERY == 0:
            await self._export()

    def _record(self, requests: list[Request]) -> None:
        fresh = Records()
        for request in requests:
            self._live.pop(request.request_id, None)
            fresh.add(request)
            self._records.add(request)
        self._num_ended += len(requests)
        if requests:
            self._num_good += observe_requests(self._metrics, fresh.table(), self._scenario.slo)

    async def _export(self) -> None:
        await self._calls.ask(self._exporter.add, self._metrics.take())

    # Roles.

    async def observe(self) -> Observation:
        """The instances as they are now, asked one by one."""
        loads = [await answer for answer in [self._calls.ask(one.load) for one in self._instances.values()]]
        self._loads.update((load.index, load) for load in loads)
        return Observation(self._clock.now(), tuple(loads))

    async def change_role(self, order: RoleOrder) -> bool:
        """Stop sending work to an instance and have it drain; False when it refuses."""
        role = self._core.role_if_open(order.instance)
        if role is None:
            return False
        self._core.close(order.instance)
        instance = self._instances[order.instance]
        turned_away = await self._calls.ask(instance.begin_drain, order.role, order.epoch, order.cause, order.reason)
        if turned_away is None:
            self._core.open(order.instance, role)
            return False
        self._changes.append(
            f"{self._clock.now():.1f} s: {self._names[order.instance]} becomes {order.role}: {order.reason}"
        )
        for offer in turned_away:
            self._core.handoff_undone(order.instance, offer.request)
            self._route_offer(offer)
        return True

    async def serve(self, serving: Serving) -> None:
        """An instance is ready in a role."""
        self._epochs[serving.instance] = serving.epoch
        self._core.open(serving.instance, serving.role)
        for _ in range(len(self._homeless_prompts)):
            self._route_prompt(self._homeless_prompts.popleft())
        for _ in range(len(self._homeless_offers)):
            self._route_offer(self._homeless_offers.popleft())

    # Watching.

    async def snapshot(self) -> Snapshot:
        loads = tuple(self._loads[index] for index in sorted(self._loads))
        return Snapshot(self._clock.now(), self._num_sent, self._num_ended, self._num_good, loads, tuple(self._changes))

    async def unfinished(self) -> list[Request]:
        """Requests that have not ended, as they were when they were sent here last."""
        return list(self._live.values())

    async def finish(self) -> RouterHistory:
        """Say what is still unsaid and hand over the records."""
        await self._export()
        return RouterHistory(self._records.table(), self._num_refused, self._calls.count)
