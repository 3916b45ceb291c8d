"""The `conditional` policy: a short prompt is prefilled where it will be decoded, a long one on a prefill instance.

What is short is a number of tokens, or what the engine model says: the prompt would have its first token sooner beside
the decodes than after the queue of the prefill instance, and no step would take longer than the TPOT target.
"""

from math import ceil
from typing import Any

from cluster.request import Request
from cluster.router import Choice
from planner.counted import CountingRouter
from planner.tools import Tools


class ConditionalRouter(CountingRouter):
    """`step_tokens` is the budget of a decode instance's step that computes prompts, too. `fields` go to Router."""

    def __init__(self, tools: Tools, *, step_tokens: float, **fields: Any) -> None:
        super().__init__(tools, **fields)
        self._step_tokens = step_tokens
        self._local: dict[int, dict[int, Request]] = {}
        """Requests that are decoded where they are prefilled, by instance and id."""

    def route_prompt(self, request: Request) -> Choice | None:
        """Where to prefill; `hands_over` says whether it will be decoded there, too."""
        if not self.prompts.ids or not self.handoffs.ids:
            return None
        remote = self.prompts.ids[self._choose_prefill(self.prompts)]
        local = self.handoffs.ids[self._choose_decode(self.handoffs)]
        is_local = self._is_short(request, remote, local)
        request.hands_over = not is_local
        if is_local:
            load = self.handoffs.booked[local]
            self.handoffs.book(local, self._kv_tokens(request))
            self._local.setdefault(local, {})[request.request_id] = request
            return Choice(local, "conditional local", load, len(self.handoffs.ids))
        load = self.prompts.booked[remote]
        self.prompts.book(remote, self._prompt_tokens(request))
        return Choice(remote, "conditional remote", load, len(self.prompts.ids))

    def done(self, instance: int, request: Request) -> None:
        if self._local.get(instance, {}).pop(request.request_id, None) is None:
            super().done(instance, request)
        else:
            self.handoffs.book(instance, -self._kv_tokens(request))

    def forget(self, instance: int) -> None:
        super().forget(instance)
        self._local.pop(instance, None)

    def _is_short(self, request: Request, remote: int, local: int) -> bool:
        limit = self._config.conditional.local_tokens
        if limit is not None:
            return request.prompt_tokens <= limit
        batch, tokens = self.handoffs.of(local)
        waiting = sum(one.prompt_tokens for one in self._local.get(local, {}).values() if not one.generated)
        to_compute = waiting + request.prompt_tokens
        chunk = min(self._step_tokens - batch, to_compute)
        if chunk < 1 or tokens + self._kv_tokens(request) > self._engine.kv_capacity_tokens:
            return False
        step_s = self._engine.mixed_s(chunk, request.prompt_tokens, batch, tokens)
        if step_s > self._targets.tpot_s:
            return False
        remote_s = self.prefill_s(remote) + self._engine.prefill_s(request.prompt_tokens)
        return ceil(to_compute / chunk) * step_s <= remote_s
