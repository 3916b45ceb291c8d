"""`baton backtest`: how far the planner's predictors would have been off on a trace."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from cluster.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from planner.backtest import Errors

DESCRIPTION = """Cut a trace into windows, and predict request rate, mean ISL and mean OSL of each from the windows before it.

Prints the errors of every predictor: mean absolute error, root of the mean square, and mean absolute error in per cent
of the value, where that is not 0."""
EXAMPLES = """examples:
  baton backtest azure_llm_2023_conv.csv
  baton backtest azure_llm_2023_code.csv --interval 5 --steps 1 6 12 --json
"""
SERIES = {
    "request_rate": "request rate, req/s",
    "prompt_tokens": "mean ISL, tokens",
    "output_tokens": "mean OSL, tokens",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="TRACE")
    parser.add_argument("--interval", type=float, default=10.0, metavar="S", help="seconds per window (default: 10)")
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[1, 6], metavar="N", help="windows to look ahead (default: 1 6)"
    )
    parser.add_argument(
        "--window", type=int, default=30, metavar="N", help="windows that a prediction looks back on (default: 30)"
    )
    parser.add_argument("--trace-format", metavar="NAME", help="do not detect the format")
    parser.add_argument("--trace-unit", choices=("s", "ms"), help="unit of numeric timestamps")
    parser.add_argument("--skip-invalid", action="store_true", help="skip bad rows instead of stopping")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(arguments: argparse.Namespace) -> int:
    from planner.backtest import backtest
    from planner.history import loads_of
    from workload.readers import read_trace

    for option in ("interval", "window", "steps"):
        value = getattr(arguments, option)
        if not (min(value) if isinstance(value, list) else value) > 0:
            raise ConfigError(f"--{option} is {value}; it must be above 0")
    trace = read_trace(
        arguments.file,
        trace_format=arguments.trace_format,
        trace_unit=arguments.trace_unit,
        skip_invalid=arguments.skip_invalid,
    )
    requests = zip(trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    loads = loads_of(requests, arguments.interval)
    if len(loads) <= min(arguments.steps):
        raise ConfigError(
            f"{arguments.file} spans {trace.span_s:g} s, which is {len(loads)} windows of {arguments.interval:g} s, "
            f"too few to predict {min(arguments.steps)} ahead; lower --interval"
        )
    errors = [one for steps in arguments.steps for one in backtest(loads, steps_ahead=steps, window=arguments.window)]
    if arguments.json:
        import orjson

        print(orjson.dumps([asdict(one) for one in errors], option=orjson.OPT_INDENT_2).decode())
    else:
        from cli.run_arguments import show

        print(f"{arguments.file}: {len(loads)} windows of {arguments.interval:g} s")
        for series in SERIES:
            show(_table(series, arguments.steps, [one for one in errors if one.series == series]))
    return 0


def _table(series: str, steps: list[int], errors: "list[Errors]") -> "Table":
    """A row per predictor, three columns per look-ahead."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from metrics.facts import number, percent

    table = Table(box=SIMPLE_HEAD, title=f"Errors of the {SERIES[series]}", title_justify="left")
    table.add_column("predictor")
    for ahead in steps:
        for measure in ("MAE", "RMSE", "MAPE"):
            table.add_column(f"{ahead} ahead: {measure}" if measure == "MAE" else measure, justify="right")
    for name in dict.fromkeys(one.predictor for one in errors):
        cells = []
        for one in errors:
            if one.predictor == name:
                cells += [number(one.mae), number(one.rmse), percent(one.mape)]
        table.add_row(name, *cells)
    return table
