"""Faults on purpose: what can happen, to whom and when, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan, nan
from random import Random
from typing import Any, NamedTuple

from actors.messages import Toll
from cluster.errors import ConfigError
from cluster.role import Role


class Kind(NamedTuple):
    """A kind of fault. An instance it befalls has `role`, and `moment` says what it is at just then."""

    words: str
    role: Role | None = None
    moment: str = ""
    kills: bool = False


KINDS = {
    "kill-prefill-queued": Kind("SIGKILL a prefill instance where a prompt waits", Role.PREFILL, "queued", kills=True),
    "kill-prefill-running": Kind("SIGKILL a prefill instance in a step", Role.PREFILL, "running", kills=True),
    "kill-prefill-holding": Kind(
        "SIGKILL a prefill instance with KV not yet sent", Role.PREFILL, "holding", kills=True
    ),
    "kill-decode-running": Kind("SIGKILL a decode instance in a step", Role.DECODE, "running", kills=True),
    "kill-decode-receiving": Kind("SIGKILL a decode instance with KV coming in", Role.DECODE, "receiving", kills=True),
    "kill-mixed": Kind("SIGKILL a mixed instance in a step", Role.MIXED, "running", kills=True),
    "kill-changing": Kind("SIGKILL an instance on its way to another role", moment="changing", kills=True),
    "kill-router": Kind("SIGKILL the router", kills=True),
    "kill-planner": Kind("SIGKILL the planner", kills=True),
    "kill-exporter": Kind("SIGKILL the exporter", kills=True),
    "kill-node": Kind("SIGKILL the raylet of a node with instances, other than the driver's", kills=True),
    "hang": Kind("a decode instance answers no more", Role.DECODE, "running", kills=True),
    "slow": Kind("a decode instance takes three times as long for every step, for ten seconds", Role.DECODE, "running"),
    "corrupt": Kind("the next KV payload of a prefill instance is damaged", Role.PREFILL),
    "stale": Kind("late and duplicated messages: old epochs, old terms, requests long gone"),
    "change-role": Kind("the busiest instance of the larger role is ordered into the other, and its requests migrate"),
    "cancel": Kind("one client leaves for each state that a request is in"),
}


@dataclass(slots=True)
class Fault:
    """Times are scenario seconds. All but the first two are filled in as it happens."""

    kind: str
    at_s: float
    target: str = ""
    injected_s: float = nan
    detected_s: float = nan
    recovered_s: float = nan
    cancelled: int = 0
    """Requests whose client left."""
    before: Toll | None = None
    """What the run had suffered until then."""


def parse_fault(text: str) -> Fault:
    """From KIND@SECONDS. Raises ConfigError."""
    kind, at, seconds = text.partition("@")
    if kind not in KINDS:
        raise ConfigError(f"fault {text!r} has unknown kind {kind!r}; use one of {', '.join(KINDS)}")
    try:
        at_s = float(seconds)
    except ValueError:
        at_s = -1.0
    if not at or not 0 <= at_s < float("inf"):
        raise ConfigError(f"fault {text!r} does not say when; write KIND@SECONDS, for example {kind}@10")
    return Fault(kind, at_s)


def each_fault(kinds: Sequence[str], gap_s: float) -> list[Fault]:
    """One of each kind, `gap_s` apart, the first after as long."""
    return [Fault(kind, gap_s * number) for number, kind in enumerate(kinds, start=1)]


def random_faults(kinds: Sequence[str], mean_gap_s: float, until_s: float, seed: int) -> list[Fault]:
    """Faults of the given kinds at random times, `mean_gap_s` apart on average."""
    rng = Random(seed)
    faults, now = [], rng.expovariate(1 / mean_gap_s)
    while now < until_s:
        faults.append(Fault(rng.choice(list(kinds)), now))
        now += rng.expovariate(1 / mean_gap_s)
    return faults


def possible_kinds(roles: Sequence[Role], num_nodes: int) -> list[str]:
    """Kinds that can befall a cluster that starts in `roles` on so many Ray nodes."""
    return [
        name
        for name, kind in KINDS.items()
        if (kind.role is None or kind.role in roles) and (name != "kill-node" or num_nodes > 1)
    ]


def outcomes(faults: Sequence[Fault], end: Toll, time_scale: float) -> list[dict[str, Any]]:
    """What became of each fault, as plain data: wall seconds to notice and to get over it, and what it cost.

    Costs are what the run suffered from one fault to the next, or to the `end`. What cannot be told is None; a
    fault that found nobody, or no time, has no `injected_s`.
    """
    tolls = [fault.before for fault in faults] + [end]
    found = []
    for fault, (before, after) in zip(faults, pairwise(tolls), strict=True):
        happened = before is not None and not isnan(fault.injected_s) and bool(fault.target)
        before, after = before or end, after or end
        found.append(
            {
                "kind": fault.kind,
                "at_s": fault.at_s,
                "target": fault.target or None,
                "injected_s": fault.injected_s if happened else None,
                "detection_s": _wall_s(fault.injected_s, fault.detected_s, time_scale),
                "recovery_s": _wall_s(fault.injected_s, fault.recovered_s, time_scale),
                "disturbed": fault.cancelled or after.disturbed - before.disturbed,
                "resumed": after.resumed - before.resumed,
                "cancelled": fault.cancelled,
                "failed": after.failed - before.failed,
                "recomputed_tokens": after.recomputed_tokens - before.recomputed_tokens,
            }
        )
    return found


def _wall_s(start_s: float, end_s: float, time_scale: float) -> float | None:
    seconds = (end_s - start_s) * time_scale
    return None if isnan(seconds) else round(seconds, 3)
