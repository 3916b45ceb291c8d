"""What a study gives: claims judged, tables of text, and plots, ready to print or to write."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

from metrics.facts import number
from metrics.figure import Figure


class Verdict(StrEnum):
    """What became of a claim."""

    REPRODUCED = "reproduced"
    """The published value is ours, within the tolerance or the spread over seeds."""
    SAME_DIRECTION = "same direction"
    """Ours is another value that says the same."""
    HOLDS = "holds"
    """A claim of our own, without a published value."""
    DIFFERS = "differs"
    NOT_MODELLED = "not modelled"
    """Measured on machines, or by people, that no cost model knows; the reason says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What somebody says, and what came out here. `reason` says why a value differs, or what must be known."""

    source: str
    """Paper or lecture, and section."""
    statement: str
    published: str = "-"
    ours: str
    verdict: Verdict
    reason: str = ""


CLAIM_COLUMNS = ("source", "claim", "published", "ours", "verdict")


def claim_rows(claims: Sequence[Claim]) -> list[tuple[str, ...]]:
    """A row of CLAIM_COLUMNS per claim; the reason stands with the verdict."""
    return [
        (one.source, one.statement, one.published, one.ours, f"{one.verdict}{one.reason and ': ' + one.reason}")
        for one in claims
    ]


@dataclass(frozen=True, slots=True)
class StudyTable:
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    name: str
    title: str
    method: str
    """What was run, and what had to be assumed."""
    claims: list[Claim]
    tables: list[StudyTable]
    figures: dict[str, Figure] = field(default_factory=dict)
    """By title."""

    @property
    def holds(self) -> bool:
        """Whether no claim came out otherwise without a known reason."""
        return all(
            claim.verdict not in (Verdict.DIFFERS, Verdict.NOT_MODELLED) or claim.reason for claim in self.claims
        )


def judge(published: float, ours: Sequence[float], *, holds: bool, tolerance: float = 0.05) -> Verdict:
    """The verdict on a number: reproduced when it is in the range of `ours`, one per seed, widened by `tolerance`.

    Otherwise `holds` decides: whether what the number is to show is so, for every seed.
    """
    if holds and min(ours) * (1 - tolerance) <= published <= max(ours) * (1 + tolerance):
        return Verdict.REPRODUCED
    return Verdict.SAME_DIRECTION if holds else Verdict.DIFFERS


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def printed(source: str, statement: str, published: str, ours: Sequence[float], *, reason: str = "") -> Claim:
    """A claim that leaves nothing to chance: reproduced when `ours` equal the numbers in `published`, in their
    order, to the digits that are printed there.

    `reason` says why, where others come out.
    """
    values = iter(ours)

    def put(number: re.Match[str]) -> str:
        decimals = len(number.group().partition(".")[2])
        return f"{next(values):,.{decimals}f}"

    text = _NUMBER.sub(put, published)
    is_same = text == published
    return Claim(
        source=source,
        statement=statement,
        published=published,
        ours=text,
        verdict=Verdict.REPRODUCED if is_same else Verdict.DIFFERS,
        reason="" if is_same else reason,
    )


def told(source: str, statement: str, published: str, ours: str, *, holds: bool, reason: str = "") -> Claim:
    """A claim in words, or on a number that only its direction can be compared with when `reason` says why."""
    came_out = Verdict.SAME_DIRECTION if reason else Verdict.REPRODUCED
    return Claim(
        source=source,
        statement=statement,
        published=published,
        ours=ours,
        verdict=came_out if holds else Verdict.DIFFERS,
        reason=reason,
    )


def beyond(source: str, statement: str, published: str, reason: str, *, ours: str = "-") -> Claim:
    """A claim that the model cannot speak to."""
    return Claim(
        source=source,
        statement=statement,
        published=published,
        ours=ours,
        verdict=Verdict.NOT_MODELLED,
        reason=reason,
    )


def spread(values: Sequence[float], unit: str = "") -> str:
    """Median and, of several that differ, the range."""
    middle = f"{number(median(values))}{unit and ' ' + unit}"
    if number(min(values)) == number(max(values)):
        return middle
    return f"{middle} ({number(min(values))} to {number(max(values))})"
