"""What somebody who mistyped a name probably meant."""

from collections.abc import Iterable
from difflib import SequenceMatcher


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error sentence: "did you mean x or y?", or everything that is known when nothing is near."""
    names = sorted(known)
    likeness = {name: _likeness(word.casefold(), name.casefold()) for name in names}
    near = sorted((name for name in names if likeness[name] >= 0.6), key=likeness.__getitem__, reverse=True)
    if near:
        return f"did you mean {' or '.join(near[:3])}?"
    return f"use {', '.join(names)}" if names else "there are none"


def _likeness(word: str, name: str) -> float:
    """0 to 1 by what the two share, more when the word is a piece of the name."""
    piece = len(word) > 1 and word in name
    return SequenceMatcher(None, word, name).ratio() + piece
