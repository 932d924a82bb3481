"""What the worker is asked: questions about some sets, and the pieces that a large one is cut into."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.models.interface.choice_model import ChoiceModel

Question = Literal["log_proba", "rates", "offer"]


@dataclass(frozen=True, slots=True)
class Job:
    """A question about some sets; the answer is (N,) log-probabilities, the (n, n) rates of the one set, or an offer.

    A request takes its question back by cancelling the answer.
    """

    model: str
    question: Question
    data: ChoiceData
    given: ChoiceData | None = None  # the sets of the request, where others that are made of them are asked about
    answer: Future[Any] = field(default_factory=Future)
    ask: Callable[[ChoiceModel], Any] | None = None  # what is asked for an offer

    @property
    def pairs(self) -> int:
        """Ordered pairs of alternatives."""
        return int((self.data.sizes**2).sum())

    def goes_with(self, other: Job) -> bool:
        """Tell whether one call can answer both."""
        return self.question == other.question == "log_proba" and self.model == other.model

    def place_of(self, label: str) -> str:
        """Name the first alternative with a label as the request counts it, with those that are not available."""
        data = self.data if self.given is None else self.given
        labels = data.labels
        assert labels is not None
        at = int(np.argmax(labels.codes == labels.categories.index(label)))
        k = int(data.set_of_alternative[at])
        hidden = int(((data.hidden_sets == k) & (data.hidden_rows < data.rows[at])).sum())
        return f"set {data.set_ids[k]}, alternative {at - int(data.offsets[k]) + hidden}"

    def finish(self, answer: Any) -> None:
        """Give the answer, or the error, to whoever still waits for it."""
        if self.answer.set_running_or_notify_cancel():
            if isinstance(answer, Exception):
                self.answer.set_exception(answer)
            else:
                self.answer.set_result(answer)


class Pieces:
    """A large question, asked piece by piece."""

    def __init__(self, job: Job, sets: int, pairs: int) -> None:
        self.job = job
        self._starts = [*starts_of(job.data.sizes**2, sets, pairs), len(job.data)]
        self._answers: list[Floats] = []

    def next(self) -> Job:
        """Return the question about the next piece."""
        start, stop = self._starts[len(self._answers) :][:2]
        return replace(self.job, data=self.job.data.subset(np.arange(start, stop)), answer=Future())

    def add(self, piece: Job) -> bool:
        """Take the answer about a piece; tell whether there is more to ask."""
        error = piece.answer.exception()
        if error is not None:
            self.job.finish(error)
            return False
        self._answers.append(piece.answer.result())
        more = len(self._answers) + 1 < len(self._starts)
        if not more:
            self.job.finish(np.concatenate(self._answers))
        return more


def starts_of(pairs: NDArray[np.int64], most_sets: int, most_pairs: int) -> list[int]:
    """Cut sets, given their numbers of pairs, into pieces within both bounds; a set alone may be larger.

    Examples
    --------
    >>> starts_of(np.array([4, 4, 9, 25, 1, 1, 1]), most_sets=2, most_pairs=10)
    [0, 2, 3, 4, 6]
    """
    starts, total = [0], 0
    for k, own in enumerate(pairs.tolist()):
        if k > starts[-1] and (k - starts[-1] >= most_sets or total + own > most_pairs):
            starts.append(k)
            total = 0
        total += own
    return starts
