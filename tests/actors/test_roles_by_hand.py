"""`baton roles` on a live run: an operator's word holds, whatever becomes of the router, until it is taken back."""

import asyncio
from typing import Any

import pytest

from actors.replay import replay
from actors.supervisor import Supervisor
from cli.main import build_parser
from cluster.errors import UserError
from cluster.request import Status
from metrics.records import Column
from scenario.loading import load_scenario
from scenario.requests import requests_of

pytestmark = pytest.mark.ray

SCENARIO = {
    "workload.phases": [
        {
            "name": "steady",
            "duration_s": 12,
            "request_rate": 4,
            "prompt": {"mean": 400, "maximum": 800},
            "output": {"mean": 40, "maximum": 80},
        }
    ],
    "planner.policy": "static",
    "planner.interval_s": 0.25,
    "live.kv_bytes_scale": 0.001,
    "live.metrics_port": 0,
}


def test_roles_by_hand(ray_address: str, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = load_scenario("demo", SCENARIO)
    trace, too_long, _ = requests_of(scenario)
    printed: list[str] = []

    async def operate(supervisor: Supervisor) -> None:
        async def wait_for(condition: Any) -> None:
            while not condition(await supervisor.router.roles.remote()):
                await asyncio.sleep(0.1)

        async def do(*words: str) -> None:
            arguments = build_parser("roles").parse_args(["roles", *words])
            try:
                await asyncio.to_thread(arguments.run, arguments)
                printed.append(capsys.readouterr().out)
            except UserError as error:
                printed.append(str(error))

        await do("set", "instance-2=prefill")
        await wait_for(lambda seen: seen.instances[2].role == "prefill")
        await do("set", "instance-3=prefill")
        before = supervisor.router
        before.suffer.remote()
        while supervisor.router is before:
            await asyncio.sleep(0.1)
        await do("show")
        await do("set", "--prefill", "1", "--decode", "3")
        await wait_for(lambda seen: [view.role for view in seen.instances].count("decode") == 3)
        await do("release")

    result = replay(
        scenario,
        trace,
        too_long,
        address=ray_address,
        disturb=operate,
    )
    _, refused, shown, split, released = printed
    assert refused == ("that would leave 0 decode instances, and planner.min_decode is 1; leave one more in its role")
    assert [line.split() for line in shown.splitlines() if "instance-2" in line] == [
        ["instance-2", "prefill", "serving", "prefill"]
    ]
    assert split.count("decode") >= 3
    assert all(len(line.split()) == 3 for line in released.splitlines() if "instance-" in line)
    assert (result.records[:, Column.STATUS] == Status.FINISHED).all()
    assert len(result.records) == result.num_requests
    assert {change.reason for change in result.role_changes} == {"set by hand"}
