"""`baton roles`: who plays which role in a run that goes on, and setting roles by hand."""

import argparse
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from cluster.role import Role
from cluster.suggestion import did_you_mean

if TYPE_CHECKING:
    from rich.table import Table

    from planner.observation import Observation

DESCRIPTION = """Look at the roles of a `baton replay` that goes on, or set them by hand.

A role that was set stays until it is released, whatever the planner would rather have. An instance drains, or migrates
what it has, as planner.how says, before it changes; limits on how many change at a time hold here, too."""
EXAMPLES = """examples:
  baton roles show
  baton roles set instance-2=prefill
  baton roles set --prefill 3 --decode 1 --address 127.0.0.1:6379
  baton roles release instance-2
  baton roles release
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--address",
        metavar="ADDR",
        default="auto",
        help="the Ray cluster of the run: auto or HOST:PORT (default: auto)",
    )
    common.add_argument("--run", dest="chosen", metavar="ID", help="which run, when several go on")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("show", parents=[common], help="print who plays which role")
    setting = actions.add_parser("set", parents=[common], help="set roles by hand")
    setting.add_argument("roles", nargs="*", metavar="INSTANCE=ROLE", help="for example instance-2=prefill")
    setting.add_argument("--prefill", type=int, metavar="N", help="so many prefill instances, and")
    setting.add_argument("--decode", type=int, metavar="N", help="so many decode instances: sets the role of all")
    release = actions.add_parser("release", parents=[common], help="leave roles to the planner again")
    release.add_argument("instances", nargs="*", metavar="INSTANCE", help="for example instance-2 (default: all)")


def run(arguments: argparse.Namespace) -> int:
    from actors import operator
    from cli.run_arguments import show

    where = arguments.address, arguments.chosen
    if arguments.action == "show":
        seen = operator.look(*where)
    elif arguments.action == "release":
        names = arguments.instances or [_name(index) for index in operator.look(*where).pins]
        seen = operator.pin(*where, {_index(name): None for name in names})
    elif arguments.prefill is not None or arguments.decode is not None:
        if arguments.prefill is None or arguments.decode is None or arguments.roles:
            raise ConfigError(
                "--prefill and --decode go together, and set the role of every instance; leave others out"
            )
        seen = operator.pin_split(*where, arguments.prefill, arguments.decode)
    elif arguments.roles:
        seen = operator.pin(*where, dict(_role(word) for word in arguments.roles))
    else:
        raise ConfigError("nothing is to be set; write for example instance-2=prefill, or --prefill 3 --decode 1")
    show(_table(seen))
    return 0


def _role(word: str) -> tuple[int, Role | None]:
    name, equals, role = word.partition("=")
    if not equals:
        raise ConfigError(f"{word!r} is not INSTANCE=ROLE; write for example instance-2=prefill")
    if role not in list(Role):
        raise ConfigError(f"the role of {name} is {role!r}; {did_you_mean(role, Role)}")
    return _index(name), Role(role)


def _index(name: str) -> int:
    number = name.removeprefix("instance-")
    if not number.isdecimal():
        raise ConfigError(f"{name!r} is no instance; write for example instance-2")
    return int(number)


def _name(index: int) -> str:
    return f"instance-{index}"


def _table(seen: "Observation") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for column in ("instance", "role", "phase", "set by hand"):
        table.add_column(column)
    for view in seen.instances:
        phase = view.phase if view.target is None else f"{view.phase} to become {view.target}"
        table.add_row(_name(view.index), view.role, phase, seen.pins.get(view.index, ""))
    return table
