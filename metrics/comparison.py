"""How the variants of a comparison ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from metrics.curves import Curves
from metrics.summary import Summary

_BARE = ("true", "false", "null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A variant with its summary and curves, or with the reason why it could not run.

    settings: what tells it from the others, by name, and no two alike; files: contents of its result files by
    name, if asked for.
    """

    name: str
    settings: dict[str, str]
    summary: Summary | None = None
    curves: Curves | None = None
    error: str = ""
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The values of its settings, for a legend; those that say nothing by themselves with their names."""
        return " · ".join(
            value if value[:1].isalpha() and value not in _BARE else f"{name} {value}"
            for name, value in self.settings.items()
        )


def setting_names(outcomes: Sequence[Outcome]) -> list[str]:
    """Names of the settings that any of them has, in order."""
    return list(dict.fromkeys(name for outcome in outcomes for name in outcome.settings))


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Its summary, or the error in place of it, with the settings."""
    told = outcome.summary if outcome.summary is not None else {"name": outcome.name, "error": outcome.error}
    return {**told, "settings": outcome.settings}
