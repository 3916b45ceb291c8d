"""What an instance still has to tell the router: it stays until a report has arrived."""

from array import array
from collections import Counter

from actors.messages import Deeds, Progress, Report, TransferTimes
from cluster.instance import Instance
from cluster.request import Request
from cluster.step_log import StepLog
from metrics.records import FloatArray, Records, as_rows
from metrics.samples import SAMPLE_FIELDS, sample_of


class Outbox:
    """Everything since the start, and how much of it was delivered. Reports hold copies, so that logs can grow."""

    def __init__(self, core: Instance, incarnation: int, transfers: list[TransferTimes]) -> None:
        self._core = core
        self._incarnation = incarnation
        self._transfers = transfers
        self.records = Records()
        """Everybody who ended here."""
        self.texts: dict[int, bytes] = {}
        """What those who ended here had generated, where a model really computes."""
        self._ended: list[Request] = []
        self._received: list[int] = []
        self._samples = array("d")
        self.lateness_s = array("d")
        self._told: Counter[str] = Counter()

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
        return Report(
            load=self._core.load(now),
            ended=list(self._ended),
            received=list(self._received),
            progress=self.progress(),
            deeds=self._deeds_since(self._told, whole=False),
        )

    def delivered(self, report: Report) -> None:
        told, deeds = self._told, report.deeds
        del self._ended[: len(report.ended)], self._received[: len(report.received)]
        told["samples"] += deeds.samples.size
        told["transfers"] += len(deeds.transfers)
        told["lateness"] += deeds.lateness_s.size
        for number, rows in enumerate(deeds.step_rows):
            told[f"log {number}"] += rows.size

    def all_told(self) -> None:
        """A new router has taken the whole inventory."""
        self.delivered(self.report(0.0))

    def deeds(self) -> Deeds:
        """All since it began."""
        return self._deeds_since(Counter(), whole=True)

    def _deeds_since(self, told: Counter[str], *, whole: bool) -> Deeds:
        logs = enumerate(self._core.logs)
        return Deeds(
            instance=self._core.index,
            incarnation=self._incarnation,
            whole=whole,
            step_rows=[_rows(log.values[told[f"log {number}"] :], StepLog.WIDTH) for number, log in logs],
            samples=_rows(self._samples[told["samples"] :], len(SAMPLE_FIELDS)),
            transfers=self._transfers[told["transfers"] :],
            lateness_s=_rows(self.lateness_s[told["lateness"] :], 1)[:, 0],
        )

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
