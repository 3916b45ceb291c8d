"""One serving instance as a sans-IO state machine: inputs with the time they happen, steps and events out.

The driver's whole duty: hand in what arrives, call `plan` after every input and every completion, and call
`complete` when the step it returned has ended. A step returned twice has been cut short: its new `end_s`
counts. Nothing in here waits, draws random numbers or reads a clock.
"""

from collections import deque

from cluster.batch import Batch
from cluster.cost import StepCost
from cluster.errors import InvariantError
from cluster.events import Aborted, Ejected, Event, Finished, FirstToken, PrefillDone, RoomReserved
from cluster.handoff import DONE, RESERVED, Handoff, HandoffState
from cluster.kv_memory import KvMemory
from cluster.load import LoadView
from cluster.pipeline import Pipeline
from cluster.request import DECODE, FINISHED, HANDOFF, QUEUED, READY, Request
from cluster.role import Phase, Role, RoleState
from cluster.scheduler import Scheduler
from cluster.scheduling import PREFILL_ALONE, EngineConfig
from cluster.step import Chunk, Step
from cluster.step_log import StepLog


class Instance:
    """A model replica that plays one role at a time.

    index: its number in the cluster. cost: step times of the whole instance. capacity: KV tokens.
    pipeline: its stages when pp > 1. Attributes are for reading.
    """

    def __init__(
        self,
        index: int,
        role: Role,
        *,
        cost: StepCost,
        capacity: int,
        config: EngineConfig,
        pipeline: Pipeline | None = None,
        epoch: int = 0,
        logs_steps: bool = True,
    ) -> None:
        self.index = index
        self.state = RoleState(role, epoch=epoch)
        self.config = config
        self.cost = cost
        self.pipeline = pipeline
        preempts = not config.reserves_output
        block_size = config.block_size if preempts else 1
        self.memory = KvMemory(capacity, block_size=block_size)
        self.batches = [Batch(block_size=block_size) for _ in range(pipeline.depth if pipeline else 1)]
        self.logs = [StepLog() for _ in self.batches] if logs_steps else []
        self.extra_gaps: list[float] = []
        """Token gaps around a preemption, which no row of the step log describes."""
        alone = PREFILL_ALONE.with_budget(config.prefill_batch_tokens or cost.saturation_tokens())
        colocated = config.colocated_policy()
        self._policies = {
            Role.PREFILL: (alone, config.guest_policy()),
            Role.DECODE: (alone, config.guest_policy()),
            Role.MIXED: (colocated, colocated),
        }
        alone, beside = self._policies[role]
        self.scheduler = Scheduler(
            self.memory, self.batches, alone=alone, beside=beside, max_batch=config.max_batch, preempts=preempts
        )
        self.in_flight: deque[Step] = deque()
        self.offers: deque[Handoff] = deque()
        """Handoffs that found no room yet, first come first served."""
        self.num_incoming = 0
        """Handoffs with room reserved whose KV has not arrived."""
        self.outgoing: set[int] = set()
        """Requests whose KV waits here to be pulled."""
        self._aborting: set[int] = set()
        self._ejecting: set[int] = set()
        self._next_batch = 0

    @property
    def role(self) -> Role:
        return self.state.role

    # Inputs.

    def submit(self, request: Request, now: float, *, hands_over: bool | None = None) -> None:
        """Queue a prompt that was checked against the capacity before.

        hands_over: whether its KV goes elsewhere to decode; None leaves that to the role.
        """
        request.hands_over = self.state.role is Role.PREFILL if hands_over is None else hands_over
        request.enter(QUEUED, now)
        request.prefill_instance = self.index
        self.scheduler.enqueue(request)

    def accept(self, handoff: Handoff, now: float) -> bool:
        """Reserve room for KV on its way in; False puts the handoff in line until RoomReserved reports it."""
        if self.scheduler.preempts:
            self._settle_growth(now)
        if not self.offers and not self.scheduler.owes_room and self.scheduler.has_room(handoff.request, stays=True):
            self._reserve(handoff)
            return True
        self.offers.append(handoff)
        return False

    def receive(self, handoff: Handoff, now: float) -> None:
        """The KV is here: the request waits for a seat in the batch."""
        handoff.enter(DONE)
        request = handoff.request
        request.hands_over = False
        request.enter(READY, now)
        self.num_incoming -= 1
        batches = self.batches
        batch = batches[0] if len(batches) == 1 else min(batches, key=lambda one: one.size + len(one.ready))
        batch.ready.append(request)

    def release(self, request: Request, now: float) -> list[Event]:
        """The KV of a prefilled request has left: free it. The events say which handoffs found room."""
        self._free_outgoing(request)
        events: list[Event] = []
        self._reserve_offers(events, now)
        return events

    def _free_outgoing(self, request: Request) -> None:
        self.scheduler.release(request)
        self.outgoing.remove(request.request_id)

    def _reserve(self, handoff: Handoff) -> None:
        self.scheduler.admit(handoff.request, stays=True)
        self.num_incoming += 1
        handoff.enter(RESERVED)
        handoff.request.decode_instance = self.index

    def _reserve_offers(self, events: list[Event], now: float) -> None:
        # Who was preempted here waits for room longer than any handoff, and goes first.
        scheduler = self.scheduler
        if self.offers and scheduler.preempts:
            self._settle_growth(now)
        while self.offers and not scheduler.owes_room and scheduler.has_room(self.offers[0].request, stays=True):
            handoff = self.offers.popleft()
            self._reserve(handoff)
            events.append(RoomReserved(handoff))

    # Steps.

    def plan(self, now: float) -> Step | None:
        """Start the next step, or cut the running decode run short if somebody could join.

        Returns the step that started or whose end moved; None when there is nothing to do now.
        """
        if self.pipeline is not None:
            return self._plan_pipelined(self.pipeline, now)
        if not self.in_flight:
            return self._start(self.batches[0], now)
        step = self.in_flight[0]
        if step.iterations == 1:
            return None
        before = step.end_s
        if self.scheduler.preempts:
            self._settle_growth(now)
        if self._aborting or self._ejecting or self.scheduler.could_join(step.batch):
            self.interrupt(now)
        return step if step.end_s != before else None

    def interrupt(self, now: float) -> float:
        """Cut the running step at the next iteration boundary at or after `now`; returns when it ends."""
        step = self.in_flight[0]
        if step.run is not None:
            self._cut(step, step.run.iterations_at(now - step.start_s))
        return step.end_s

    def _cut(self, step: Step, iterations: int) -> None:
        if step.run is not None and iterations < step.iterations:
            step.iterations = iterations
            step.end_s = step.next_plan_s = step.start_s + step.run.duration_s(iterations)

    def _plan_pipelined(self, pipeline: Pipeline, now: float) -> Step | None:
        if pipeline.first_free_s > now:
            return None
        depth = len(self.batches)
        for turn in range(depth):
            at = (self._next_batch + turn) % depth
            if not self.batches[at].running:
                step = self._start(self.batches[at], now)
                if step is not None:
                    self._next_batch = (at + 1) % depth
                    return step
        return None

    def _start(self, batch: Batch, now: float) -> Step | None:
        scheduler = self.scheduler
        batch.starving = False
        if batch.ready:
            scheduler.seat_ready(batch, now)
        decodes = batch.size
        if decodes and scheduler.preempts:
            while scheduler.make_room(batch, now) and batch.ready:
                scheduler.seat_ready(batch, now)
            decodes = batch.size if scheduler.iterations_with_room(batch) else 0
        if scheduler.waiting or batch.prefilling:
            chunks = scheduler.choose_chunks(batch, now)
            if chunks:
                return self._start_mixed(batch, chunks, decodes if scheduler.beside.mixes else 0, now)
        if not decodes:
            return None
        if self.pipeline is not None:
            return self._start_mixed(batch, [], decodes, now)
        run = self.cost.decode_run(decodes, batch.context)
        iterations = batch.iterations_left()
        if scheduler.preempts:
            iterations = min(iterations, scheduler.iterations_with_room(batch))
        end = now + run.duration_s(iterations)
        return self._launch(Step(batch, now, end, iterations, decodes, chunks=[], run=run, next_plan_s=end))

    def _start_mixed(self, batch: Batch, chunks: list[Chunk], decodes: int, now: float) -> Step:
        """One iteration over chunks and decodes."""
        new_tokens = num_logits = decodes
        kv_tokens = batch.context if decodes else 0
        attention_tokens = float(kv_tokens)
        for request, tokens in chunks:
            past = request.computed
            new_tokens += tokens
            attention_tokens += tokens * (past + 0.5 * tokens)
            kv_tokens += past + tokens
            if past + tokens == request.target:
                num_logits += 1
        pipeline = self.pipeline
        if pipeline is None:
            end = now + self.cost.step_s(new_tokens, num_logits, attention_tokens, kv_tokens)
            next_plan = end
        else:
            end = pipeline.enter(now, new_tokens, num_logits, attention_tokens, kv_tokens)
            next_plan = pipeline.first_free_s
        return self._launch(Step(batch, now, end, 1, decodes, chunks=chunks, run=None, next_plan_s=next_plan))

    def _launch(self, step: Step) -> Step:
        batch = step.batch
        batch.running = True
        self.in_flight.append(step)
        if step.decodes and self.scheduler.preempts:
            self._grow(step, 1)
        return step

    def _grow(self, step: Step, iterations: int) -> None:
        """Take the blocks that the step's first `iterations` open, less what it took before."""
        batch = step.batch
        blocks = batch.blocks_for(iterations) - batch.blocks_for(step.grown)
        self.memory.grow(blocks * self.memory.block_size)
        step.grown = iterations

    def _settle_growth(self, now: float) -> None:
        """Bring memory up to the iteration under way, and end the run where free blocks end."""
        if not self.in_flight or self.in_flight[0].run is None:
            return
        step = self.in_flight[0]
        under_way = step.run.iterations_at(now - step.start_s) if step.run is not None else 1
        self._grow(step, max(step.grown, min(under_way, step.iterations)))
        taken = step.batch.blocks_for(step.grown)
        free = self.memory.free // self.memory.block_size
        self._cut(step, step.batch.iterations_within(free + taken))

    def complete(self, now: float) -> list[Event]:
        """Apply the oldest step in flight, which ends at `now`, and report what became of its requests."""
        step = self.in_flight.popleft()
        if step.end_s != now:
            raise InvariantError(f"a step of instance {self.index} ends at {step.end_s}, not at {now}")
        batch = step.batch
        batch.running = False
        events: list[Event] = []
        if step.decodes:
            self._complete_decodes(step, batch, events)
        elif self.logs:
            self.logs[self._log_index(batch)].add(step, 0, batch.last_token_s)
        if step.chunks:
            self._complete_chunks(step, batch, events)
        if self._aborting:
            self._complete_aborts(batch, events)
        if self._ejecting:
            self._complete_ejections(batch, events)
        if self.offers and (events or self.scheduler.preempts):
            self._reserve_offers(events, now)
        return events

    def _complete_decodes(self, step: Step, batch: Batch, events: list[Event]) -> None:
        now = step.end_s
        scheduler = self.scheduler
        newcomers = batch.newcomers
        if self.logs:
            self.logs[self._log_index(batch)].add(step, step.decodes - len(newcomers), batch.last_token_s)
        if scheduler.preempts:
            self._grow(step, step.iterations)
        if batch.starving:
            scheduler.starved_steps += step.iterations
        if newcomers:
            first_end = now if step.iterations == 1 or step.run is None else step.start_s + step.run.duration_s(1)
            for request in newcomers:
                if request.generated == 1:
                    request.second_token_s = first_end
                else:
                    self.extra_gaps.append(first_end - request.last_token_s)
            newcomers.clear()
        batch.last_token_s = now
        for request in batch.advance(step.iterations):
            request.enter(FINISHED, now)
            scheduler.release(request, request.prompt_tokens + request.generated - 1)
            events.append(Finished(request))

    def _complete_chunks(self, step: Step, batch: Batch, events: list[Event]) -> None:
        now = step.end_s
        for request, tokens in step.chunks:
            request.computed += tokens
            if request.computed < request.target:
                continue
            batch.prefilling.remove(request)
            request.generated += 1
            if request.generated == 1:
                request.first_token_s = now
            elif request.generated == 2:
                request.second_token_s = now
            else:
                self.extra_gaps.append(now - request.last_token_s)
            request.last_token_s = now
            if request.generated == request.output_tokens:
                request.enter(FINISHED, now)
                self.scheduler.release(request, request.target)
                events.append(Finished(request))
            elif request.hands_over:
                request.enter(HANDOFF, now)
                self.outgoing.add(request.request_id)
                events.append(PrefillDone(request))
            else:
                request.enter(DECODE, now)
                batch.join(request)
                if request.generated == 1:
                    events.append(FirstToken(request))

    def _log_index(self, batch: Batch) -> int:
        return 0 if len(self.batches) == 1 else self.batches.index(batch)

    # Cancelling.

    def find(self, request_id: int) -> Request | None:
        """A request that waits, prefills or decodes here; not one whose KV is on its way in or out."""
        for request in self.scheduler.waiting:
            if request.request_id == request_id:
                return request
        for batch in self.batches:
            for request in (*batch.prefilling, *batch.ready):
                if request.request_id == request_id:
                    return request
            if request_id in batch.members:
                return batch.members[request_id]
        return None

    def abort(self, request: Request, now: float) -> list[Event]:
        """Drop a cancelled request that is here, and free its KV here.

        The events say whether it is gone (Aborted) or leaves with the running step, whose completion will
        report it as Aborted, or as Finished (call `plan` to cut that step short), and which handoffs found room.
        """
        scheduler = self.scheduler
        batch = next((one for one in self.batches if one.holds(request)), None)
        offer = next((one for one in self.offers if one.request is request), None)
        if batch is not None and batch.running and request not in batch.ready:
            self._aborting.add(request.request_id)
            return []
        if batch is not None:
            scheduler.evict(request, batch)
        elif request in scheduler.waiting:
            scheduler.withdraw(request)
        elif offer is not None:
            self.offers.remove(offer)
            offer.enter(HandoffState.FAILED)
        elif request.request_id not in self.memory.held:
            return []
        elif request.request_id in self.outgoing:
            self._free_outgoing(request)
        else:
            scheduler.release(request)
            self.num_incoming -= 1
        events: list[Event] = [Aborted(request)]
        self._reserve_offers(events, now)
        return events

    def _complete_aborts(self, batch: Batch, events: list[Event]) -> None:
        for index, event in enumerate(events):
            if isinstance(event, PrefillDone | Finished) and event.request.request_id in self._aborting:
                self._aborting.discard(event.request.request_id)
                if isinstance(event, PrefillDone):
                    self._free_outgoing(event.request)
                    events[index] = Aborted(event.request)
        for request in [*batch.members.values(), *batch.prefilling]:
            if request.request_id in self._aborting:
                self._aborting.discard(request.request_id)
                self.scheduler.evict(request, batch)
                events.append(Aborted(request))

    # Migration.

    def eject(self, request: Request) -> list[Event]:
        """Stop decoding a request here, so that it can go on elsewhere: room for it is reserved there.

        Gives Ejected when it has stopped; an empty list when it stops with the running step, whose completion
        will say so (call `plan` to cut that step short), or when it is not decoding here any more.
        """
        batch = next((one for one in self.batches if one.holds(request)), None)
        if batch is None or request in batch.prefilling:
            return []
        if batch.running and request.seat:
            self._ejecting.add(request.request_id)
            return []
        events: list[Event] = []
        self._take_out(request, batch, events)
        return events

    def _complete_ejections(self, batch: Batch, events: list[Event]) -> None:
        for request_id in [one for one in self._ejecting if one in batch.members]:
            self._take_out(batch.members[request_id], batch, events)
        self._ejecting = {one for one in self._ejecting if any(one in other.members for other in self.batches)}

    def _take_out(self, request: Request, batch: Batch, events: list[Event]) -> None:
        """From now on it is like a request prefilled here: KV of all but its newest token waits to be pulled."""
        if request.seat:
            batch.remove(request)
        else:
            batch.ready.remove(request)
        request.target = request.computed = request.prompt_tokens + request.generated - 1
        request.hands_over = True
        self.scheduler.stop_growth(request)
        request.enter(HANDOFF, batch.last_token_s)
        self.outgoing.add(request.request_id)
        events.append(Ejected(request))

    def take_back(self, request: Request, now: float) -> None:
        """An ejected request whose KV has not left goes on here after all."""
        self.outgoing.remove(request.request_id)
        self.scheduler.start_growth(request)
        request.hands_over = False
        request.enter(READY, now)
        min(self.batches, key=lambda one: one.size + len(one.ready)).ready.append(request)

    def adopt(self, request: Request) -> None:
        """Take a sequence whose KV is here by magic: how a copy of a cluster begins in the middle of things."""
        self.scheduler.admit(request, stays=True)
        request.status = READY
        min(self.batches, key=lambda one: one.size + len(one.ready)).ready.append(request)

    # Role changes.

    def begin_drain(self, role: Role, epoch: int, now: float) -> list[Handoff] | None:
        """Stop taking work and head for `role`; None refuses an order meant for another epoch.

        Returns the handoffs that were still waiting for room: the driver offers them elsewhere.
        """
        if epoch != self.state.epoch or self.state.phase is not Phase.SERVING:
            return None
        self.state.begin_drain(role, now)
        return self._turn_away()

    def recall_prompts(self) -> list[Request]:
        """Give back prompts that have not started, to be computed elsewhere; who was preempted here stays."""
        scheduler = self.scheduler
        recalled = [request for request in scheduler.waiting if request.status is QUEUED]
        for request in recalled:
            scheduler.withdraw(request)
        return recalled

    @property
    def drained(self) -> bool:
        """Whether a draining instance has finished all it had accepted and handed over all it owed."""
        return (
            not self.memory.used
            and not self.in_flight
            and not self.scheduler.waiting
            and self.state.phase is Phase.DRAINING
        )

    def commit_role(self, now: float) -> None:
        """Take the new role under the next epoch; `serve` opens it for work."""
        self.memory.check_empty()
        self.scheduler.check()
        self.state.commit(now)
        self._follow_role()

    def flip(self, role: Role, epoch: int, now: float) -> list[Handoff] | None:
        """Take another role at once and finish old work of either kind on the side; None refuses.

        Returns the handoffs that were still waiting for room: the driver offers them elsewhere.
        """
        if epoch != self.state.epoch or self.state.phase is not Phase.SERVING or role is self.state.role:
            return None
        self.state.flip(role, now)
        self._follow_role()
        return self._turn_away()

    def _follow_role(self) -> None:
        self.scheduler.alone, self.scheduler.beside = self._policies[self.state.role]

    def _turn_away(self) -> list[Handoff]:
        turned_away = list(self.offers)
        self.offers.clear()
        return turned_away

    def serve(self, now: float) -> None:
        """The switch time is over."""
        self.state.serve(now)

    # Watching.

    def load(self, now: float) -> LoadView:
        scheduler, state = self.scheduler, self.state
        step = self.in_flight[0] if self.in_flight else None
        decoding = [one for batch in self.batches for one in batch.members.values()]
        context = sum(batch.context for batch in self.batches)
        started = sum(r.target - r.computed for batch in self.batches for r in batch.prefilling)
        return LoadView(
            now_s=now,
            index=self.index,
            role=state.role,
            phase=state.phase,
            target=state.target,
            epoch=state.epoch,
            serving_since_s=state.since_s,
            num_waiting=len(scheduler.waiting),
            queued_tokens=scheduler.queued_tokens + started,
            oldest_wait_s=now - scheduler.waiting[0].times[QUEUED] if scheduler.waiting else 0.0,
            num_prefilling=sum(len(batch.prefilling) for batch in self.batches),
            num_decoding=sum(batch.size for batch in self.batches),
            context_tokens=context,
            generated_tokens=context - sum(one.prompt_tokens for one in decoding),
            decoding_s=now - sum(one.first_token_s for one in decoding) / len(decoding) if decoding else 0.0,
            iteration_s=(step.end_s - step.start_s) / step.iterations if step else 0.0,
            num_ready=sum(len(batch.ready) for batch in self.batches),
            num_outgoing=len(self.outgoing),
            num_incoming=self.num_incoming,
            num_offers=len(self.offers),
            offered_tokens=sum(handoff.request.max_tokens for handoff in self.offers),
            kv_used_tokens=self.memory.used,
            kv_capacity_tokens=self.memory.capacity,
            num_preemptions=scheduler.num_preemptions,
        )
