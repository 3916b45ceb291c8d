"""`baton view`: a finished run in the browser, with a time slider."""

import argparse
import sys
import time
from pathlib import Path

import orjson

from cluster.errors import ConfigError
from metrics.comparison_files import INDEX
from metrics.files import STORY
from metrics.story import SCHEMA, PlainStory

DESCRIPTION = "Show a run that simulate or replay has written with --out: roles, KV flows and latencies, with a slider."
EXAMPLES = """examples:
  baton view runs/demo
  baton view runs/demo --page demo.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN_DIR", help="what was given as --out")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--port", type=int, default=0, metavar="N", help="of 127.0.0.1 (default: any that is free)")
    where.add_argument("--page", metavar="FILE", help="write the page, which needs no server, and serve nothing")


def run(arguments: argparse.Namespace) -> int:
    from cli.page_server import PageServer
    from metrics.story_page import render_story

    page = render_story(read_story(arguments.folder))
    if arguments.page is not None:
        try:
            Path(arguments.page).write_bytes(page)
        except OSError as error:
            raise ConfigError(f"cannot write {arguments.page}: {error.strerror}; choose another file") from None
        print(f"Page: {arguments.page}")
        return 0
    with PageServer(lambda: page, port=arguments.port) as server:
        print(server.url, flush=True)
        print("Ctrl-C ends it", file=sys.stderr)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return 0


def read_story(folder: str | Path) -> PlainStory:
    """What a run's folder tells; raises ConfigError when it is none."""
    file = Path(folder, STORY)
    try:
        story = orjson.loads(file.read_bytes())
        found = story["schema"]
    except (OSError, ValueError, TypeError, KeyError):
        if Path(folder, INDEX).exists():
            raise ConfigError(f"{folder} holds a comparison; name the folder of one of its runs") from None
        raise ConfigError(
            f"{folder} holds no run: {STORY} is missing or damaged; name a folder given as --out"
        ) from None
    if found != SCHEMA:
        raise ConfigError(f"{file} has schema {found}, and this version reads {SCHEMA}; run the scenario again")
    plain: PlainStory = story
    return plain
