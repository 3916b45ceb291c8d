"""Where every live request is, as the router knows it, and what becomes of those whose instance dies."""

from dataclasses import dataclass
from enum import Enum

from actors.messages import Offer, Progress
from cluster.request import Request


class Stage(Enum):
    HOMELESS = "homeless"
    """With the router: nobody serves the role it needs."""
    PROMPT = "prompt"
    """At a prefill or mixed instance, with all that it needs to finish there or to hand over."""
    OFFERED = "offered"
    """Offered to a decode instance; the KV is still where it was computed, or on its way."""
    DECODING = "decoding"
    """Its KV is at a decode instance."""


@dataclass(slots=True)
class Tracked:
    """`request` is the router's copy, as of what it was told last."""

    request: Request
    stage: Stage = Stage.HOMELESS
    instance: int = -1
    """Where it is, or is offered to."""
    source: int = -1
    """Where its KV was computed, while OFFERED."""
    source_epoch: int = 0
    migrates: bool = False
    """Whether it decoded at its source, while OFFERED."""
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """What a death means for one request: its KV is elsewhere (`offer`), or gone (None)."""

    request: Request
    offer: Offer | None


class Tracker:
    """The live requests by id."""

    def __init__(self) -> None:
        self.live: dict[int, Tracked] = {}

    def add(self, request: Request) -> Tracked:
        tracked = self.live[request.request_id] = Tracked(request)
        return tracked

    def sent(self, request_id: int, instance: int) -> None:
        """Its prompt went to an instance."""
        tracked = self.live[request_id]
        tracked.stage, tracked.instance = Stage.PROMPT, instance

    def offered(self, offer: Offer, instance: int) -> None:
        """Its KV is offered to a decode instance."""
        tracked = self.live[offer.request.request_id]
        tracked.request = offer.request
        tracked.stage, tracked.instance = Stage.OFFERED, instance
        tracked.source, tracked.source_epoch, tracked.migrates = offer.source, offer.source_epoch, offer.migrates

    def offer_of(self, request_id: int) -> Offer:
        """The offer that an OFFERED request is in, as it was made last."""
        tracked = self.live[request_id]
        return Offer(tracked.request, tracked.source, tracked.source_epoch, tracked.migrates)

    def stays(self, offer: Offer) -> None:
        """Its KV does not leave after all: it decodes on where it was."""
        tracked = self.live[offer.request.request_id]
        tracked.request, tracked.instance = offer.request, offer.source
        offer.request.hands_over = False
        tracked.stage = Stage.PROMPT if offer.request.decode_instance < 0 else Stage.DECODING

    def received(self, request_id: int, instance: int) -> Tracked | None:
        """Its KV has come in; None when that is no news."""
        tracked = self.live.get(request_id)
        if tracked is None or tracked.stage is not Stage.OFFERED or tracked.instance != instance:
            return None
        tracked.stage = Stage.DECODING
        tracked.request.decode_instance = instance
        return tracked

    def progressed(self, progress: Progress, instance: int) -> None:
        """Tokens were delivered."""
        tracked = self.live.get(progress.request_id)
        if tracked is not None and tracked.instance == instance and progress.generated > tracked.request.generated:
            request = tracked.request
            request.generated = progress.generated
            request.second_token_s = progress.second_token_s
            request.last_token_s = progress.last_token_s
            request.text = progress.text

    def ended(self, request_id: int) -> Tracked | None:
        """Forget a request; None when it was not live (any more)."""
        return self.live.pop(request_id, None)

    def at(self, instance: int) -> list[Tracked]:
        return [tracked for tracked in self.live.values() if tracked.instance == instance]

    def decoding_at(self, instance: int) -> list[Tracked]:
        """Requests that decode there, as far as it is known, in order of arrival."""
        return [
            tracked
            for tracked in self.at(instance)
            if tracked.stage is Stage.DECODING or (tracked.stage is Stage.PROMPT and tracked.request.generated)
        ]

    def losses(self, instance: int) -> list[Loss]:
        """What the death of an instance means for the requests that were there, or were offered to it.

        A request that was on its way to it still has its KV at the source, unless that is dead as well,
        which the next instance it is offered to will find out.
        """
        losses = []
        for tracked in self.at(instance):
            offer = None
            if tracked.stage is Stage.OFFERED and tracked.source != instance:
                offer = self.offer_of(tracked.request.request_id)
            losses.append(Loss(tracked.request, offer))
        return losses


def rewind(request: Request) -> int:
    """Make a request whose KV is lost ready to be prefilled again: prompt and delivered tokens.

    Returns how many tokens that is. What it has had stays delivered.
    """
    request.target = request.prompt_tokens + request.generated
    request.computed = 0
    request.seat = 0
    request.hands_over = False
    request.decode_instance = -1
    return request.target
