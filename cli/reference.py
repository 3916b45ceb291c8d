"""The reference pages: `python -m cli.reference docs/reference` writes all that are made from code."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from baton.reference import python_page
from cli.main import COMMANDS, build_parser
from metrics.reference import metrics_page
from scenario.reference import configuration_page

_INTRODUCTION = """# Command line

`baton COMMAND --help` prints what is below. Progress goes to stderr, results to stdout. Exit codes: 0 done, 1 something
is wrong with the input, 2 the answer is no (a study's claim does not hold, no rate passes) or a flag is unknown, 3 a
run stalled, 4 a worker failed, 130 interrupted.
"""
_WIDTH = 100


def command_line_page() -> str:
    """What every command and its actions print as help."""
    sections = [_section("baton", build_parser())]
    for command in COMMANDS:
        parser = _children(build_parser(command))[command]
        sections.append(_section(f"baton {command}", parser))
        sections += [_section(f"baton {command} {name}", action) for name, action in _children(parser).items()]
    return "\n".join((_INTRODUCTION, *sections))


def _section(title: str, parser: argparse.ArgumentParser) -> str:
    formatter: Any = parser.formatter_class
    parser.formatter_class = partial(formatter, width=_WIDTH)
    return f"## {title}\n\n```text\n{parser.format_help().rstrip()}\n```\n"


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a command's subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


PAGES = {
    "command_line.md": command_line_page,
    "configuration.md": configuration_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
}


def main(folder: str) -> None:
    """Write the pages into a folder."""
    for name, page in PAGES.items():
        Path(folder, name).write_text(page())


if __name__ == "__main__":
    main(sys.argv[1])
