"""Why a rate is too high, in words: the SLO that is missed, and the resource behind it."""

from sim.probe import Finding
from sim.sustain import Verdict
from sim.usage import RoleUsage, Usage

_FULL = 0.85
"""KV pools fuller than this are short of room: the rest is what requests do not fit into."""


def limit_in_words(finding: Finding) -> str:
    """What kept a rate from passing, or would first as it rises."""
    verdict, usage = finding.verdict, finding.usage
    if usage is None:
        return verdict.reason
    missed = _missed(verdict)
    if missed == "TPOT":
        return f"TPOT: {_why_slow_tokens(usage)}"
    if missed == "E2E" and usage.decode_s > usage.queue_s + usage.prefill_s:
        return f"E2E: {_why_slow_tokens(usage)}"
    if missed == "load" and usage.room_s + usage.transfer_s > usage.queue_s:
        return f"a growing backlog: {_why_slow_tokens(usage)}"
    label = "a growing backlog" if missed == "load" else missed
    return f"{label}: {_why_slow_prompts(usage)}"


def _missed(verdict: Verdict) -> str:
    """The SLO that fewest requests met; "load" where they are met and the load is not kept up."""
    worst = min(verdict.attainment_by_slo, key=lambda name: verdict.attainment_by_slo[name], default="load")
    return worst if "good" in verdict.reason else "load"


def _why_slow_prompts(usage: Usage) -> str:
    role, own = _of(usage, "prefill", "mixed")
    if usage.queue_s < usage.prefill_s:
        return f"a prefill step alone takes {_ms(usage.prefill_s)} on average, and the queue before it {_ms(usage.queue_s)}"
    wait = f"prompts queue {_ms(usage.queue_s)} on average"
    if own.kv_use > _FULL:
        whose = "prefill" if role == "prefill" else "the"
        return f"{wait} because {whose} KV memory is {_percent(own.kv_use)} full"
    return f"{wait}, {role} instances compute {_percent(own.busy)} of the time"


def _why_slow_tokens(usage: Usage) -> str:
    role, own = _of(usage, "decode", "mixed")
    if usage.transfer_s > max(usage.room_s, 0.5 * usage.decode_s):
        return f"the link is slow or busy, a KV transfer takes {_ms(usage.transfer_s)} on average"
    if usage.room_s > 0.25 * usage.decode_s:
        return f"KV memory at decode is {_percent(own.kv_use)} full, and handoffs wait {_ms(usage.room_s)} for room"
    step = f"a decode step takes {_ms(own.decode_step_s)} at {own.batch:.0f} sequences on average"
    if role == "mixed":
        return f"{step}, and steps with prompts take {_percent(own.prompt_share)} of the time"
    return f"{step}, KV memory is {_percent(own.kv_use)} full"


def _of(usage: Usage, *roles: str) -> tuple[str, RoleUsage]:
    role = next(role for role in roles if role in usage.roles)
    return role, usage.roles[role]


def _ms(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
