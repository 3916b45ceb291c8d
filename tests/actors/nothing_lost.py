"""What holds of a live run whatever befell it."""

import numpy as np

from cluster.request import Status
from metrics.records import Column
from metrics.run import RunResult


def check_nothing_lost(result: RunResult, *, cancelled: int = 0) -> None:
    """Every request ended exactly once, with all its tokens unless its client left."""
    records = result.records
    assert records[:, Column.REQUEST_ID].tolist() == list(range(result.num_requests))
    status = records[:, Column.STATUS]
    finished = status == Status.FINISHED
    assert (status == Status.ABORTED).sum() == cancelled == len(records) - finished.sum()
    assert (records[finished, Column.GENERATED_TOKENS] == records[finished, Column.OUTPUT_TOKENS]).all()
    order = (Column.ARRIVAL_S, Column.FIRST_TOKEN_S, Column.SECOND_TOKEN_S, Column.FINISHED_S)
    long = finished & (records[:, Column.OUTPUT_TOKENS] > 1)
    assert (np.diff(records[long][:, order], axis=1) >= 0).all()
