"""A whole replay: deploy, play the trace, watch until the last request has ended, collect the results."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from actors.clock import Clock
from actors.deployment import Deployment, connected, deploy
from actors.messages import InstanceHistory, RouterHistory, Snapshot
from actors.player import Player
from cluster.errors import InvariantError, StalledError
from metrics.records import Column
from metrics.run import RunResult, starved_notice
from metrics.stats import Stats
from scenario.build import instance_names
from scenario.loading import to_plain
from scenario.spec import Scenario
from workload.trace import Trace

START_DELAY_S = 1.0
"""Wall seconds between the last actor being ready and scenario second 0."""
WATCH_INTERVAL_S = 0.5
LATE_SHARE = 0.5
"""A run whose p99 lateness exceeds this share of its median iteration says so."""
STALL_TIMEOUT_S = 120.0
"""Wall seconds without any request ending, after the last was sent, until the run is given up."""

Watcher = Callable[[Snapshot], None]


def replay(
    scenario: Scenario,
    trace: Trace,
    too_long: npt.NDArray[np.bool_],
    *,
    address: str | None,
    on_start: Callable[[str], None],
    watch: Watcher,
) -> RunResult:
    """Run a scenario on Ray. `on_start` gets the metrics URL, `watch` a snapshot twice a second.

    Raises ConfigError when Ray or the metrics port cannot be had, StalledError when requests stop ending.
    """
    with connected(address):
        deployment = deploy(scenario)
        try:
            on_start(deployment.metrics_url)
            return asyncio.run(_run(scenario, trace, too_long, deployment, watch))
        finally:
            deployment.close()


async def _run(
    scenario: Scenario, trace: Trace, too_long: npt.NDArray[np.bool_], deployment: Deployment, watch: Watcher
) -> RunResult:
    router, exporter, instances = deployment.router, deployment.exporter, deployment.instances
    wall, cpu = time.perf_counter(), time.process_time()
    clock = Clock(time.time() + START_DELAY_S, scenario.live.time_scale)
    await router.start.remote(clock, instances, exporter)
    await asyncio.gather(*(one.start.remote(clock, router, exporter, instances) for one in instances.values()))
    await deployment.planner.start.remote(clock, router, exporter)

    player = Player(trace, too_long, clock, router, exporter)
    playing = asyncio.create_task(player.play())
    try:
        await _watch_until_done(router, len(trace), watch, playing)
    finally:
        playing.cancel()
    planner_calls = await deployment.planner.finish.remote()
    histories = list(await asyncio.gather(*(one.finish.remote() for one in instances.values())))
    book = await router.finish.remote()
    watch(await router.snapshot.remote())
    calls = player.calls.count + planner_calls + book.num_calls + sum(history.num_calls for history in histories)
    return _result(
        scenario,
        trace,
        histories,
        book,
        send_lag_s=player.send_lag_s,
        num_calls=calls,
        cpu_s=time.process_time() - cpu,
        wall_s=time.perf_counter() - wall,
    )


async def _watch_until_done(router: Any, total: int, watch: Watcher, playing: "asyncio.Task[None]") -> None:
    last_ended, last_progress = -1, time.monotonic()
    while True:
        snapshot = await router.snapshot.remote()
        watch(snapshot)
        if playing.done():
            playing.result()
        if snapshot.num_ended >= total:
            return
        if snapshot.num_ended != last_ended or snapshot.num_sent < total:
            last_ended, last_progress = snapshot.num_ended, time.monotonic()
        if time.monotonic() - last_progress > STALL_TIMEOUT_S:
            stuck = await router.unfinished.remote()
            named = ", ".join(str(request.request_id) for request in stuck[:10])
            raise StalledError(
                f"{total - snapshot.num_ended} requests have not ended and none has for {STALL_TIMEOUT_S:.0f} s; "
                f"among them: {named}"
            )
        await asyncio.sleep(WATCH_INTERVAL_S)


def _result(
    scenario: Scenario,
    trace: Trace,
    histories: list[InstanceHistory],
    book: RouterHistory,
    *,
    send_lag_s: npt.NDArray[np.float64],
    num_calls: int,
    cpu_s: float,
    wall_s: float,
) -> RunResult:
    for name, history in zip(instance_names(scenario), histories, strict=True):
        if history.kv_used_tokens or history.kv_left_bytes:
            raise InvariantError(
                f"{name} ended with {history.kv_used_tokens} KV tokens and {history.kv_left_bytes} real bytes in use"
            )
    lateness_s = np.concatenate([history.lateness_s for history in histories])
    steps_s = np.concatenate(
        [(log[:, 1] - log[:, 0]) / log[:, 2] for history in histories for log in history.step_logs if len(log)]
    )
    transfers = [times for history in histories for times in history.transfers]
    starved = sum(history.starved_steps for history in histories)
    notices = [starved_notice(starved)] if starved else []
    late, step = Stats.of(lateness_s), Stats.of(steps_s * scenario.live.time_scale)
    if late.p99 is not None and step.p50 is not None and late.p99 > LATE_SHARE * step.p50:
        notices.append(
            f"this host kept up badly: steps of {step.p50 * 1e3:.1f} ms wall time were up to {late.p99 * 1e3:.1f} ms "
            f"late (p99), so latencies are distorted; raise --time-scale (now {scenario.live.time_scale:g})"
        )
    return RunResult(
        driver="replay",
        scenario=to_plain(scenario),
        num_requests=len(trace),
        duration_s=float(np.nanmax(book.records[:, Column.FINISHED_S], initial=0.0)),
        instance_names=instance_names(scenario),
        num_gpus=scenario.num_gpus,
        running_costs=[scenario.hardware_of(role).running_cost() for role in scenario.roles],
        records=book.records,
        step_logs=[history.step_logs for history in histories],
        extra_gaps_s=[gap for history in histories for gap in history.extra_gaps_s],
        role_spans=[replace(span, instance=index) for index, history in enumerate(histories) for span in history.spans],
        role_changes=sorted(
            (change for history in histories for change in history.changes), key=lambda change: change.decided_s
        ),
        samples=[history.samples for history in histories],
        kv_capacity_tokens=[history.kv_capacity_tokens for history in histories],
        kv_bytes_moved=sum(times.modelled_bytes for times in transfers),
        num_transfers=len(transfers),
        starved_steps=starved,
        cpu_s=cpu_s,
        wall_s=wall_s,
        notices=notices,
        live={
            "time_scale": scenario.live.time_scale,
            "lateness_ms": _milliseconds(lateness_s),
            "send_lag_ms": _milliseconds(send_lag_s),
            "kv_real_bytes": sum(times.real_bytes for times in transfers),
            "kv_payloads_verified": sum(times.real_bytes > 0 for times in transfers),
            "kv_payloads_refused": sum(history.num_refused for history in histories),
            "transfer_modelled_ms": _milliseconds(np.array([times.modelled_s for times in transfers])),
            "transfer_measured_ms": _milliseconds(np.array([times.measured_s for times in transfers])),
            "messages_refused": book.num_refused,
            "ray_calls": num_calls,
            "ray_calls_per_request": round(num_calls / len(trace), 2),
        },
    )


def _milliseconds(seconds: npt.NDArray[np.float64]) -> dict[str, float | None]:
    stats = Stats.of(seconds)
    return {
        name: None if value is None else round(value * 1e3, 3)
        for name, value in (("p50", stats.p50), ("p90", stats.p90), ("p99", stats.p99), ("max", stats.max))
    }
