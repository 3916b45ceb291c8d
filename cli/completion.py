"""`baton completion`: a script for the shell that completes commands, flags, scenarios and folders with Tab."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab

from scenario.catalog import names

SHELLS = ("bash", "zsh", "fish")
DESCRIPTION = "Print a script with which the shell completes commands, flags, scenarios, files and folders."
EXAMPLES = """examples:
  baton completion bash > ~/.local/share/bash-completion/completions/baton
  baton completion zsh > ~/.zfunc/_baton
  baton completion fish > ~/.config/fish/completions/baton.fish
"""
_WHAT = {"SCENARIO": "scenario", "RUN_DIR": "folder", "DIR": "folder", "FILE": "file", "CONFIG_JSON": "file"}
"""What is completed for a metavar."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(arguments: argparse.Namespace) -> int:
    from cli.main import COMMANDS, build_parser

    parser = build_parser(*COMMANDS)
    scenarios = " ".join(names("scenarios", Path.cwd()))
    completers = {
        "folder": shtab.DIRECTORY,
        "file": shtab.FILE,
        "scenario": shtab.FILE | {"bash": "_baton_scenarios", "zsh": "_baton_scenarios"},
    }
    for action in _actions(parser):
        what = _WHAT.get(str(action.metavar))
        if what is not None:
            action.complete = completers[what]  # type: ignore[attr-defined]
    preamble = {
        "bash": f'_baton_scenarios() {{ compgen -W "{scenarios}" -- "$1"; _shtab_compgen_files "$1"; }}',
        "zsh": f'_baton_scenarios() {{ _alternative "scenarios:scenario:({scenarios})" "files:file:_files"; }}',
    }
    print(shtab.complete(parser, arguments.shell, preamble=preamble.get(arguments.shell, "")))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Those of a parser and of the commands below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _actions(child)
