"""`baton study`: ready-made comparisons."""

import argparse
import importlib
import sys

STUDIES = {"shift": "static splits against the load planner on the demo's shifting workload"}

DESCRIPTION = "Run a ready-made study and print its tables."
EXAMPLES = "studies:\n" + "\n".join(f"  {name:<12} {what}" for name, what in STUDIES.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=sorted(STUDIES), help="which study")


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    study = importlib.import_module(f"sim.studies.{arguments.name}").run()
    console = Console(width=None if sys.stdout.isatty() else 110)
    for table in study.tables:
        rendered = Table(*table.columns, title=table.title, title_justify="left", caption=table.note or None)
        for row in table.rows:
            rendered.add_row(*row)
        console.print(rendered)
    console.print(study.verdict)
    return 0 if study.holds else 2
