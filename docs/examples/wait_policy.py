"""Prefill gets help when a prompt has waited for half its TTFT target, and gives it back when nobody waits."""

from cluster.role import Role
from planner.decision import Decision, RoleOrder

REST_S = 10.0


def wait(observation, tools, rests_until_s):
    """One tick. `rests_until_s` is what the last tick returned; None at the first."""
    prefill, decode = observation.serving(Role.PREFILL), observation.serving(Role.DECODE)
    longest_s = max((view.oldest_wait_s for view in prefill), default=0.0)
    reason = f"the oldest prompt has waited {longest_s:.2f} s"
    if observation.changing() or observation.now_s < (rests_until_s or 0.0):
        return Decision((), reason, len(prefill), len(decode)), rests_until_s
    if longest_s > 0.5 * tools.targets.ttft_s:
        role, step, donors = Role.PREFILL, 1, observation.movable(Role.DECODE)
    elif longest_s == 0 and len(prefill) > len(decode):
        role, step, donors = Role.DECODE, -1, observation.movable(Role.PREFILL)
    else:
        return Decision((), reason, len(prefill), len(decode)), rests_until_s
    orders = tuple(
        RoleOrder(view.index, view.epoch, role, "prompt_wait", reason)
        for view in sorted(donors, key=lambda view: view.kv_used_tokens)[:1]
    )
    return Decision(orders, reason, len(prefill) + step, len(decode) - step), observation.now_s + REST_S
