"""What a study gives: titled tables of text, ready to print."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StudyTable:
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Study:
    """`holds` is the study's own verdict on what it set out to show."""

    name: str
    tables: list[StudyTable]
    verdict: str
    holds: bool
