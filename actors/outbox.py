"""What an instance still has to tell the router: it stays until a report has arrived."""

from array import array

from actors.messages import Progress, Report, TransferTimes
from cluster.instance import Instance
from cluster.request import Request
from cluster.step_log import StepLog
from metrics.records import FloatArray, Records, as_rows
from metrics.samples import SAMPLE_FIELDS, sample_of


class Outbox:
    """Everything since the start, and how much of it was delivered. Reports hold copies, so that logs can grow."""

    def __init__(self, core: Instance, transfers: list[TransferTimes]) -> None:
        self._core = core
        self._transfers = transfers
        self.records = Records()
        """Everybody who ended here."""
        self.texts: dict[int, bytes] = {}
        """What those who ended here had generated, where a model really computes."""
        self._ended: list[Request] = []
        self._received: list[int] = []
        self._samples = array("d")
        self.lateness_s = array("d")
        self._told: dict[str, int] = {}

    def end(self, request: Request) -> None:
        self.records.add(request)
        self._ended.append(request)
        if request.text:
            self.texts[request.request_id] = request.text

    def receive(self, request: Request) -> None:
        self._received.append(request.request_id)

    def sample(self, now: float) -> None:
        self._samples.extend(sample_of(self._core, now))

    def report(self, now: float) -> Report:
        """All that was not delivered yet. Call `delivered` with it when it has arrived."""
        told = self._told
        return Report(
            load=self._core.load(now),
            ended=list(self._ended),
            received=list(self._received),
            progress=self.progress(),
            step_rows=self.step_rows(since_told=True),
            samples=_rows(self._samples[told.get("samples", 0) :], len(SAMPLE_FIELDS)),
            transfers=self._transfers[told.get("transfers", 0) :],
            lateness_s=_rows(self.lateness_s[told.get("lateness", 0) :], 1)[:, 0],
        )

    def delivered(self, report: Report) -> None:
        told = self._told
        del self._ended[: len(report.ended)], self._received[: len(report.received)]
        told["samples"] = told.get("samples", 0) + report.samples.size
        told["transfers"] = told.get("transfers", 0) + len(report.transfers)
        told["lateness"] = told.get("lateness", 0) + report.lateness_s.size
        for number, rows in enumerate(report.step_rows):
            told[f"log {number}"] = told.get(f"log {number}", 0) + rows.size

    def all_told(self) -> None:
        """A new router has taken the whole inventory."""
        self.delivered(self.report(0.0))

    def samples(self) -> FloatArray:
        return _rows(self._samples[:], len(SAMPLE_FIELDS))

    def step_rows(self, *, since_told: bool = False) -> list[FloatArray]:
        starts = [self._told.get(f"log {number}", 0) if since_told else 0 for number in range(len(self._core.logs))]
        return [_rows(log.values[start:], StepLog.WIDTH) for log, start in zip(self._core.logs, starts, strict=True)]

    def progress(self) -> list[Progress]:
        """Tokens of everybody here who has had some."""
        found = []
        for batch in self._core.batches:
            newcomers = {request.request_id for request in batch.newcomers}
            for request in batch.members.values():
                here = batch.iteration - request.join_iteration
                last = request.last_token_s if request.request_id in newcomers else batch.last_token_s
                had = request.generated + here
                found.append(Progress(request.request_id, had, request.second_token_s, last, request.text))
        standing = [one for batch in self._core.batches for one in (*batch.ready, *batch.prefilling)]
        for request in (*standing, *self._core.scheduler.waiting):
            if request.generated:
                second, last = request.second_token_s, request.last_token_s
                found.append(Progress(request.request_id, request.generated, second, last, request.text))
        return found


def _rows(values: "array[float]", width: int) -> FloatArray:
    """A slice of an array is a copy, so that the array itself may go on growing."""
    return as_rows(values, width)
