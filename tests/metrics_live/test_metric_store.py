"""What is exposed: zeros before the first event, sums over senders, levels of the living only."""

import asyncio

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from actors.exporter import ExporterActor
from metrics.prometheus import SPECS, MetricStore

GAP = "baton_inter_token_latency_seconds"
TOKENS = "baton_generation_tokens"


def series(collector: Collector) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by label values, by sample name."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    family: Metric
    for family in collector.collect():
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_sums_begin_at_zero_and_levels_not_at_all() -> None:
    found = series(MetricStore())
    assert found["baton_good_requests_total"] == {(): 0}
    assert found["baton_requests_total"] == {("aborted",): 0, ("failed",): 0, ("finished",): 0, ("rejected",): 0}
    assert found["baton_kv_transfer_seconds_count"] == {("measured",): 0, ("modelled",): 0}
    assert found["baton_time_to_first_token_seconds_bucket"][("+Inf",)] == 0
    assert not {name for name, spec in SPECS.items() if spec.kind == "gauge"} & set(found)
    assert "baton_role_changes_total" not in found


def test_death_keeps_sums_and_drops_levels() -> None:
    """The second incarnation of instance-0 counts on where the first one stopped."""
    exporter = ExporterActor("127.0.0.1", 0)
    first, second, other = MetricStore(), MetricStore(), MetricStore()
    for store, name, tokens, role in ((first, "instance-0", 10, "decode"), (other, "instance-1", 5, "prefill")):
        store.add(TOKENS, tokens)
        store.set("baton_instance_role", 1, name, role)
        store.set("baton_kv_cache_usage_ratio", 0.5, name)

    async def live_and_die() -> None:
        await exporter.put("instance-0/0", first)
        await exporter.put("instance-1/0", other)
        await exporter.mourn("instance-0/0")

    asyncio.run(live_and_die())
    found = series(exporter)
    assert found[f"{TOKENS}_total"] == {(): 15}
    assert found["baton_kv_cache_usage_ratio"] == {("instance-1",): 0.5}
    assert found["baton_instance_role"] == {("instance-1", "prefill"): 1}

    second.add(TOKENS, 3)
    second.set("baton_kv_cache_usage_ratio", 0.1, "instance-0")
    asyncio.run(exporter.put("instance-0/2", second))
    found = series(exporter)
    assert found[f"{TOKENS}_total"] == {(): 18}
    assert found["baton_kv_cache_usage_ratio"] == {("instance-0",): 0.1, ("instance-1",): 0.5}


@given(
    first=st.floats(0.001, 0.2),
    slope=st.one_of(st.just(0.0), st.floats(1e-9, 0.01)),
    count=st.integers(1, 300),
    times=st.integers(1, 5),
)
def test_a_run_of_gaps_is_counted_as_its_gaps(first: float, slope: float, count: int, times: int) -> None:
    values = [first + slope * index for index in range(count)]
    assume(all(abs(value - bound) > 1e-9 for value in values for bound in SPECS[GAP].buckets))
    run, single = MetricStore(), MetricStore()
    run.observe_affine(GAP, first, slope, count, times)
    for value in values:
        single.observe(GAP, value, times=times)
    assert series(run)[f"{GAP}_bucket"] == series(single)[f"{GAP}_bucket"]
    assert series(run)[f"{GAP}_sum"][()] == pytest.approx(series(single)[f"{GAP}_sum"][()])
