"""The Grafana dashboard of a live run, made from a list of panels: `python -m metrics.grafana` prints its JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.figure import ROLE_COLORS

WIDTH = 24
"""Of Grafana's grid."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RATE = "$__rate_interval"
ROLES = tuple(ROLE_COLORS)
DRAINS = 10
"""What draining adds to the number of a role in the role timeline."""

ROLE_OF = "* on (instance_name) group_left (role) (baton_instance_role == 1)"
"""Gives a metric of an instance the role that the instance plays now."""
NUMBERED_ROLE = (
    " + ".join(
        f'{number} * sum by (instance_name) (baton_instance_role{{role="{role}"}})'
        for number, role in enumerate(ROLES, start=1)
    )
    + f" + {DRAINS} * sum by (instance_name) (baton_instance_draining)"
)
ROLE_CHANGES = (
    "sum by (instance_name, role) (baton_instance_role == 1 unless baton_instance_role offset 5s == 1)"
    " and on (instance_name) sum by (instance_name) (baton_instance_role offset 5s)"
)


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries` are pairs of expression and legend; `width` is in 24ths of a row."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    description: str = ""
    maximum: float | None = None


def quantiles(metric: str, labels: Sequence[str] = (), legend: str = "") -> tuple[tuple[str, str], ...]:
    """p50, p90 and p99 of a histogram, for every value of `labels`."""
    by = ", ".join(("le", *labels))
    return tuple(
        (f"histogram_quantile({q}, sum by ({by}) (rate({metric}_bucket[{RATE}])))", f"p{round(q * 100)}{legend}")
        for q in (0.5, 0.9, 0.99)
    )


PANELS = (
    Panel("Goodput", ((f"sum(rate(baton_good_requests_total[{RATE}]))", ""),), "reqps", "stat", 6, 4),
    Panel(
        "Attainment",
        ((f"sum(rate(baton_good_requests_total[{RATE}])) / sum(rate(baton_requests_total[{RATE}]))", ""),),
        "percentunit",
        "stat",
        6,
        4,
        "Share of the requests that end now which meet every SLO.",
    ),
    Panel("Requests ended", (("sum(baton_requests_total)", ""),), "short", "stat", 6, 4),
    Panel("Role changes", (("sum(baton_role_changes_total) or vector(0)", ""),), "short", "stat", 6, 4),
    Panel("Roles", ((NUMBERED_ROLE, "{{instance_name}}"),), kind="state-timeline", width=WIDTH),
    Panel(
        "Requests that end",
        (
            (f"sum(rate(baton_good_requests_total[{RATE}]))", "good"),
            (f"sum by (outcome) (rate(baton_requests_total[{RATE}]))", "{{outcome}}"),
        ),
        "reqps",
    ),
    Panel(
        "Planner: instances aimed at, and serving",
        (
            ("sum by (role) (baton_planner_target_instances)", "{{role}}, target"),
            ("sum by (role) (baton_instance_role)", "{{role}}"),
        ),
    ),
    Panel("TTFT", quantiles("baton_time_to_first_token_seconds"), "s", width=8),
    Panel("TPOT", quantiles("baton_time_per_output_token_seconds"), "s", width=8),
    Panel("ITL", quantiles("baton_inter_token_latency_seconds"), "s", width=8),
    Panel("Prompt tokens not yet computed, by instance", (("baton_queued_prompt_tokens", "{{instance_name}}"),)),
    Panel(
        "KV use, by instance",
        (("baton_kv_cache_usage_ratio", "{{instance_name}}"),),
        "percentunit",
        maximum=1,
    ),
    Panel(
        "Requests waiting and running, by role",
        (
            (f"sum by (role) (baton_num_requests_waiting {ROLE_OF})", "waiting, {{role}}"),
            (f"sum by (role) (baton_num_requests_running {ROLE_OF})", "running, {{role}}"),
        ),
    ),
    Panel("KV use, by role", ((f"avg by (role) (baton_kv_cache_usage_ratio {ROLE_OF})", "{{role}}"),), "percentunit"),
    Panel(
        "KV transfer time, modelled and measured",
        quantiles("baton_kv_transfer_seconds", ["kind"], " {{kind}}"),
        "s",
        description="A handoff takes the longer of what the link model says and what this host needs.",
    ),
    Panel(
        "KV moved",
        ((f"sum by (kind) (rate(baton_kv_transfer_bytes_total[{RATE}]))", "{{kind}}"),),
        "Bps",
        description="Really shipped is a share of what is modelled: live.kv_bytes_scale.",
    ),
    Panel(
        "Step lateness",
        quantiles("baton_step_lateness_seconds"),
        "s",
        description="Latencies of a run whose steps are late in proportion to their length are distorted.",
    ),
    Panel("Send lag", quantiles("baton_send_lag_seconds"), "s"),
)


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "uid": "baton",
        "title": "Baton",
        "tags": ["baton"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "5s",
        "time": {"from": "now-5m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "annotations": {"list": [_role_changes()]},
        "panels": list(_placed(PANELS)),
    }


def _role_changes() -> dict[str, Any]:
    return {
        "name": "Role changes",
        "enable": True,
        "datasource": SOURCE,
        "expr": ROLE_CHANGES,
        "step": "1s",
        "titleFormat": "{{instance_name}} becomes {{role}}",
        "tagKeys": "role",
        "iconColor": "#8c8c8c",
    }


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """Panels from left to right, a new row where one does not fit any more."""
    x = y = row_height = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > WIDTH:
            x, y, row_height = 0, y + row_height, 0
        yield _panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": panel.height})
        x, row_height = x + panel.width, max(row_height, panel.height)


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        defaults |= {"min": 0, "custom": {"fillOpacity": 5, "showPoints": "never"}}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if panel.kind == "state-timeline":
        defaults |= {"mappings": [{"type": "value", "options": _role_texts()}], "custom": {"fillOpacity": 80}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "gridPos": place,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": _overrides(panel)},
        "options": _OPTIONS[panel.kind],
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area"},
    "state-timeline": {"mergeValues": True, "showValue": "auto", "legend": {"showLegend": True}},
}


def _role_texts() -> dict[str, dict[str, str]]:
    """The numbers of the role timeline in words and colours."""
    texts = {}
    for number, role in enumerate(ROLES, start=1):
        texts[str(number)] = {"text": role, "color": ROLE_COLORS[role]}
        texts[str(number + DRAINS)] = {"text": f"{role}, drains", "color": "#8c8c8c"}
    return texts


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    """The colour of every role, and dashes for targets, where legends name roles."""
    roles = ROLES if any("{{role}}" in legend for _, legend in panel.queries) else ()
    overrides = [
        _override(f".*{role}.*", "color", {"mode": "fixed", "fixedColor": ROLE_COLORS[role]}) for role in roles
    ]
    if any("target" in legend or "waiting" in legend for _, legend in panel.queries):
        overrides.append(_override(".*target|waiting.*", "custom.lineStyle", {"fill": "dash", "dash": [8, 8]}))
    return overrides


def _override(pattern: str, what: str, value: dict[str, Any]) -> dict[str, Any]:
    return {
        "matcher": {"id": "byRegexp", "options": f"/{pattern}/"},
        "properties": [{"id": what, "value": value}],
    }


def dashboard_json() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    print(dashboard_json(), end="")
