"""Why a rate is too high, in words: the SLO that is missed, and the resource behind it.

Of those who missed it, the part of their stay that is most longer than for requests served one at a time
tells which resource is short; of a backlog, the part that grows most in the course of the run.
"""

from sim.probe import Finding
from sim.sustain import Verdict
from sim.usage import RoleUsage, Usage

_FULL = 0.80
"""A KV pool fuller than this is short of room: what is left is less than the next request needs."""

_BUSY = 0.85
"""Prefill instances less busy than this do not hold prompts back for want of compute."""

_PARTS = {"TTFT": ("queue", "prefill"), "TPOT": ("room", "transfer", "seat", "steps")}


def limit_in_words(finding: Finding, alone: Usage) -> str:
    """What kept a rate from passing; `alone` is the usage of unloaded requests."""
    usage = finding.usage
    if usage is None:
        return finding.verdict.reason
    return f"{_missed(finding.verdict)}: {_why(_short_part(finding.verdict, usage, alone), usage, alone)}"


def short_role(finding: Finding, alone: Usage) -> str:
    """The role that more instances would help most: prefill, decode or mixed."""
    usage = finding.usage
    if usage is None:
        return "decode"
    if "mixed" in usage.roles:
        return "mixed"
    return "prefill" if _short_part(finding.verdict, usage, alone) in _PARTS["TTFT"] else "decode"


def _short_part(verdict: Verdict, usage: Usage, alone: Usage) -> str:
    missed = _missed(verdict)
    if missed == "backlog":
        part = max(usage.growth_s, key=lambda one: usage.growth_s[one])
    else:
        parts, best = usage.missed_s[missed], alone.per_token_s if missed == "TPOT" else alone.parts_s
        part = max(_PARTS.get(missed, tuple(parts)), key=lambda one: parts[one] - best[one])
    return _held_back_by(usage) if part == "queue" else part


def _held_back_by(usage: Usage) -> str:
    """Prompts queue before idle prefill instances when KV that cannot leave fills their memory."""
    prefill = usage.roles.get("prefill")
    leaving = max(("room", "transfer"), key=lambda one: usage.parts_s[one])
    if prefill is None or prefill.busy > _BUSY or usage.parts_s[leaving] < usage.parts_s["prefill"]:
        return "queue"
    return leaving


def _missed(verdict: Verdict) -> str:
    """The SLO that fewest requests met, or the backlog where they are met and the load is not kept up with."""
    shares = verdict.attainment_by_slo
    is_short = "good" in verdict.reason and shares
    return min(shares, key=lambda name: shares[name]) if is_short else "backlog"


def _why(part: str, usage: Usage, alone: Usage) -> str:
    taken, best = _time(usage.parts_s[part]), _time(alone.parts_s[part])
    if part in ("queue", "prefill"):
        role, own = _of(usage, "prefill", "mixed")
        if part == "prefill":
            return f"a prefill takes {taken} in steps shared with others, {best} alone"
        if own.kv_use > _FULL:
            return f"prompts queue {taken}, KV memory of {role} instances is {_percent(own.kv_use)} full"
        return f"prompts queue {taken}, {role} instances compute {_percent(own.busy)} of the time"
    role, own = _of(usage, "decode", "mixed")
    if part == "room":
        return f"handoffs wait {taken} for room, KV memory of {role} instances is {_percent(own.kv_use)} full"
    if part == "transfer":
        return f"KV transfers take {taken} on the shared link, {best} alone"
    if part == "seat":
        return f"sequences wait {taken} for a seat among the {own.batch:.0f} of a batch"
    steps = f"steps with {own.batch:.0f} sequences take {_time(own.decode_step_s)}, KV memory is {_percent(own.kv_use)} full"
    if role == "mixed":
        return f"{steps}, and steps with prompts take {_percent(own.prompt_share)} of the time"
    return f"decode {steps}"


def _of(usage: Usage, *roles: str) -> tuple[str, RoleUsage]:
    role = next(role for role in roles if role in usage.roles)
    return role, usage.roles[role]


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
