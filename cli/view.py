"""`baton view`: a finished run in the browser, with a time slider."""

import argparse
import sys
import time
from pathlib import Path

from cluster.errors import ConfigError
from metrics.run_folder import read_story

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
