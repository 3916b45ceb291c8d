"""Latency targets, and which requests meet them."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cluster.errors import ConfigError
from cluster.request import Request, Status
from metrics.latency import e2e_s, tpot_s, ttft_s
from metrics.records import Column, FloatArray, Records

GOODPUT_KEYS = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "e2e_ms", "e2el": "e2e_ms"}
"""What `--goodput` calls a target, and the field it sets."""

_TIE_S = 1e-9
"""A latency is a difference of clock times: one that equals its target up to rounding meets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloSpec:
    """Latency targets in milliseconds; None is no target. A request is good when it meets every one."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    attainment: float = 0.90
    """Share of requests that must be good for a rate to count as sustained."""

    def __post_init__(self) -> None:
        for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"slo.{name} is {value}; it must be above 0")
        if not 0 < self.attainment <= 1:
            raise ConfigError(f"slo.attainment is {self.attainment}; it must be in (0, 1]")


def parse_goodput(pairs: Iterable[str], *, attainment: float = 0.90) -> SloSpec:
    """Targets from `--goodput` words such as ttft:1000 and tpot:20 (milliseconds).

    Raises ConfigError for a word that is not KEY:VALUE, an unknown or repeated key, or a value that is no
    number above 0.
    """
    targets: dict[str, float] = {}
    for pair in pairs:
        key, colon, text = pair.partition(":")
        if not colon:
            raise ConfigError(f"goodput target {pair!r} is not KEY:VALUE; write for example ttft:1000 tpot:20")
        if key not in GOODPUT_KEYS:
            raise ConfigError(f"goodput target {pair!r} has unknown key {key!r}; use one of {', '.join(GOODPUT_KEYS)}")
        field = GOODPUT_KEYS[key]
        if field in targets:
            raise ConfigError(f"goodput target {pair!r} gives {key} a second time; keep one")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not value > 0:
            raise ConfigError(f"goodput target {pair!r} needs a number of milliseconds above 0")
        targets[field] = value
    return SloSpec(**targets, attainment=attainment)


def meets(records: FloatArray, slo: SloSpec) -> npt.NDArray[np.bool_]:
    """Per record, whether the request finished and no latency it has is above its target.

    A request without a TPOT sample (one output token) is not judged on TPOT, and a finished one without
    output has no latency but E2E. Requests that did not finish are bad; lost ones have no record and the
    caller counts them.
    """
    good: npt.NDArray[np.bool_] = records[:, Column.STATUS] == Status.FINISHED
    for target_ms, latency_s in ((slo.ttft_ms, ttft_s), (slo.tpot_ms, tpot_s), (slo.e2e_ms, e2e_s)):
        if target_ms is not None:
            good &= ~(latency_s(records) > target_ms / 1e3 + _TIE_S)
    return good


def is_good(request: Request, slo: SloSpec) -> bool:
    """The same for one request at the moment it finishes; see `meets`."""
    records = Records()
    records.add(request)
    return bool(meets(records.table(), slo)[0])
