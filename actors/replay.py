"""A whole replay: deploy, play the trace, watch until the last request has ended, collect the results."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from actors.clock import Clock
from actors.deployment import Deployment, connected
from actors.messages import Farewell, RouterHistory, Snapshot
from actors.player import Player
from actors.supervisor import Recovery, Supervisor, ask
from cluster.errors import InvariantError, StalledError
from compute.proof import wrong_texts
from metrics.records import Column
from metrics.run import RunResult, starved_notice, stopped_notice
from metrics.samples import until
from metrics.stats import Stats
from planner.tools import Tools
from scenario.build import instance_names, kv_capacity, planner_tools
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
STOP_TIMEOUT_S = 10.0
"""Wall seconds that requests under way have to end in when a run is stopped; the others are cancelled."""

Watcher = Callable[[Snapshot], None]
Disturb = Callable[[Supervisor], Coroutine[Any, Any, None]]


def replay(
    scenario: Scenario,
    trace: Trace,
    too_long: npt.NDArray[np.bool_],
    *,
    address: str | None,
    on_start: Callable[[str], None] = lambda _: None,
    watch: Watcher = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
    tools: Tools | None = None,
    disturb: Disturb | None = None,
) -> RunResult:
    """Run a scenario on Ray. `on_start` gets the metrics URL, `watch` a snapshot twice a second.

    stopped: asked twice a second; once it answers True nothing more is sent, requests under way have a few seconds
    to end and the others are cancelled. tools: what the planner's policies may use, if they need any that simulate.
    disturb: a coroutine function that runs along and injects faults. Raises
    ConfigError when Ray or the metrics port cannot be had, StalledError when requests stop ending.
    """
    with connected(address):
        supervisor = Supervisor(
            scenario,
            Deployment(scenario, tools or planner_tools(scenario)),
            clock_of=lambda: Clock(time.time() + START_DELAY_S, scenario.live.time_scale),
        )
        run = run_on(
            supervisor, scenario, trace, too_long, on_start=on_start, watch=watch, stopped=stopped, disturb=disturb
        )
        return asyncio.run(run)


async def run_on(
    supervisor: Supervisor,
    scenario: Scenario,
    trace: Trace,
    too_long: npt.NDArray[np.bool_],
    *,
    on_start: Callable[[str], None] = lambda _: None,
    watch: Watcher = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
    disturb: Disturb | None = None,
) -> RunResult:
    """See `replay`; the supervisor creates the actors, and ends them whatever happens."""
    try:
        on_start(await supervisor.deploy())
        wall, cpu = time.perf_counter(), time.process_time()
        await supervisor.start()
        player = Player(
            trace,
            too_long,
            supervisor.clock,
            router=lambda: supervisor.router,
            exporter=lambda: supervisor.exporter,
        )
        supervisor.on_new_router = player.send_again
        player.calls.spawn(player.play())
        faults = asyncio.ensure_future(disturb(supervisor) if disturb is not None else asyncio.sleep(0))
        await _watch_until_done(supervisor, player, watch, stopped, faults)
        await supervisor.settle()
        farewells = {index: await ask(one.finish) for index, one in sorted(supervisor.instances.items())}
        planner_words, planner_notices, planner_calls, planner_cpu_s = await ask(supervisor.planner.finish)
        book: RouterHistory = await ask(supervisor.router.finish)
        watch(await supervisor.snapshot())
        usage = Usage(
            num_calls=player.calls.count
            + planner_calls
            + book.num_calls
            + sum(farewell.num_calls for farewell in farewells.values()),
            driver_cpu_s=time.process_time() - cpu,
            actors_cpu_s=planner_cpu_s + book.cpu_s + sum(farewell.cpu_s for farewell in farewells.values()),
            wall_s=time.perf_counter() - wall,
        )
        result = _result(scenario, player, farewells, book, usage, supervisor.recoveries)
        result.planner_words = planner_words
        result.notices += planner_notices
        if scenario.live.compute == "tiny":
            result.live |= _proof(scenario, trace, supervisor.texts)
        if player.stopped:
            result.notices.insert(0, stopped_notice(result.duration_s, player.num_sent, len(trace)))
        return result
    finally:
        await supervisor.close()


async def _watch_until_done(
    supervisor: Supervisor,
    player: Player,
    watch: Watcher,
    stopped: Callable[[], bool],
    faults: "asyncio.Future[None]",
) -> None:
    """Returns when the last request has ended and the last fault on purpose is over; raises what went wrong with it."""
    last_ended, last_progress = -1, time.monotonic()
    cancel_at = float("inf")
    while True:
        if stopped() and not player.stopped:
            player.stop()
            if not player.num_sent:
                raise KeyboardInterrupt  # there is nothing to tell about
            cancel_at = time.monotonic() + STOP_TIMEOUT_S
        snapshot = await supervisor.snapshot()
        watch(snapshot)
        if player.stopped:
            faults.cancel()
        elif faults.done():
            faults.result()
        if snapshot.num_ended >= player.num_due and (faults.done() or player.stopped):
            return
        if snapshot.num_ended != last_ended or snapshot.num_sent < player.num_due or not faults.done():
            last_ended, last_progress = snapshot.num_ended, time.monotonic()
        if time.monotonic() - last_progress > STALL_TIMEOUT_S:
            stuck = await ask(supervisor.router.unfinished)
            named = ", ".join(f"{request.request_id} ({request.status.name})" for request in stuck[:10])
            raise StalledError(
                f"{player.num_due - snapshot.num_ended} requests have not ended and none has for "
                f"{STALL_TIMEOUT_S:.0f} s; among them: {named}"
            )
        if time.monotonic() > cancel_at:
            cancel_at = float("inf")
            for request in await ask(supervisor.router.unfinished):
                await ask(supervisor.router.cancel, request.request_id)
        await asyncio.sleep(WATCH_INTERVAL_S)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run took of the host."""

    num_calls: int
    driver_cpu_s: float
    actors_cpu_s: float
    wall_s: float


def _result(
    scenario: Scenario,
    player: Player,
    farewells: dict[int, Farewell],
    book: RouterHistory,
    usage: Usage,
    recoveries: list[Recovery],
) -> RunResult:
    names = instance_names(scenario)
    for index, farewell in farewells.items():
        if farewell.kv_used_tokens or farewell.kv_left_bytes:
            raise InvariantError(
                f"{names[index]} ended with {farewell.kv_used_tokens} KV tokens and "
                f"{farewell.kv_left_bytes} real bytes in use"
            )
    starved = sum(farewell.starved_steps for farewell in farewells.values())
    notices = [starved_notice(starved)] if starved else []
    notices += _late_notices(scenario, book)
    transfers = book.transfers
    duration_s = float(np.nanmax(book.records[:, Column.FINISHED_S], initial=0.0))
    num_requests = player.num_sent
    return RunResult(
        driver="replay",
        scenario=to_plain(scenario),
        num_requests=num_requests,
        duration_s=duration_s,
        instance_names=names,
        num_gpus=scenario.num_gpus,
        running_costs=[scenario.hardware_of(role).running_cost() for role in scenario.roles],
        records=book.records,
        step_logs=book.step_rows,
        extra_gaps_s=[gap for farewell in farewells.values() for gap in farewell.extra_gaps_s],
        role_spans=book.spans,
        role_changes=book.changes,
        samples=[until(samples, duration_s) for samples in book.samples],
        kv_capacity_tokens=[kv_capacity(scenario, role) for role in scenario.roles],
        kv_bytes_moved=sum(times.modelled_bytes for times in transfers),
        num_transfers=len(transfers),
        num_migrations=sum(times.migrates for times in transfers),
        kv_bytes_migrated=sum(times.modelled_bytes for times in transfers if times.migrates),
        starved_steps=starved,
        cpu_s=usage.driver_cpu_s,
        wall_s=usage.wall_s,
        notices=notices,
        live={
            "time_scale": scenario.live.time_scale,
            "lateness_ms": _milliseconds(book.lateness_s),
            "send_lag_ms": _milliseconds(player.send_lag_s[:num_requests]),
            "kv_real_bytes": sum(times.real_bytes for times in transfers),
            "kv_payloads_verified": sum(times.real_bytes > 0 for times in transfers),
            "kv_payloads_refused": sum(farewell.num_refused for farewell in farewells.values()),
            "transfer_modelled_ms": _milliseconds(np.array([times.modelled_s for times in transfers])),
            "transfer_measured_ms": _milliseconds(np.array([times.measured_s for times in transfers])),
            "role_control_ms": _milliseconds(np.array(book.control_s) * scenario.live.time_scale),
            "messages_refused": book.num_refused,
            "messages_ignored": book.num_ignored,
            "ray_calls": usage.num_calls,
            "ray_calls_per_request": round(usage.num_calls / num_requests, 2),
            "actors_cpu_s": round(usage.actors_cpu_s, 2),
            "cpu_s_per_1k_requests": round((usage.actors_cpu_s + usage.driver_cpu_s) / num_requests * 1e3, 2),
            "requests_disturbed": book.toll.disturbed,
            "requests_resumed": book.toll.resumed,
            "requests_failed": book.toll.failed,
            "recomputed_tokens": book.toll.recomputed_tokens,
            "recoveries": [asdict(recovery) for recovery in recoveries],
        },
    )


def _proof(scenario: Scenario, trace: Trace, texts: dict[int, bytes]) -> dict[str, int]:
    """Check every text against that of a single process; raises InvariantError when one differs."""
    wrong = wrong_texts(texts, trace.prompt_tokens.tolist(), scenario.seed)
    if wrong:
        raise InvariantError(
            f"{len(wrong)} of {len(texts)} texts differ from a single process's, first of request {wrong[0]}"
        )
    return {"texts_checked": len(texts), "tokens_checked": sum(map(len, texts.values()))}


def _late_notices(scenario: Scenario, book: RouterHistory) -> list[str]:
    """A run whose steps were late in proportion to their length says so."""
    logs = [log for logs in book.step_rows for log in logs]
    steps_s = np.concatenate([np.empty(0), *((log[:, 1] - log[:, 0]) / log[:, 2] for log in logs)])
    late, step = Stats.of(book.lateness_s), Stats.of(steps_s * scenario.live.time_scale)
    if late.p99 is None or step.p50 is None or late.p99 <= LATE_SHARE * step.p50:
        return []
    return [
        f"this host kept up badly: steps of {step.p50 * 1e3:.1f} ms wall time were up to {late.p99 * 1e3:.1f} ms "
        f"late (p99), so latencies are distorted; raise --time-scale (now {scenario.live.time_scale:g})"
    ]


def _milliseconds(seconds: npt.NDArray[np.float64]) -> dict[str, float | None]:
    stats = Stats.of(seconds)
    return {
        name: None if value is None else round(value * 1e3, 3)
        for name, value in (("p50", stats.p50), ("p90", stats.p90), ("p99", stats.p99), ("max", stats.max))
    }
