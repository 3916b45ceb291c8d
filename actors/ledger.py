"""What the router has been told about requests that ended and steps that were made: for snapshots and results."""

from collections.abc import Iterable
from math import isnan

import numpy as np

from actors.deeds import DeedsBook
from actors.demand import DemandBook
from actors.messages import Deeds
from cluster.request import Request
from metrics.prometheus import MetricStore
from metrics.records import WIDTH, Column, FloatArray, Records
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
        self.deeds = DeedsBook()
        self._fresh_deeds: list[Deeds] = []

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

    def recall(self, rows: FloatArray, deeds: Iterable[Deeds]) -> None:
        """What snapshots of an earlier router have told: it is no news."""
        self.deeds.add(deeds)
        for row in rows:
            self._recall(row)

    def catch_up(self, rows: FloatArray, texts: dict[int, bytes], deeds: Deeds) -> None:
        """All that an instance can tell, most of which an earlier router knew; only the rest is news."""
        self._texts |= texts
        self.keep(deeds)
        for row in rows:
            if self._recall(row):
                self._fresh.values.extend(row.tolist())

    def _recall(self, row: FloatArray) -> bool:
        request_id = int(row[Column.REQUEST_ID])
        if request_id in self.ended:
            return False
        self.ended.add(request_id)
        self._records.values.extend(row.tolist())
        self.num_good += int(meets(row[None], self._slo).sum())
        return True

    def keep(self, deeds: Deeds) -> None:
        self.deeds.add([deeds])
        self._fresh_deeds.append(deeds)

    def take_news(self) -> tuple[FloatArray, dict[int, bytes], list[Deeds]]:
        """Records, texts and deeds that nobody has taken yet."""
        fresh, self._fresh = self._fresh, Records()
        texts, self._texts = self._texts, {}
        deeds, self._fresh_deeds = self._fresh_deeds, []
        return fresh.copy(), texts, deeds

    def refusals(self) -> list[tuple[float, float]]:
        """When a payload was refused, and when the KV was whole after all."""
        return [(one.refused_s, one.whole_s) for one in self.deeds.transfers() if not isnan(one.refused_s)]

    def records(self) -> FloatArray:
        return self._records.table() if len(self._records) else np.empty((0, WIDTH))
