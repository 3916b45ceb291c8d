"""The metrics Baton exports: name, kind, help, labels and buckets, each defined here and nowhere else."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from threading import Lock
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.request import Status
from cluster.role import Role

# Bucket bounds as in vLLM, so that dashboards carry over.
TTFT_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
DELAY_S = (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


@dataclass(frozen=True, slots=True)
class LabelSpec:
    """`values` are all there can be; empty where they are known only when they come."""

    help: str
    values: tuple[str, ...] = ()


OUTCOMES = (Status.FINISHED, Status.FAILED, Status.REJECTED, Status.ABORTED)
LABELS = {
    "outcome": LabelSpec("How a request ended.", tuple(status.name.lower() for status in OUTCOMES)),
    "kind": LabelSpec("As the link model has it, or as it was on this host.", ("modelled", "measured")),
    "verdict": LabelSpec("Whether id, epoch and checksum were right.", ("verified", "refused")),
    "direction": LabelSpec("out: KV waits here to be pulled. in: it has room here and is on its way.", ("out", "in")),
    "instance_name": LabelSpec("As in the result files: instance-0, instance-1, ..."),
    "role": LabelSpec("What an instance does.", tuple(Role)),
    "from_role": LabelSpec("The role before a change.", tuple(Role)),
    "to_role": LabelSpec("The role after a change.", tuple(Role)),
    "cause": LabelSpec("The planner's word for why, such as prefill_queue or decode_kv."),
}


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """`buckets` are the upper bounds of a histogram in its unit, without +Inf."""

    name: str
    kind: str
    """counter (exposed with the suffix _total), gauge or histogram."""
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_SPECS = (
    MetricSpec("baton_requests", "counter", "Requests that ended, by outcome.", ("outcome",)),
    MetricSpec("baton_good_requests", "counter", "Requests that finished within every SLO."),
    MetricSpec("baton_prompt_tokens", "counter", "Prompt tokens of ended requests."),
    MetricSpec("baton_generation_tokens", "counter", "Output tokens of ended requests."),
    MetricSpec("baton_time_to_first_token_seconds", "histogram", "Arrival to first token.", (), TTFT_S),
    MetricSpec(
        "baton_time_per_output_token_seconds", "histogram", "(E2E - TTFT) / (output - 1) per request.", (), TOKEN_S
    ),
    MetricSpec("baton_inter_token_latency_seconds", "histogram", "Every gap between two tokens.", (), TOKEN_S),
    MetricSpec("baton_e2e_request_latency_seconds", "histogram", "Arrival to last token.", (), REQUEST_S),
    MetricSpec(
        "baton_kv_transfer_seconds",
        "histogram",
        "KV handoff, room reserved to KV in place: as modelled for the link, and as measured here.",
        ("kind",),
        DELAY_S,
    ),
    MetricSpec("baton_kv_transfer_bytes", "counter", "KV bytes handed over: modelled, and really shipped.", ("kind",)),
    MetricSpec("baton_kv_payloads", "counter", "KV payloads that arrived, by verdict.", ("verdict",)),
    MetricSpec("baton_num_requests_running", "gauge", "Requests that prefill or decode.", ("instance_name",)),
    MetricSpec(
        "baton_num_requests_waiting",
        "gauge",
        "Requests whose prompt has not started, and handoffs that wait for room.",
        ("instance_name",),
    ),
    MetricSpec(
        "baton_num_handoffs", "gauge", "KV handoffs that an instance has a part in.", ("instance_name", "direction")
    ),
    MetricSpec("baton_queued_prompt_tokens", "gauge", "Prompt tokens not yet computed.", ("instance_name",)),
    MetricSpec("baton_kv_cache_usage_ratio", "gauge", "Share of KV memory set aside, 0 to 1.", ("instance_name",)),
    MetricSpec("baton_instance_role", "gauge", "1 for the role an instance plays, else 0.", ("instance_name", "role")),
    MetricSpec("baton_instance_draining", "gauge", "1 while an instance changes its role.", ("instance_name",)),
    MetricSpec("baton_instance_epoch", "gauge", "Grows with every role change and restart.", ("instance_name",)),
    MetricSpec("baton_role_changes", "counter", "Committed role changes.", ("from_role", "to_role", "cause")),
    MetricSpec("baton_planner_ticks", "counter", "Planner decisions taken."),
    MetricSpec("baton_planner_target_instances", "gauge", "Instances the planner aims at.", ("role",)),
    MetricSpec(
        "baton_step_lateness_seconds", "histogram", "Wall time by which a step was completed late.", (), DELAY_S
    ),
    MetricSpec("baton_send_lag_seconds", "histogram", "Scheduled arrival to sent, in wall time.", (), DELAY_S),
)
SPECS = {spec.name: spec for spec in _SPECS}


class HistogramCounts:
    """Bucket counts and sum of one histogram series; cheap to fill, small to send."""

    __slots__ = ("counts", "total")

    def __init__(self, num_bounds: int) -> None:
        self.counts = [0] * (num_bounds + 1)
        self.total = 0.0

    def observe(self, bounds: tuple[float, ...], value: float, times: int = 1) -> None:
        self.counts[bisect_left(bounds, value)] += times
        self.total += value * times

    def merge(self, other: "HistogramCounts") -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class MetricStore(Collector):
    """Values of all metrics by label values. Counters and histograms only ever add.

    Those whose label values are known beforehand are exposed as 0 from the start: Prometheus sees no increase
    in a series whose first value is above 0.
    """

    def __init__(self) -> None:
        self._counters: dict[tuple[str, tuple[str, ...]], float] = {}
        self._gauges: dict[tuple[str, tuple[str, ...]], float] = {}
        self._histograms: dict[tuple[str, tuple[str, ...]], HistogramCounts] = {}
        self._lock = Lock()

    def __getstate__(self) -> tuple[object, object, object]:
        return (self._counters, self._gauges, self._histograms)

    def __setstate__(self, state: tuple[object, object, object]) -> None:
        self.__init__()  # type: ignore[misc]
        self._counters, self._gauges, self._histograms = state  # type: ignore[assignment]

    def add(self, name: str, amount: float = 1.0, *labels: str) -> None:
        key = (name, labels)
        with self._lock:
            self._counters[key] = self._counters.get(key, 0.0) + amount

    def set(self, name: str, value: float, *labels: str) -> None:
        with self._lock:
            self._gauges[name, labels] = value

    def observe(self, name: str, value: float, *labels: str, times: int = 1) -> None:
        """Count `times` observations of one value."""
        bounds = SPECS[name].buckets
        with self._lock:
            self._series(name, labels).observe(bounds, value, times)

    def observe_affine(self, name: str, first: float, slope: float, count: int, times: int) -> None:
        """Observe first + slope x j for j < count, each `times`; costs a step per bucket, not per value."""
        bounds = SPECS[name].buckets
        with self._lock:
            series = self._series(name, ())
            if slope <= 0:
                series.observe(bounds, first, count * times)
                return
            done = 0
            position = bisect_left(bounds, first)
            while done < count:
                inside = count if position == len(bounds) else min(count, int((bounds[position] - first) / slope) + 1)
                series.counts[position] += (inside - done) * times if inside > done else 0
                done = max(done, inside)
                position += 1
            series.total += times * count * (first + 0.5 * slope * (count - 1))

    def _series(self, name: str, labels: tuple[str, ...]) -> HistogramCounts:
        series = self._histograms.get((name, labels))
        if series is None:
            series = self._histograms[name, labels] = HistogramCounts(len(SPECS[name].buckets))
        return series

    def merge(self, other: "MetricStore") -> None:
        """Add the other's counters and histograms, and take over its gauges."""
        with self._lock:
            for key, amount in other._counters.items():
                self._counters[key] = self._counters.get(key, 0.0) + amount
            self._gauges.update(other._gauges)
            for (name, labels), series in other._histograms.items():
                self._series(name, labels).merge(series)

    def drop_gauges(self) -> None:
        """Forget all levels."""
        with self._lock:
            self._gauges.clear()

    def collect(self) -> Iterator[Metric]:
        """One family per metric of the table, with the series seen so far."""
        with self._lock:
            families = [self._family(spec) for spec in _SPECS]
        yield from families

    def _family(self, spec: MetricSpec) -> Metric:
        if spec.kind == "histogram":
            histogram = HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
            nothing = HistogramCounts(len(spec.buckets))
            for labels, series in _of(spec, self._histograms, nothing):
                histogram.add_metric(labels, _cumulative(spec.buckets, series.counts), series.total)
            return histogram
        family: CounterMetricFamily | GaugeMetricFamily
        if spec.kind == "counter":
            family = CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
            series_values = _of(spec, self._counters, 0.0)
        else:
            family = GaugeMetricFamily(spec.name, spec.help, labels=spec.labels)
            series_values = _of(spec, self._gauges)
        for labels, value in series_values:
            family.add_metric(labels, value)
        return family


Value = TypeVar("Value")


def _of(
    spec: MetricSpec, found: Mapping[tuple[str, tuple[str, ...]], Value], nothing: Value | None = None
) -> list[tuple[tuple[str, ...], Value]]:
    """Label values and value of every series of a metric; `nothing` for those foreseen but not seen."""
    series = {}
    if nothing is not None:
        series = dict.fromkeys(product(*(LABELS[label].values for label in spec.labels)), nothing)
    series |= {labels: value for (name, labels), value in found.items() if name == spec.name}
    return sorted(series.items(), key=lambda item: item[0])


def _cumulative(bounds: tuple[float, ...], counts: list[int]) -> list[tuple[str, float]]:
    total = 0
    buckets = []
    for bound, count in zip([*map(str, map(float, bounds)), "+Inf"], counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets
