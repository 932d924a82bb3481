"""One thread that asks the models, for all requests.

Requests that wait while it is busy are answered together by one call; so are those that are just being read when it is
free, for which it waits a few milliseconds. What is under way is bounded: beyond that a request is turned away at once.
One question that a model refuses does not spoil the answers to the others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition, Thread
from time import monotonic
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.errors import PcmcNetError
from pcmcnet.models.base import ChoiceModel, Floats
from pcmcnet.serving.batch import together
from pcmcnet.serving.metrics import Metrics
from pcmcnet.serving.refusal import RefusalError, shortened, unusable
from pcmcnet.serving.settings import ServeSettings

log = logging.getLogger("pcmcnet.serving")

_TOO_FAR = "the model has no answer for these values: they are too far from those it was trained on."
_UNKNOWN_ID = "the model's module knows no such id: expected ids that it was made for."
Question = Literal["log_proba", "rates"]


@runtime_checkable
class HasRates(Protocol):
    """A model of a Markov chain, which can show its rates."""

    def rates(self, data: Any) -> list[Floats]:
        """Return (n, n) rates of each set."""


@dataclass(frozen=True, slots=True)
class Job:
    """A question about some sets; the answer is (N,) log-probabilities, or the (n, n) rates of the one set."""

    model: str
    question: Question
    data: ChoiceData
    answer: Future[Any] = field(default_factory=Future)

    @property
    def pairs(self) -> int:
        """Ordered pairs of alternatives."""
        return int((self.data.sizes**2).sum())

    def goes_with(self, other: Job) -> bool:
        """Tell whether one call can answer both."""
        return self.question == other.question == "log_proba" and self.model == other.model


class Worker:
    """The thread and what waits for it. The thread begins with the first job."""

    def __init__(self, models: Mapping[str, ChoiceModel], settings: ServeSettings) -> None:
        self.models = models
        self.settings = settings
        self.metrics = Metrics(lambda: self.under_way)
        self.under_way = 0  # admitted requests that are not answered yet
        self._coming = 0  # those of them that have not put their question yet
        self._waiting: deque[Job] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    # -- on the event loop ------------------------------------------------------------------------------------

    @contextmanager
    def admit(self) -> Iterator[Admission]:
        """Let a request in, or turn it away."""
        with self._changed:
            if self._closed or self.under_way >= self.settings.queue:
                why = "is stopping" if self._closed else f"has {self.under_way} requests under way"
                raise RefusalError(503, f"the server {why}: try again in a moment.", {"Retry-After": "1"})
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

    def put(self, job: Job, *, first: bool) -> Future[Any]:
        """Put a question in line; ``first`` says that its request has put none before."""
        with self._changed:
            self._coming -= first
            self._waiting.append(job)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="pcmcnet-worker", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return job.answer

    def open(self) -> None:
        """Admit requests again after an end."""
        with self._changed:
            self._closed = False

    def close(self) -> None:
        """Admit nothing more, answer what waits, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    # -- on the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            batch = self._next()
            if not batch:
                return
            started = [job for job in batch if job.answer.set_running_or_notify_cancel()]
            if started:
                self.metrics.batch(sets=sum(len(job.data) for job in started), requests=len(started))
                self._answer(started)

    def _next(self) -> list[Job]:
        """Wait for a batch; an empty one means the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            until = monotonic() + self.settings.gather
            while self._waiting and self._coming > 0 and not self._full() and (left := until - monotonic()) > 0:
                self._changed.wait(left)
            batch, rest = self._cut()
            self._waiting = rest
            return batch

    def _full(self) -> bool:
        return len(self._cut()[1]) > 0

    def _cut(self) -> tuple[list[Job], deque[Job]]:
        """Take the first job and those that go with it, in their order, within the bounds of a batch."""
        batch: list[Job] = []
        rest: deque[Job] = deque()
        sets = pairs = 0
        for job in self._waiting:
            within = sets + len(job.data) <= self.settings.batch_sets and pairs + job.pairs <= self.settings.batch_pairs
            if not batch or (not rest and within and job.goes_with(batch[0])):
                batch.append(job)
                sets, pairs = sets + len(job.data), pairs + job.pairs
            else:
                rest.append(job)
        return batch, rest

    def _answer(self, batch: list[Job]) -> None:
        """Ask the model once, or one by one where that fails."""
        try:
            answers = self._ask(batch)
        except Exception as error:  # whatever a model raises, the thread goes on
            if len(batch) > 1:
                for job in batch:
                    self._answer([job])
            elif isinstance(error.__cause__, IndexError) and "id" in self.models[batch[0].model].schema.kinds.values():
                batch[0].answer.set_exception(unusable(_UNKNOWN_ID))
            elif isinstance(error, PcmcNetError):
                batch[0].answer.set_exception(unusable(shortened(str(error))))
            else:
                log.exception("a model failed")
                batch[0].answer.set_exception(error)
            return
        for job, answer in zip(batch, answers, strict=True):
            job.answer.set_result(answer)

    def _ask(self, batch: list[Job]) -> list[Any]:
        model, data = self.models[batch[0].model], together([job.data for job in batch])
        if batch[0].question == "rates":
            assert isinstance(model, HasRates)
            (rates,) = model.rates(data)
            if not np.isfinite(rates).all():
                raise PcmcNetError(_TOO_FAR)
            return [rates]
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
