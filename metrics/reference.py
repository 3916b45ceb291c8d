"""The reference page of the metrics, in Markdown, from the table that defines them."""

from collections.abc import Sequence

from metrics.prometheus import LABELS, SPECS, MetricSpec

_INTRODUCTION = """# Metrics

A live run serves these on one port, `http://127.0.0.1:9400/metrics` unless `live.metrics_host` and
`live.metrics_port` say otherwise. Units are in the names: seconds of the scenario (wall seconds divided by
`live.time_scale`; lateness and send lag are wall seconds), bytes, tokens, and ratios from 0 to 1. Rates that
Prometheus computes are per wall second: multiply them by `live.time_scale`.

Instances keep their series when their role changes: a role is a series of its own that is 1 or 0, never a label of
another metric. The levels of an instance that has died disappear, while what it counted stays counted.
"""


def metrics_page() -> str:
    """Every metric, label and bucket bound."""
    metrics = [(_exposed(spec), spec.kind, _labels(spec), spec.help) for spec in SPECS.values()]
    labels = [
        (f"`{name}`", label.help, ", ".join(f"`{value}`" for value in label.values)) for name, label in LABELS.items()
    ]
    by_bounds: dict[tuple[float, ...], list[str]] = {}
    for spec in SPECS.values():
        if spec.buckets:
            by_bounds.setdefault(spec.buckets, []).append(f"`{spec.name}`")
    buckets = [(", ".join(names), ", ".join(f"{bound:g}" for bound in bounds)) for bounds, names in by_bounds.items()]
    return "\n".join(
        (
            _INTRODUCTION,
            _table(("metric", "kind", "labels", "meaning"), metrics),
            "A histogram `X` is exposed as `X_bucket`, `X_sum` and `X_count`.\n",
            "## Labels\n",
            _table(("label", "meaning", "values"), labels),
            "## Buckets\n",
            "Upper bounds in seconds; each histogram also has `+Inf`. Those of latencies are vLLM's, so that",
            "dashboards carry over.\n",
            _table(("histograms", "bounds"), buckets),
        )
    )


def _exposed(spec: MetricSpec) -> str:
    return f"`{spec.name}{'_total' if spec.kind == 'counter' else ''}`"


def _labels(spec: MetricSpec) -> str:
    return ", ".join(f"`{label}`" for label in spec.labels)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
