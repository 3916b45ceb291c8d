"""Deeds are counted once, whoever tells them and however often."""

import numpy as np

from actors.deeds import DeedsBook
from actors.messages import Deeds
from cluster.step_log import StepLog
from metrics.samples import SAMPLE_FIELDS


def deeds(instance: int, incarnation: int, *steps: float, whole: bool = False) -> Deeds:
    """`steps` are told by their start; there is a sample and a lateness for each, too."""
    rows = np.zeros((len(steps), StepLog.WIDTH))
    samples = np.zeros((len(steps), len(SAMPLE_FIELDS)))
    rows[:, 0] = samples[:, 0] = steps
    return Deeds(instance, incarnation, whole, [rows], samples, [], np.array(steps))


def steps(book: DeedsBook, instance: int) -> list[float]:
    return next(rows[:, 0].tolist() for rows in book.step_rows(instance))


def test_news_adds_up_and_the_whole_takes_its_place() -> None:
    book = DeedsBook()
    book.add([deeds(0, 0, 1.0), deeds(1, 0, 1.5), deeds(0, 0, 2.0)])
    assert steps(book, 0) == [1.0, 2.0]
    book.add([deeds(0, 0, 1.0, 2.0, 3.0, whole=True), deeds(0, 0, 4.0)])
    assert steps(book, 0) == book.samples(0)[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert steps(book, 1) == [1.5]
    assert sorted(book.lateness_s()) == [1.0, 1.5, 2.0, 3.0, 4.0]


def test_what_the_dead_did_stays() -> None:
    book = DeedsBook()
    book.add([deeds(0, 0, 1.0), deeds(0, 2, 5.0)])
    successor = DeedsBook()
    successor.add(book.told())
    successor.add([deeds(0, 2, 5.0, 6.0, whole=True)])
    assert steps(successor, 0) == [1.0, 5.0, 6.0]


def test_nothing_was_told() -> None:
    book = DeedsBook()
    assert book.step_rows(0) == []
    assert book.samples(0).shape == (0, len(SAMPLE_FIELDS))
    assert len(book.lateness_s()) == len(book.transfers()) == 0
