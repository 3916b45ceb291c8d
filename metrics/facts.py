"""A summary in words: labelled lines and latency rows, the same for terminal and report."""

from typing import Any

from metrics.summary import Summary

LATENCIES = {
    "TTFT": "ttft_ms",
    "TPOT": "tpot_ms",
    "ITL": "itl_ms",
    "max ITL": "max_itl_ms",
    "TTST": "ttst_ms",
    "E2E": "e2e_ms",
}
"""Label and summary field of each latency."""

LATENCY_COLUMNS = ("mean", "p50", "p90", "p99", "max")

ROLE_CHANGE_COLUMNS = ("at", "instance", "change", "drain", "switch", "reason")

FAULT_COLUMNS = ("fault", "noticed", "over", "disturbed", "resumed", "cancelled", "failed", "recomputed")
"""Wall seconds until the last of a kind was noticed and over, numbers of requests, and tokens computed again."""

_MAX_NAMED = 8
"""Instances listed one by one; of more only the range is told."""

COMPARED = {
    "good req/s": "request_goodput",
    "per GPU": "goodput_per_gpu",
    "good": "attainment",
    "TTFT p50": "ttft_ms.p50",
    "TTFT p99": "ttft_ms.p99",
    "TPOT p50": "tpot_ms.p50",
    "TPOT p99": "tpot_ms.p99",
    "ITL p50": "itl_ms.p50",
    "ITL p99": "itl_ms.p99",
    "max ITL": "itl_ms.max",
    "E2E p50": "e2e_ms.p50",
    "E2E p99": "e2e_ms.p99",
    "tokens/s": "output_throughput",
    "done in, s": "duration_s",
    "finished": "completed",
    "failed": "failed",
    "GPUs": "num_gpus",
    "$ per 1k": "usd_per_1k_requests",
}
"""Column and summary field of each figure by which runs are compared; latencies in milliseconds."""

PARTS = {
    "queue": "queue",
    "prefill": "prefill",
    "room": "wait for KV room",
    "transfer": "KV transfer",
    "decode_wait": "wait to join the batch",
    "first_decode_step": "first decode step",
}


def number(value: float | None) -> str:
    """Three or four significant digits with thousands separators; a dash for no value."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1000 or value == int(value):
        return f"{value:,.0f}"
    if size < 1:
        return f"{value:.3g}"
    return f"{value:.1f}" if size >= 100 else f"{value:.2f}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def facts(summary: Summary) -> list[tuple[str, str]]:
    """Label and text of everything but latencies and role changes, the most important first."""
    requests = summary["requests"]
    lines = [
        ("Goodput", f"{number(summary['request_goodput'])} req/s, {number(summary['goodput_per_gpu'])} per GPU"),
        ("Attainment", _attainment(summary)),
        ("Requests", _counts(requests)),
        (
            "Throughput",
            f"{number(summary['request_throughput'])} req/s, {number(summary['output_throughput'])} output tokens/s, "
            f"{number(summary['total_token_throughput'])} tokens/s",
        ),
        (
            "Duration",
            f"{number(summary['duration_s'])} s on {summary['num_gpus']} GPU{'' if summary['num_gpus'] == 1 else 's'}",
        ),
        ("Busy", _busy(summary["instances"])),
    ]
    if summary["usd_per_1k_requests"] is not None:
        lines.append(("Cost", f"${number(summary['usd_per_1k_requests'])} per 1,000 requests"))
    if summary["joules_per_1k_requests"] is not None:
        lines.append(("Energy", f"{number(summary['joules_per_1k_requests'] / 1e3)} kJ per 1,000 requests"))
    if summary["num_transfers"]:
        lines.append(("KV moved", f"{size(summary['kv_bytes_moved'])} in {number(summary['num_transfers'])} handoffs"))
    if summary["num_migrations"]:
        migrated = f"{size(summary['kv_bytes_migrated'])} of {number(summary['num_migrations'])} decoding requests"
        lines.append(("KV migrated", migrated))
    for role, spread in summary["router_spread"].items():
        if spread["cv"] is not None:
            text = (
                f"{number(spread['max_minus_min'])} requests between the most and the least used, CV {spread['cv']:.2f}"
            )
            lines.append((f"Spread over {role}", text))
    if summary["num_preemptions"]:
        lines.append(("Preemptions", number(summary["num_preemptions"])))
    if summary["starved_steps"]:
        lines.append(("Starved steps", number(summary["starved_steps"])))
    lines += _live(summary["live"] or {})
    lines.append(("Ran in", f"{number(summary['cpu_s'])} CPU s, {number(summary['requests_per_cpu_s'])} req/CPU s"))
    lines += [("Note", notice) for notice in summary["notices"]]
    return lines


def latency_rows(summary: Summary) -> list[tuple[str, list[str]]]:
    """Label and texts of `LATENCY_COLUMNS` in milliseconds, the parts of TTFT and TTST indented below them."""
    rows = []
    for label, field in LATENCIES.items():
        rows.append((label, _columns(summary[field])))
        for part, stats in summary.get(field.replace("_ms", "_parts_ms"), {}).items():
            if stats["count"]:
                rows.append((f"  {PARTS[part]}", _columns(stats)))
    return rows


def compared(summary: Summary, column: str) -> str:
    """The text of one column of COMPARED."""
    field, _, statistic = COMPARED[column].partition(".")
    value = summary[field][statistic] if statistic else summary[field]
    return percent(value) if column == "good" else number(value)


def role_change_rows(summary: Summary) -> list[list[str]]:
    """Time, instance, change, drain time, switch time and reason of every role change ordered."""
    return [
        [
            f"{change['decided_s']:.2f} s",
            change["instance"],
            f"{change['old_role']} to {change['new_role']}"
            + ("" if change["served_s"] is not None else " (not completed)"),
            "-" if change["drain_s"] is None else f"{change['drain_s']:.3f} s",
            "-" if change["switch_s"] is None else f"{change['switch_s']:.3f} s",
            change["reason"],
        ]
        for change in summary["role_changes"]
    ]


def fault_rows(summary: Summary) -> list[list[str]]:
    """FAULT_COLUMNS for each kind of fault that befell a live run on purpose: the longest times, and sums."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for fault in (summary["live"] or {}).get("faults", []):
        if fault["injected_s"] is not None:
            kinds.setdefault(fault["kind"], []).append(fault)
    return [
        [
            kind if len(faults) == 1 else f"{kind} x {len(faults)}",
            *(_longest([fault[name] for fault in faults]) for name in ("detection_s", "recovery_s")),
            *(
                number(sum(fault[name] for fault in faults))
                for name in ("disturbed", "resumed", "cancelled", "failed", "recomputed_tokens")
            ),
        ]
        for kind, faults in kinds.items()
    ]


def _longest(seconds: list[float | None]) -> str:
    known = [value for value in seconds if value is not None]
    return f"{max(known):.2f} s" if known else "-"


def _columns(stats: dict[str, Any]) -> list[str]:
    return [number(stats[column]) for column in LATENCY_COLUMNS]


def _attainment(summary: Summary) -> str:
    slo = summary["slo"]
    text = f"{percent(summary['attainment'])} good, {number(100 * slo['attainment'])} % asked for"
    judged = [
        f"{name.upper()} <= {number(slo[f'{name}_ms'])} ms {percent(share)}"
        for name, share in summary["attainment_by_slo"].items()
        if share is not None
    ]
    return "; ".join([text, *judged]) if judged else f"{text} (no latency target)"


def _counts(requests: dict[str, int]) -> str:
    outcomes = [
        f"{number(requests[kind])} {kind.replace('_', '-')}"
        for kind in ("finished", "rejected", "aborted", "failed", "lost", "zero_output")
        if requests[kind] or kind == "finished"
    ]
    return f"{number(requests['total'])} sent: {', '.join(outcomes)}"


def _busy(instances: list[dict[str, Any]]) -> str:
    shares = [one["busy_share"] for one in instances if one["busy_share"] is not None]
    if len(shares) > _MAX_NAMED:
        return f"{percent(min(shares))} to {percent(max(shares))}, mean {percent(sum(shares) / len(shares))}"
    return ", ".join(f"{one['name']} {percent(one['busy_share'])}" for one in instances)


def _live(live: dict[str, Any]) -> list[tuple[str, str]]:
    """A line for every entry; statistics in one line, of lists only how long they are."""
    lines = []
    for key, value in live.items():
        if isinstance(value, list):
            text = str(len(value))
        elif isinstance(value, dict):
            text = ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
        else:
            text = _plain(value)
        lines.append((f"Live {key.replace('_', ' ')}", text))
    return lines


def _plain(value: Any) -> str:
    is_number = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    return number(value) if is_number else str(value)


def size(num_bytes: int) -> str:
    """Bytes in decimal units."""
    value, unit = float(num_bytes), "B"
    for larger in ("KB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{number(value)} {unit}"
