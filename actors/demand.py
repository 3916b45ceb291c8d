"""What was asked of a live cluster lately, as its router knows it; a new router reads it off what it takes over."""

from cluster.request import Request, Status
from metrics.records import Column, FloatArray
from metrics.slo import meets
from planner.demand import Demand
from scenario.build import build_demand
from scenario.spec import Scenario


class DemandBook:
    """Requests count when they arrive, and when they have finished or failed."""

    def __init__(self, scenario: Scenario) -> None:
        self._slo = scenario.slo
        self._window = build_demand(scenario)

    def arrive(self, request: Request) -> None:
        self._window.arrive(request.arrival_s, request.prompt_tokens, request.output_tokens)

    def end(self, records: FloatArray) -> None:
        """records: (requests, metrics.records.Column), in order of ending."""
        status = records[:, Column.STATUS]
        counted = records[
            ((status == Status.FINISHED) | (status == Status.FAILED)) & (records[:, Column.OUTPUT_TOKENS] > 0)
        ]
        for row, good in zip(counted.tolist(), meets(counted, self._slo).tolist(), strict=True):
            self._window.end(
                row[Column.FINISHED_S],
                int(row[Column.OUTPUT_TOKENS]),
                good,
                prompt_tokens=int(row[Column.PROMPT_TOKENS]),
                ttft_s=row[Column.FIRST_TOKEN_S] - row[Column.ARRIVAL_S],
            )

    def recall(self, ended: FloatArray, live: list[Request]) -> None:
        """Begin with what another router has seen."""
        arrived = ended[:, (Column.ARRIVAL_S, Column.PROMPT_TOKENS, Column.OUTPUT_TOKENS)].tolist()
        arrived += [(one.arrival_s, one.prompt_tokens, one.output_tokens) for one in live]
        for arrival_s, prompt_tokens, output_tokens in sorted(map(tuple, arrived)):
            self._window.arrive(arrival_s, int(prompt_tokens), int(output_tokens))
        self.end(ended[ended[:, Column.FINISHED_S].argsort()])

    def view(self, now: float) -> Demand:
        """The window that ends now."""
        return self._window.view(now)
