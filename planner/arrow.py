"""The `arrow` policy: instances change their role by a rule that is applied at each arrival and each end.

After Arrow in JD's xLLM (the SLO-aware policy of its service). Flips are immediate: an instance finishes old work of
either kind on the side.
"""

from cluster.request import ENDED, Request, Status
from cluster.role import Role
from cluster.router import Choice
from planner.counted import CountingRouter
from planner.decision import How, RoleOrder
from planner.tools import Tools


class ArrowRouter(CountingRouter):
    """Chooses both instances of a request when it arrives, and tells which instances are to change their role.

    Call `take_orders` after each `route_prompt`, `done` and `handoff_undone`, and carry the orders out; until then
    the instances they name get nothing new.
    """

    def __init__(self, tools: Tools, *, reserves_output: bool = True, seed: int = 0) -> None:
        super().__init__(tools, reserves_output=reserves_output, pairs=True, seed=seed)
        self._leaving: dict[int, tuple[int, Request]] = {}
        """Requests that are decoded elsewhere, and where they are computed, by id."""
        self._orders: list[RoleOrder] = []
        self._ordered: set[int] = set()
        self.pinned: frozenset[int] = frozenset()
        """Instances whose role was set by hand."""

    def take_orders(self) -> list[RoleOrder]:
        """Flips decided since the last call. Their epoch, which a router does not know, is left at 0."""
        orders, self._orders = self._orders, []
        return orders

    def route_prompt(self, request: Request) -> Choice | None:
        """Prefill where it takes the least time; decode on the first instance that keeps to the TPOT target with this
        request on board, else on the one that comes closest.

        When even the best prefill instance is over the TTFT target, the decode instance with the least TPOT computes
        the prompt, if it has room to spare and less prefill work. When no decode instance keeps to the target and
        prefill can do without an instance, or has more of them, the prefill instance becomes a decode instance.
        """
        if not self.prompts.ids or not self.handoffs.ids:
            return None
        self.unpair(request)
        prefill_s = {instance: self.prefill_s(instance) for instance in sorted(self.prompts.ids)}
        tpot_s = {instance: self._tpot_s(instance, request) for instance in sorted(self.handoffs.ids)}
        num_prefill, num_decode = len(prefill_s), len(tpot_s)
        prefill = min(prefill_s, key=prefill_s.__getitem__)
        calmest = min(tpot_s, key=tpot_s.__getitem__)
        decode = next((one for one, time_s in tpot_s.items() if time_s <= self._targets.tpot_s), calmest)
        is_met = tpot_s[decode] <= self._targets.tpot_s
        mean_s = sum(prefill_s.values()) / num_prefill
        if (
            prefill_s[prefill] > self._targets.ttft_s
            and decode != calmest
            and tpot_s[calmest] < self._targets.tpot_s * (num_decode - 1) / num_decode
            and self.prefill_s(calmest) < prefill_s[prefill]
            and not self._owes(decode)
        ):
            prefill = calmest
        _, load = self.prompts.of(prefill)
        request.hands_over = True
        self.prompts.book(prefill, self._prompt_tokens(request))
        self.handoffs.book(decode, self._kv_tokens(request))
        self._paired[request.request_id] = decode
        self._leaving[request.request_id] = prefill, request
        spare_s = self._targets.ttft_s * (num_prefill - 1) / num_prefill
        if not is_met and (mean_s < spare_s or num_decode < num_prefill):
            reason = f"no decode instance keeps to the TPOT target; prefill takes {mean_s:.2f} s on average"
            self._order(prefill, Role.DECODE, "decode_tpot", reason)
        return Choice(prefill, "arrow", load, num_prefill)

    def done(self, instance: int, request: Request) -> None:
        super().done(instance, request)
        self._forget_ended(request)
        if request.decode_instance == instance:
            self._idle_decode_flips(instance)

    def handoff_undone(self, instance: int, request: Request) -> None:
        super().handoff_undone(instance, request)
        self._forget_ended(request)
        self._idle_decode_flips(instance)

    def close(self, instance: int) -> None:
        super().close(instance)
        self._ordered.discard(instance)

    def forget(self, instance: int) -> None:
        super().forget(instance)
        self._leaving = {key: (source, one) for key, (source, one) in self._leaving.items() if source != instance}

    def role_if_open(self, instance: int) -> Role | None:
        return self._roles[instance] if instance in self._ordered else super().role_if_open(instance)

    def _tpot_s(self, instance: int, request: Request) -> float:
        """Time per output token with one more request."""
        num, tokens = self.handoffs.of(instance)
        return self._engine.iteration_s(num + 1, (tokens + self._kv_tokens(request)) / (num + 1))

    def _owes(self, instance: int) -> bool:
        # A decode instance that takes prompts for another must not be waited for by one that the other owes KV:
        # each could hold the room the other needs. As whoever gets such KV owes none, no circle can close.
        return any(source == instance and one.status < Status.READY for source, one in self._leaving.values())

    def _idle_decode_flips(self, instance: int) -> None:
        if instance in self.handoffs.at and not self.handoffs.requests[instance]:
            self._order(instance, Role.PREFILL, "decode_idle", "its last decode request has ended")

    def _forget_ended(self, request: Request) -> None:
        if request.status in ENDED:
            self._leaving.pop(request.request_id, None)

    def _order(self, instance: int, role: Role, cause: str, reason: str) -> None:
        """Have it change its role, if the role it leaves keeps its minimum."""
        left, least = (
            (self.handoffs, self._config.min_decode)
            if role is Role.PREFILL
            else (self.prompts, self._config.min_prefill)
        )
        may = instance not in self.pinned and not self._config.dry_run
        if may and instance in left.at and len(left.ids) > least:
            super().close(instance)
            self._ordered.add(instance)
            self._orders.append(RoleOrder(instance, 0, role, cause, reason, How.FLIP))

    def _kv_tokens(self, request: Request) -> int:
        """Mean context while it decodes, as far as its output is declared."""
        return request.prompt_tokens + (request.output_tokens // 2 if self._reserves_output else 0)
