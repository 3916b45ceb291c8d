"""The `baton` command: one subcommand a file, loaded when it is asked for; users' errors become one sentence."""

import argparse
import importlib
import os
import signal
import sys

from cli.interrupt import INTERRUPTED
from cluster.errors import StalledError, UserError, WorldError

COMMANDS = {
    "simulate": "run a scenario under a virtual clock",
    "replay": "run the same scenario live on Ray",
    "compare": "put finished runs side by side",
    "view": "show a finished run in the browser, with a time slider",
    "chaos": "run it live and break it on purpose",
    "goodput": "find the highest rate that a scenario sustains",
    "plan": "find the instances that serve a workload within its SLOs",
    "roles": "see and set the roles of a live run by hand",
    "trace": "look at a trace file",
    "backtest": "see how well a trace could have been predicted",
    "model": "add a model from a Hugging Face config.json",
    "study": "run a ready-made comparison and print its table",
    "completion": "print a script that completes with Tab in the shell",
}
USER_ERROR, STALLED, WORLD_ERROR = 1, 3, 4


def build_parser(*filled: str) -> argparse.ArgumentParser:
    """The parser of the whole command line; only the commands `filled` have their own arguments."""
    parser = argparse.ArgumentParser(
        prog="baton",
        description="A testbed for prefill/decode disaggregated LLM serving that needs no GPU.",
        epilog="Begin with: baton simulate demo",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"cli.{name}") if name in filled else None
        child = commands.add_parser(
            name,
            help=summary,
            description=module.DESCRIPTION if module else summary,
            epilog=module.EXAMPLES if module else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if module:
            module.add_arguments(child)
            child.set_defaults(run=module.run)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, 1 for a user's error, 3 for a stalled run, 4 for a failed worker, 130 when
    interrupted."""
    argv = sys.argv[1:] if argv is None else argv
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start threads that nothing here uses
    arguments = build_parser(*argv[:1]).parse_args(argv)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return int(arguments.run(arguments))
    except UserError as error:
        print(f"baton {arguments.command}: {error}", file=sys.stderr)
        return USER_ERROR
    except StalledError as error:
        print(f"baton {arguments.command}: {error}", file=sys.stderr)
        return STALLED
    except WorldError as error:
        print(f"baton {arguments.command}: {error}", file=sys.stderr)
        return WORLD_ERROR
    except KeyboardInterrupt:
        print(f"baton {arguments.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)


class _Version(argparse.Action):
    """Looks the version up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from metrics.summary import baton_version

        print(f"baton {baton_version()}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
