"""What the router has been told about requests that ended and steps that were made: for snapshots and results."""

from math import isnan

import numpy as np

from actors.demand import DemandBook
from actors.messages import TransferTimes
from cluster.request import Request
from metrics.prometheus import MetricStore
from metrics.records import WIDTH, Column, FloatArray, Records
from metrics.samples import SAMPLE_FIELDS
from metrics.slo import meets
from metrics.watch import observe_requests
from scenario.spec import Scenario


class Ledger:
    """`ended` are ids, each of which ended once. What ends also counts in `metrics` and for `demand`."""

    def __init__(self, scenario: Scenario, metrics: MetricStore, demand: DemandBook) -> None:
        self._slo = scenario.slo
        self._metrics = metrics
        self._demand = demand
        self.ended: set[int] = set()
        self.num_good = 0
        self._records = Records()
        self._fresh = Records()
        self._texts: dict[int, bytes] = {}
        """What ended requests had generated, until it is taken."""
        self._step_rows: list[list[list[FloatArray]]] = [[] for _ in scenario.roles]
        """Per instance and micro-batch, as they came."""
        self._samples: list[list[FloatArray]] = [[] for _ in scenario.roles]
        self._lateness_s: list[FloatArray] = []
        self.transfers: list[TransferTimes] = []
        self.refusals: list[tuple[float, float]] = []
        """When a payload was refused, and when the KV was whole after all."""

    def end(self, requests: list[Request]) -> None:
        """Requests that have ended, however that was."""
        if not requests:
            return
        news = Records()
        for request in requests:
            self.ended.add(request.request_id)
            if request.text:
                self._texts[request.request_id] = request.text
            for records in (news, self._fresh, self._records):
                records.add(request)
        rows = news.table()
        self._demand.end(rows)
        self.num_good += observe_requests(self._metrics, rows, self._slo)

    def recall(self, rows: FloatArray, texts: dict[int, bytes]) -> None:
        """Records that an earlier router had, or should have had; those known already are skipped."""
        self._texts |= texts
        for row in rows:
            request_id = int(row[Column.REQUEST_ID])
            if request_id not in self.ended:
                self.ended.add(request_id)
                self._records.values.extend(row.tolist())
                self.num_good += int(meets(row[None], self._slo).sum())

    def keep(
        self, index: int, step_rows: list[FloatArray], samples: FloatArray, transfers: list[TransferTimes]
    ) -> None:
        """What an instance has done since it last said."""
        logs = self._step_rows[index]
        logs.extend([] for _ in range(len(step_rows) - len(logs)))
        for log, rows in zip(logs, step_rows, strict=False):
            log.append(rows)
        self._samples[index].append(samples)
        self.transfers.extend(transfers)
        self.refusals += [(times.refused_s, times.whole_s) for times in transfers if not isnan(times.refused_s)]

    def keep_lateness(self, lateness_s: FloatArray) -> None:
        self._lateness_s.append(lateness_s)

    def take_news(self) -> tuple[FloatArray, dict[int, bytes]]:
        """Records and texts that nobody has taken yet."""
        fresh, self._fresh = self._fresh, Records()
        texts, self._texts = self._texts, {}
        return fresh.copy(), texts

    def records(self) -> FloatArray:
        return self._records.table() if len(self._records) else np.empty((0, WIDTH))

    def step_rows(self) -> list[list[FloatArray]]:
        return [[np.concatenate(log) for log in logs] for logs in self._step_rows]

    def samples(self) -> list[FloatArray]:
        return [np.concatenate([np.empty((0, len(SAMPLE_FIELDS))), *parts]) for parts in self._samples]

    def lateness_s(self) -> FloatArray:
        return np.concatenate([np.empty(0), *self._lateness_s])
