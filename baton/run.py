"""A run that is over, and plots of one or several."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from metrics.comparison_report import comparison_figures
from metrics.curves import Curves
from metrics.run_folder import read_curves, read_requests, read_summary

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run that is over: simulated, replayed, or read from its folder."""

    name: str
    """For legends: that of the scenario, or of the folder."""
    summary: dict[str, Any]
    """What summary.json holds: `summary["attainment"]`, `summary["ttft_ms"]["p99"]`, `summary["role_changes"]`."""
    rows: list[dict[str, Any]]
    """A dictionary per request with the fields of requests.jsonl."""
    curves: Curves
    """What its plots are drawn from."""

    @property
    def requests(self) -> "pandas.DataFrame":
        """`rows` as a table, indexed by request id; times in seconds."""
        from pandas import DataFrame

        return DataFrame(self.rows).set_index("request_id") if self.rows else DataFrame()

    def __repr__(self) -> str:
        share = self.summary["attainment"]
        good = "" if share is None else f", {share:.1%} good"
        return f"<Run {self.name} ({self.summary['driver']}): {self.summary['requests']['total']:,} requests{good}>"


def read(folder: str | Path) -> Run:
    """A run from the folder that it was written to; raises ConfigError when that holds none."""
    return Run(Path(folder).name, read_summary(folder), read_requests(folder), read_curves(folder))


def plot(title: str, *runs: Run) -> "Figure":
    """One of the plots that compare runs, as a Plotly figure, with a curve per run.

    title: Time to first token, Inter-token latency, Time per output token, End-to-end latency, Token gaps over time,
    What the instances did, Queued prompt tokens, Decoding requests, or KV in use. Raises ConfigError for any other,
    and where no run has data for it.
    """
    from plotly.graph_objects import Figure

    names = [one.name for one in runs]
    labels = [name if names.count(name) == 1 else f"{name} {number}" for number, name in enumerate(names, start=1)]
    labels = labels if len(runs) > 1 else [""]
    found = comparison_figures([(label, one.curves) for label, one in zip(labels, runs, strict=True)])
    if title not in found:
        raise ConfigError(
            f"there is no plot {title!r} of these runs; those with data are: {', '.join(found) or 'none'}"
        )
    return Figure(found[title]).update_layout(title=title)
