"""One thread that asks the models, for all requests.

Requests that wait while it is busy are answered together by one call; so are those that are just being read when it is
free, for which it waits a few milliseconds. A question that is too large for one batch is asked in pieces, which take
turns with the small questions: so nobody waits for all of it, and what was taken back is left between two pieces. What
is under way is bounded: beyond that a request is turned away at once. One question that a model refuses does not spoil
the answers to the others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from threading import Condition, Thread
from time import monotonic
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Column, Contents, Numeric, concat_column
from pcmcnet.data.kinds import KINDS
from pcmcnet.errors import PcmcNetError, describe_value, shortened
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.design import UnseenLabelError
from pcmcnet.serving.middleware import ServerMetrics
from pcmcnet.serving.request_body import RefusalError, busy, unusable
from pcmcnet.serving.settings import ServeSettings

log = logging.getLogger("pcmcnet.serving")

# -- Batch -------------------------------------------------------------------------------------------------------------
# The choice sets of several requests as one table, so that a model is asked once.


def together(parts: Sequence[ChoiceData]) -> ChoiceData:
    """Append the sets of choice data that were read by one schema; rows are the available alternatives alone."""
    first = parts[0]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.sizes for part in parts]))])
    labels = [part.labels for part in parts if part.labels is not None]
    return replace(
        first,
        offsets=offsets,
        set_ids=first.set_ids if len(parts) == 1 else np.arange(len(offsets) - 1),  # as its request counts them
        weights=np.concatenate([part.weights for part in parts]),
        features={name: _append([part.features[name] for part in parts]) for name in first.features},
        labels=_append_categories(labels) if labels else None,
        individual={name: _append([part.individual[name] for part in parts]) for name in first.individual},
        rows=np.arange(offsets[-1]),
        hidden_rows=np.empty(0, np.int64),
        hidden_sets=np.empty(0, np.int64),
    )


def _append(columns: Sequence[Column]) -> Column:
    numbers = [column.values for column in columns if isinstance(column, Numeric)]
    if numbers:
        return Numeric(np.concatenate(numbers))
    if isinstance(columns[0], Contents):
        return reduce(concat_column, columns)
    return _append_categories([column for column in columns if isinstance(column, Categorical)])


def _append_categories(columns: Sequence[Categorical]) -> Categorical:
    """Join the categories by name."""
    place: dict[str, int] = {}
    codes = []
    for column in columns:
        moved = np.array([place.setdefault(name, len(place)) for name in column.categories], np.int32)
        codes.append(moved[column.codes])
    return Categorical(np.concatenate(codes), tuple(place))


# -- Jobs --------------------------------------------------------------------------------------------------------------
# What the worker is asked: questions about some sets, and the pieces that a large one is cut into.


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


# -- Worker ------------------------------------------------------------------------------------------------------------


_TOO_FAR = "the model has no answer for these values: they are too far from those it was trained on."


@runtime_checkable
class HasRates(Protocol):
    """A model of a Markov chain, which can show its rates."""

    def rates(self, data: Any) -> list[Floats]:
        """Return (n, n) rates of each set."""


def has_single_chain(model: ChoiceModel) -> TypeGuard[HasRates]:
    """Tell whether a model has one chain, whose law is what it predicts; a mixture has several."""
    return isinstance(model, HasRates) and getattr(model, "n_chains", 1) == 1


class Worker:
    """The thread and what waits for it. The thread begins with the first job."""

    def __init__(self, models: Mapping[str, ChoiceModel], settings: ServeSettings) -> None:
        self.models = models
        self.settings = settings
        self.metrics = ServerMetrics(lambda: self.under_way)
        self.under_way = 0  # admitted requests that are not answered yet
        self._coming = 0  # those of them that have not put their question yet
        self._waiting: deque[Job] = deque()
        self._large: deque[Pieces] = deque()
        self._large_next = False  # whether it is the turn of a piece
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    # -- on the event loop ------------------------------------------------------------------------------------

    @contextmanager
    def admit(self) -> Iterator[Admission]:
        """Let a request in, or turn it away."""
        with self._changed:
            if (refusal := self.refusal()) is not None:
                raise refusal
            self.under_way += 1
            self._coming += 1
        admission = Admission(self)
        try:
            yield admission
        finally:
            with self._changed:
                self.under_way -= 1
                self._coming -= admission.coming
                self._changed.notify_all()

    def refusal(self) -> RefusalError | None:
        """Say why a request would be turned away now; None where it would be let in."""
        if self._closed:
            return busy("the server is stopping", close=True)
        if self.under_way >= self.settings.queue:
            return busy(f"the server has {self.under_way} requests under way")
        return None

    def put(self, job: Job, *, first: bool) -> Future[Any]:
        """Put a question in line; ``first`` says that its request has put none before."""
        sets, pairs = self.settings.batch_sets, self.settings.batch_pairs
        fits = job.question != "log_proba" or (len(job.data) <= sets and job.pairs <= pairs)
        large = None if fits else Pieces(job, sets, pairs)
        with self._changed:
            self._coming -= first
            if large is None:
                self._waiting.append(job)
            else:
                self._large.append(large)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="pcmcnet-worker", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return job.answer

    def open(self) -> None:
        """Admit requests again after an end."""
        with self._changed:
            self._closed = False

    @property
    def stopping(self) -> bool:
        """Whether nothing more is admitted."""
        return self._closed

    def stop(self) -> None:
        """Admit nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self, patience: float | None = None) -> None:
        """Admit nothing more, answer what waits, and end the thread, unless that takes more than some seconds."""
        self.stop()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(patience)

    # -- on the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (work := self._next()) is not None:
            if isinstance(work, list):
                self._answer(work)
            elif not work.job.answer.cancelled():
                piece = work.next()
                self._answer([piece])
                if work.add(piece):
                    with self._changed:
                        self._large.append(work)

    def _next(self) -> list[Job] | Pieces | None:
        """Wait for a batch, or for a large question whose turn it is; None means the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._large or self._closed)
            if not self._waiting and not self._large:
                return None
            if self._large and (self._large_next or not self._waiting):
                self._large_next = False
                return self._large.popleft()
            self._large_next = True
            until = monotonic() + self.settings.gather
            while self._waiting and self._coming > 0 and not self._full() and (left := until - monotonic()) > 0:
                self._changed.wait(left)
            batch, self._waiting = self._cut()
            return batch

    def _full(self) -> bool:
        return len(self._cut()[1]) > 0

    def _cut(self) -> tuple[list[Job], deque[Job]]:
        """Take the first job and those that go with it, in their order, within the bounds of a batch."""
        batch: list[Job] = []
        rest: deque[Job] = deque()
        sets = pairs = 0
        for job in self._waiting:
            if job.answer.cancelled():
                continue
            within = sets + len(job.data) <= self.settings.batch_sets and pairs + job.pairs <= self.settings.batch_pairs
            if not batch or (not rest and within and job.goes_with(batch[0])):
                batch.append(job)
                sets, pairs = sets + len(job.data), pairs + job.pairs
            else:
                rest.append(job)
        return batch, rest

    def _answer(self, batch: list[Job]) -> None:
        """Ask the model once, or one by one where that fails."""
        if batch:
            self.metrics.batch(sets=sum(len(job.data) for job in batch), requests=len(batch))
            for job, answer in zip(batch, self._answers(batch), strict=True):
                job.finish(answer)

    def _answers(self, batch: list[Job]) -> list[Any]:
        try:
            return self._ask(batch)
        except Exception as error:  # noqa: BLE001 - whatever a model raises, the thread goes on
            if len(batch) == 1:
                return [self._refused(batch[0], error)]
            return [answer for job in batch for answer in self._answers([job])]

    def _refused(self, job: Job, error: Exception) -> Exception:
        """Say what a client should know of an error of the model."""
        if isinstance(error.__cause__, IndexError):
            for kind in self.models[job.model].schema.contents.values():
                if (what := KINDS[kind].unknown) is not None:
                    return unusable(what)
        if isinstance(error, UnseenLabelError):
            return unusable(f"{job.place_of(error.label)}: the label {describe_value(error.label)} {error.what}")
        if isinstance(error, PcmcNetError):
            return unusable(shortened(str(error)))
        log.error("a model failed", exc_info=error)
        return error

    def _ask(self, batch: list[Job]) -> list[Any]:
        model, data = self.models[batch[0].model], together([job.data for job in batch])
        if batch[0].question == "rates":
            assert isinstance(model, HasRates)
            (rates,) = model.rates(data)
            if not np.isfinite(rates).all():
                raise PcmcNetError(_TOO_FAR)
            return [rates]
        if batch[0].ask is not None:
            return [batch[0].ask(model)]
        values = model.predict_log_proba(data)
        if np.isnan(values).any():
            raise PcmcNetError(_TOO_FAR)
        ends = np.cumsum([len(job.data.rows) for job in batch])
        return np.split(values, ends[:-1])


class Admission:
    """The place of an admitted request, which puts its questions."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.coming = True

    def put(self, job: Job) -> Future[Any]:
        """Put a question in line."""
        first, self.coming = self.coming, False
        return self._worker.put(job, first=first)
