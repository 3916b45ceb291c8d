"""How long an instance was at work."""

import numpy as np

from metrics.records import FloatArray


def busy_s(logs: list[FloatArray]) -> float:
    """Seconds in which at least one step of an instance ran; its micro-batches overlap in a pipeline."""
    if len(logs) == 1:
        return float((logs[0][:, 1] - logs[0][:, 0]).sum())
    steps = np.concatenate([log[:, :2] for log in logs] or [np.empty((0, 2))])
    steps = steps[np.argsort(steps[:, 0])]
    start, end = steps[:, 0], np.maximum.accumulate(steps[:, 1])
    covered = np.concatenate([[-np.inf], end[:-1]])
    return float(np.maximum(end - np.maximum(start, covered), 0.0).sum())
