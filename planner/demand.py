"""What was asked of the cluster lately: from requests that arrived, because completions hide demand."""

from collections import deque
from dataclasses import dataclass, replace
from math import isfinite, nan, sqrt
from typing import NamedTuple


class Arrived(NamedTuple):
    """One request. `output_tokens` is what it declared; 0 where requests declare nothing."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Demand:
    """The last `window_s` seconds, or less at the start of a run. No traffic is zero, not nothing."""

    window_s: float
    arrived: tuple[Arrived, ...] = ()
    declares: bool = False
    """Whether requests say at arrival how long their output will be."""
    num_ended: int = 0
    num_good: int = 0
    mean_output_tokens: float = 0.0
    """Of requests that ended in the window; 0 when none did."""
    mean_ttft_s: float | None = None
    """Of the same; None when none did, or nobody measures it."""
    ended_prompt_tokens: float = 0.0
    """Mean ISL of those whose TTFT was measured."""

    @property
    def request_rate(self) -> float:
        """Requests per second."""
        return len(self.arrived) / self.window_s if self.window_s > 0 else 0.0

    @property
    def prompt_tokens(self) -> float:
        """Mean ISL of what arrived; 0 without traffic."""
        return sum(one.prompt_tokens for one in self.arrived) / len(self.arrived) if self.arrived else 0.0

    @property
    def output_tokens(self) -> float:
        """Mean OSL: as declared by what arrived, else of what ended; 0 when neither is known."""
        declared = [one.output_tokens for one in self.arrived if one.output_tokens]
        return sum(declared) / len(declared) if declared else self.mean_output_tokens

    @property
    def attainment(self) -> float | None:
        """Share of good requests among those that ended; None when none did."""
        return self.num_good / self.num_ended if self.num_ended else None

    def of_last(self, seconds: float, now: float) -> "Demand":
        """The end of the window, as far as arrivals go: what ended is that of all of it."""
        if seconds >= self.window_s:
            return self
        arrived = tuple(one for one in self.arrived if one.at_s > now - seconds)
        return replace(self, window_s=seconds, arrived=arrived)


def steady_part(demand: Demand, now: float, *, block_s: float = 2.0, sigmas: float = 3.0) -> Demand:
    """The longest recent stretch of a window over which traffic has not changed.

    Blocks are added from the newest backwards while their prompt and output tokens per second differ from
    those of what is there already by no more than `sigmas` standard errors (of a compound Poisson process): a
    sudden change is seen within a block, and a steady load is not mistaken for one.
    """
    part = _tokens_in(demand.arrived, now, block_s)
    length = min(block_s, demand.window_s)
    while length + block_s <= demand.window_s:
        end = now - length
        block = _tokens_in(demand.arrived[: len(demand.arrived) - part.num_requests], end, block_s)
        if any(
            abs(mine / length - theirs / block_s) > sigmas * sqrt(my_squares / length**2 + their_squares / block_s**2)
            for mine, my_squares, theirs, their_squares in (
                (part.prompt, part.prompt_squares, block.prompt, block.prompt_squares),
                (part.output, part.output_squares, block.output, block.output_squares),
            )
        ):
            break
        part = part.plus(block)
        length += block_s
    return replace(demand, window_s=length, arrived=demand.arrived[len(demand.arrived) - part.num_requests :])


class _Tokens(NamedTuple):
    num_requests: int
    prompt: float
    prompt_squares: float
    output: float
    output_squares: float

    def plus(self, other: "_Tokens") -> "_Tokens":
        return _Tokens(
            self.num_requests + other.num_requests,
            self.prompt + other.prompt,
            self.prompt_squares + other.prompt_squares,
            self.output + other.output,
            self.output_squares + other.output_squares,
        )


def _tokens_in(arrived: tuple[Arrived, ...], end: float, length: float) -> _Tokens:
    """Sums over the arrivals after `end` - `length`, of which the last are the newest."""
    count = 0
    prompt = prompt_squares = output = output_squares = 0.0
    for one in reversed(arrived):
        if one.at_s <= end - length:
            break
        count += 1
        prompt += one.prompt_tokens
        prompt_squares += one.prompt_tokens**2
        output += one.output_tokens
        output_squares += one.output_tokens**2
    return _Tokens(count, prompt, prompt_squares, output, output_squares)


class DemandWindow:
    """Fed by a driver as things happen; `declares` says whether output lengths are known at arrival."""

    def __init__(self, window_s: float, *, declares: bool) -> None:
        self.window_s = window_s
        self._declares = declares
        self._arrived: deque[Arrived] = deque()
        self._ended: deque[tuple[float, int, bool, int, float]] = deque()

    def arrive(self, now: float, prompt_tokens: int, output_tokens: int) -> None:
        self._arrived.append(Arrived(now, prompt_tokens, output_tokens if self._declares else 0))
        if len(self._arrived) & 255 == 0:
            self._forget(now)

    def end(self, now: float, output_tokens: int, good: bool, *, prompt_tokens: int = 0, ttft_s: float = nan) -> None:
        self._ended.append((now, output_tokens, good, prompt_tokens, ttft_s))
        if len(self._ended) & 255 == 0:
            self._forget(now)

    def _forget(self, now: float) -> None:
        for events in (self._arrived, self._ended):
            while events and events[0][0] <= now - self.window_s:
                events.popleft()

    def view(self, now: float) -> Demand:
        """The window that ends now."""
        self._forget(now)
        outputs = [tokens for _, tokens, *_ in self._ended]
        measured = [(prompt, ttft_s) for *_, prompt, ttft_s in self._ended if isfinite(ttft_s)]
        return Demand(
            window_s=min(self.window_s, now),
            arrived=tuple(self._arrived),
            declares=self._declares,
            num_ended=len(self._ended),
            num_good=sum(good for _, _, good, *_ in self._ended),
            mean_output_tokens=sum(outputs) / len(outputs) if outputs else 0.0,
            mean_ttft_s=sum(ttft_s for _, ttft_s in measured) / len(measured) if measured else None,
            ended_prompt_tokens=sum(prompt for prompt, _ in measured) / len(measured) if measured else 0.0,
        )
