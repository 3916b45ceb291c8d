"""Every command and every piece of Python in the README and the documentation runs as it is written."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"^\$ (baton .*)$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SLOW = ("baton replay demo", "baton view runs/demo")
"""Commands that take minutes, or need what those write: they run with `pytest -m slow`."""


def commands() -> list[object]:
    """Every command once, in the order in which a reader meets them."""
    found = dict.fromkeys(command for page in PAGES for command in COMMAND.findall(page.read_text()))
    return [
        pytest.param(command, id=command, marks=[pytest.mark.slow] if command.startswith(SLOW) else [])
        for command in found
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the checkout to relative paths, but keeps what is written.

    Its scenarios are the bundled ones, except that live runs take any free port.
    """
    folder = tmp_path_factory.mktemp("pages")
    (folder / "docs").symlink_to(ROOT / "docs")
    scenarios = folder / "configs/scenarios"
    scenarios.mkdir(parents=True)
    for file in (ROOT / "configs/scenarios").glob("*.yaml"):
        scenario = yaml.safe_load(file.read_text())
        (scenarios / file.name).write_text(yaml.safe_dump({**scenario, "live": {"metrics_port": 0}}, sort_keys=False))
    return folder


def run(words: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", commands())
def test_command(command: str, folder: Path) -> None:
    words = shlex.split(command)
    if "--prometheus" in words and shutil.which("prometheus") is None:
        words.remove("--prometheus")  # what follows needs the run
    if words[1] == "view" and "--page" not in words:
        assert served(words, folder).startswith(b"<!doctype html>")
    else:
        assert run(["-m", "cli.main", *words[1:]], folder).strip()


def served(words: list[str], folder: Path) -> bytes:
    """What is at the address that a command prints, until a Ctrl-C ends it."""
    program = [sys.executable, "-m", "cli.main", *words[1:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(program, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        with urlopen(process.stdout.readline().strip(), timeout=30) as response:
            page = response.read()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
    return page


@pytest.mark.parametrize(
    "snippet",
    [
        pytest.param(snippet, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, snippet in enumerate(PYTHON.findall(page.read_text()))
    ],
)
def test_snippet(snippet: str, folder: Path) -> None:
    (folder / "snippet.py").write_text(snippet)
    assert run(["snippet.py"], folder).strip()


def test_a_page_shows_its_example_as_it_is() -> None:
    example = (ROOT / "docs/examples/wait_policy.py").read_text()
    assert f"```py\n{example}```" in (ROOT / "docs/how-to/own_policy.md").read_text()


def test_there_are_commands() -> None:
    assert len(COMMAND.findall(README.read_text())) >= 8
    assert len(commands()) >= 25


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README.read_text(), re.MULTILINE))
def test_make_target_exists(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []
