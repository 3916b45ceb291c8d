"""`baton trace`: what a trace file holds."""

import argparse
from typing import Any

DESCRIPTION = "Print what was detected in a trace file: format, unit, rows, span, lengths, rejected rows."
EXAMPLES = """examples:
  baton trace info azure_llm_2023_conv.csv
  baton trace info requests.jsonl --trace-unit s --skip-invalid
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    info = actions.add_parser("info", help="print what a trace file holds")
    info.add_argument("file", metavar="FILE")
    info.add_argument("--trace-format", metavar="NAME", help="do not detect the format")
    info.add_argument("--trace-unit", choices=("s", "ms"), help="unit of numeric timestamps")
    info.add_argument("--skip-invalid", action="store_true", help="count and skip bad rows instead of stopping")
    info.add_argument("--json", action="store_true", help="print as JSON")


def run(arguments: argparse.Namespace) -> int:
    from workload.readers import read_trace

    trace = read_trace(
        arguments.file,
        trace_format=arguments.trace_format,
        trace_unit=arguments.trace_unit,
        skip_invalid=arguments.skip_invalid,
    )
    facts = trace.describe()
    if arguments.json:
        import orjson

        print(orjson.dumps(facts, option=orjson.OPT_INDENT_2).decode())
    else:
        for line in _lines(facts):
            print(line)
    return 0


def _lines(facts: dict[str, Any]) -> list[str]:
    """One line a fact; a list or mapping takes a line for each of its entries."""
    lines = []
    for name, value in facts.items():
        label = name.replace("_", " ")
        if isinstance(value, dict):
            entries = [f"{key} {_text(entry)}" for key, entry in value.items()]
            lines.append(f"{label:<18} {', '.join(entries) or 'none'}")
        elif isinstance(value, list | tuple):
            lines += [f"{label:<18} {entry}" for entry in value] or [f"{label:<18} none"]
        else:
            lines.append(f"{label:<18} {_text(value)}")
    return lines


def _text(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
