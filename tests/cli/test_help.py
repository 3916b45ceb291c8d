"""Help has examples that are right, and colours go to terminals only."""

import os
import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from actors.messages import Snapshot
from cli.live_view import Course, Screen
from cli.main import COMMANDS, build_parser
from scenario.loading import load_scenario

ROOT = Path(__file__).parents[2]
SHORT = [sys.executable, "-m", "cli.main", "simulate", "steady-8b", "--num-requests", "20"]
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples_that_parse(command: str) -> None:
    text = build_parser(command)._subparsers._group_actions[0].choices[command].format_help()
    examples = re.findall(r"^  (?:.*&& (?:\w+=\w+ )*)?(baton .*)$", text.partition("examples:")[2], re.MULTILINE)
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" > ")[0])[1:]
        build_parser(words[0]).parse_args(words)


def test_no_colour_where_there_is_no_terminal() -> None:
    done = subprocess.run(SHORT, cwd=ROOT, capture_output=True)
    assert done.stdout.startswith(b"Serving summary: steady-8b")
    assert not COLOUR.search(done.stdout + done.stderr)


def test_colour_on_a_terminal() -> None:
    ours, theirs = os.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"}
    with subprocess.Popen(SHORT, cwd=ROOT, env=environment, stdout=theirs, stderr=subprocess.DEVNULL):
        os.close(theirs)
        assert COLOUR.match(os.read(ours, 100))
    os.close(ours)


@pytest.mark.parametrize(
    ("now_s", "left"), [(0.0, ", 0:05:00 left"), (100.0, ", 0:01:40 left"), (150.0, ""), (160.0, "")]
)
def test_the_time_left_is_wall_time(now_s: float, left: str) -> None:
    snapshot = Snapshot(now_s, 10, 4, 3, (), (), {})
    told = Course(num_requests=40, last_arrival_s=150.0, time_scale=2.0).told(snapshot)
    assert told == f"4/40 ended, 75% good, goodput {3 / now_s if now_s else 0:.1f} req/s{left}"


def test_a_screen_shows_the_time_left() -> None:
    console = Console(file=StringIO(), width=120, color_system=None)
    with Live(console=console, transient=False, auto_refresh=False) as live:
        Screen(load_scenario("demo"), Course(40, 150.0, 1.0), live).show(
            Snapshot(30.0, 10, 4, 3, (), ("x becomes y",), {})
        )
        live.refresh()
    shown = console.file.getvalue()
    assert "30.0 s   4/40 ended, 75% good, goodput 0.1 req/s, 0:02:00 left" in shown
    assert "━" * 8 in shown
    assert "x becomes y" in shown
