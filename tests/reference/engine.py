"""One serving instance, the slow and plain way: one iteration at a time over lists of sequences.

Nothing is kept that could be counted: KV in use, seats taken, queue lengths and step times are summed over the
sequences whenever they are asked for.
"""

from math import ceil, inf

from cluster.request import Status
from cluster.role import Role
from scenario.spec import Scenario
from tests.reference.roofline import kv_capacity, saturation_tokens, stages_of


class Sequence:
    """A request and everything that happened to it."""

    def __init__(self, request_id: int, arrival_s: float, prompt_tokens: int, output_tokens: int) -> None:
        self.request_id = request_id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.target = prompt_tokens
        self.computed = 0
        self.token_s: list[float] = []
        self.stamps = {Status.ARRIVED: arrival_s}
        self.prefill_instance = self.decode_instance = -1
        self.hands_over = False
        self.num_preemptions = 0

    def stamp(self, status: Status, now: float) -> None:
        """Note when the sequence first came into `status`."""
        self.stamps.setdefault(status, now)

    @property
    def status(self) -> Status:
        """All that a router asks: whether it has ended."""
        return Status.FINISHED if Status.FINISHED in self.stamps else Status.ARRIVED

    @property
    def tokens(self) -> int:
        """Prompt and generated."""
        return self.prompt_tokens + len(self.token_s)


class Lane:
    """One micro-batch. `step` holds the chunks and the decodes of the step it is in."""

    def __init__(self) -> None:
        self.prefilling: list[Sequence] = []
        self.ready: list[Sequence] = []
        self.decoding: list[Sequence] = []
        self.step: tuple[list[tuple[Sequence, int]], list[Sequence]] | None = None

    def everybody(self) -> list[Sequence]:
        return self.prefilling + self.ready + self.decoding


class Engine:
    """`start` begins the next step of some lane and `complete` ends it; the simulator keeps the time between."""

    def __init__(self, scenario: Scenario, index: int, role: Role) -> None:
        config, model, hardware = scenario.engine, scenario.model, scenario.hardware_of(role)
        self.index, self.role = index, role
        self.colocated = config.policy
        self.budgets: dict[str, float] = {
            "prefill": config.prefill_batch_tokens or saturation_tokens(model, hardware),
            "chunked_prefill": config.token_budget or 512,
        }
        self.other_budget: float = config.token_budget or inf
        self.max_batch = config.max_batch
        self.preempts = config.admission == "preempt_recompute"
        self.block = config.block_size if self.preempts else 1
        self.capacity = kv_capacity(model, hardware) // self.block * self.block
        self.stages = stages_of(model, hardware)
        self.stage_free_s = [0.0] * len(self.stages)
        self.link = hardware.gpu_link
        self.num_gpus = hardware.tp * hardware.pp
        self.row_bytes = 2 * model.hidden_size
        self.lanes = [Lane() for _ in self.stages]
        self.turn = 0
        self.waiting: list[Sequence] = []
        self.offers: list[Sequence] = []
        self.held: dict[Sequence, int] = {}
        """KV tokens set aside, by holder in order of admission."""
        self.starved_iterations = 0

    def policy(self, lane: Lane) -> tuple[str, float, bool]:
        """What a lane follows now, the tokens of a step, and whether decodes ride along with prompts."""
        name = self.colocated if self.role is Role.MIXED else "chunked_prefill" if lane.decoding else "prefill"
        return name, self.budgets.get(name, self.other_budget), name in ("mixed_batch", "chunked_prefill")

    # KV memory.

    def in_blocks(self, tokens: int) -> int:
        return ceil(tokens / self.block) * self.block

    @property
    def free(self) -> int:
        return self.capacity - sum(self.held.values())

    def stays(self, sequence: Sequence) -> bool:
        """Whether it decodes here when its prompt is computed, or its KV has come."""
        return not sequence.hands_over or sequence.prefill_instance != self.index

    def asks(self, sequence: Sequence) -> int:
        """KV tokens that admitting the sequence sets aside."""
        if self.preempts or not self.stays(sequence):
            return self.in_blocks(sequence.target)
        return sequence.prompt_tokens + sequence.output_tokens

    def has_room(self, sequence: Sequence) -> bool:
        if not self.preempts:
            return self.asks(sequence) <= self.free
        if self.stays(sequence) and not self.held:
            return True
        return self.asks(sequence) + self.block * sum(self.stays(holder) for holder in self.held) <= self.free

    def growth(self, lane: Lane) -> int:
        """KV tokens of the blocks that the lane's decodes open in their next iteration."""
        return sum(self.in_blocks(sequence.tokens) - self.held[sequence] for sequence in lane.decoding)

    def make_room(self, lane: Lane) -> bool:
        """Preempt the newest who is not in a step nor on the way here, until the lane can grow; whether any was."""
        preempted = False
        while lane.decoding and self.growth(lane) > self.free:
            mine = [one for one in self.held if self.stays(one)]
            idle = [one for one in mine for lane in self.lanes if one in lane.everybody() and not lane.step]
            if not idle:
                break
            preempted = True
            victim = idle[-1]
            for members in (part for one in self.lanes for part in (one.prefilling, one.ready, one.decoding)):
                if victim in members:
                    members.remove(victim)
            del self.held[victim]
            victim.target, victim.computed = victim.tokens, 0
            victim.num_preemptions += 1
            self.waiting.insert(0, victim)
        return preempted

    # Handoffs.

    def owes_room(self) -> bool:
        """Whether somebody who was preempted here is first in line."""
        return bool(self.waiting) and self.waiting[0].num_preemptions > 0

    def reserve_offers(self) -> list[Sequence]:
        """Handoffs in line that have room now; who was preempted here comes before them."""
        reserved = []
        while self.offers and not self.owes_room() and self.has_room(self.offers[0]):
            sequence = self.offers.pop(0)
            self.held[sequence] = self.asks(sequence)
            sequence.decode_instance = self.index
            reserved.append(sequence)
        return reserved

    def receive(self, sequence: Sequence, now: float) -> None:
        sequence.hands_over = False
        sequence.stamp(Status.READY, now)
        min(self.lanes, key=lambda lane: len(lane.decoding) + len(lane.ready)).ready.append(sequence)

    # Steps.

    def start(self, now: float) -> tuple[Lane, float] | None:
        """Start a step when the first stage is free: its lane and when it ends."""
        if self.stage_free_s[0] > now:
            return None
        for turn in range(len(self.lanes)):
            lane = self.lanes[(self.turn + turn) % len(self.lanes)]
            if lane.step is None and self.fill(lane, now):
                self.turn = (self.turn + turn + 1) % len(self.lanes)
                return lane, self.send_through(lane, now)
        return None

    def fill(self, lane: Lane, now: float) -> bool:
        """Put together the next step of an idle lane; False when there is nothing to do."""
        self.seat(lane, now)
        decodes = list(lane.decoding)
        if self.preempts:
            while self.make_room(lane):
                self.seat(lane, now)
            decodes = list(lane.decoding) if self.growth(lane) <= self.free else []
        _, budget, rides = self.policy(lane)
        chunks = self.take_chunks(lane, now)
        if chunks and not rides:
            decodes = []
        if not chunks and not decodes:
            return False
        if not chunks and rides and len(decodes) >= budget:
            self.starved_iterations += bool(lane.prefilling or (self.waiting and self.has_seat(lane)))
        if self.preempts:
            for sequence in decodes:
                self.held[sequence] = self.in_blocks(sequence.tokens)
        lane.step = (chunks, decodes)
        return True

    def seat(self, lane: Lane, now: float) -> None:
        """Sequences whose KV is here join the decodes while there are seats."""
        while lane.ready and self.has_seat(lane):
            lane.decoding.append(lane.ready.pop(0))
            lane.decoding[-1].stamp(Status.DECODE, now)

    def has_seat(self, lane: Lane) -> bool:
        return len(lane.decoding) + len(lane.prefilling) < self.max_batch

    def take_chunks(self, lane: Lane, now: float) -> list[tuple[Sequence, int]]:
        """Prompt tokens of the next step: started prompts first, then the queue in order while seat and room last."""
        policy, budget, rides = self.policy(lane)
        if policy == "decode_first" and lane.decoding:
            return []
        left = budget - (len(lane.decoding) if rides else 0)
        chunks = []
        for sequence in lane.prefilling:
            tokens = min(sequence.target - sequence.computed, left)
            if tokens > 0:
                chunks.append((sequence, int(tokens)))
                left -= tokens
        while self.waiting and left > 0 and self.has_seat(lane):
            sequence = self.waiting[0]
            tokens = sequence.target
            if policy == "chunked_prefill":
                tokens = int(min(tokens, left))
            if (tokens > left and chunks) or not self.has_room(sequence):
                break
            self.waiting.pop(0)
            self.held[sequence] = self.asks(sequence)
            sequence.stamp(Status.PREFILL, now)
            lane.prefilling.append(sequence)
            chunks.append((sequence, tokens))
            left -= tokens
        return chunks

    def send_through(self, lane: Lane, now: float) -> float:
        """Max-plus: a stage begins when the micro-batch has come and the one before has left."""
        assert lane.step is not None
        chunks = [(one.computed, tokens, one.computed + tokens == one.target) for one, tokens in lane.step[0]]
        contexts = [sequence.tokens for sequence in lane.step[1]]
        new_tokens = sum(tokens for _, tokens, _ in chunks) + len(contexts)
        link = self.link
        send_s = link.alpha_s + new_tokens * self.row_bytes / (link.bandwidth_bytes_s * link.efficiency)
        at = now
        for number, stage in enumerate(self.stages):
            arrives = at + (send_s if number else 0.0)
            at = max(arrives, self.stage_free_s[number]) + stage.step_s(chunks, contexts)
            self.stage_free_s[number] = at
        return at

    def complete(self, lane: Lane, now: float) -> tuple[list[Sequence], list[Sequence]]:
        """End the lane's step: who finished, and whose KV is to be handed over."""
        assert lane.step is not None
        chunks, decodes = lane.step
        lane.step = None
        finished, done = [], []
        for sequence in decodes:
            sequence.token_s.append(now)
            if len(sequence.token_s) == sequence.output_tokens:
                lane.decoding.remove(sequence)
                finished.append(sequence)
        for sequence, tokens in chunks:
            sequence.computed += tokens
            if sequence.computed == sequence.target:
                lane.prefilling.remove(sequence)
                sequence.token_s.append(now)
                if len(sequence.token_s) == sequence.output_tokens:
                    finished.append(sequence)
                elif not self.stays(sequence):
                    done.append(sequence)
                else:
                    sequence.stamp(Status.DECODE, now)
                    lane.decoding.append(sequence)
        for sequence in finished:
            del self.held[sequence]
            sequence.stamp(Status.FINISHED, now)
        return finished, done
