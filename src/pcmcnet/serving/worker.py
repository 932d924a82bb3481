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
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Condition, Thread
from time import monotonic
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data.kinds import KINDS
from pcmcnet.errors import PcmcNetError, shortened, shown
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logits.design.labels import UnseenLabelError
from pcmcnet.serving.batch import together
from pcmcnet.serving.jobs import Job, Pieces
from pcmcnet.serving.metrics import Metrics
from pcmcnet.serving.refusal import RefusalError, busy, unusable
from pcmcnet.serving.settings import ServeSettings

log = logging.getLogger("pcmcnet.serving")

_TOO_FAR = "the model has no answer for these values: they are too far from those it was trained on."


@runtime_checkable
class HasRates(Protocol):
    """A model of a Markov chain, which can show its rates."""

    def rates(self, data: Any) -> list[Floats]:
        """Return (n, n) rates of each set."""


def shows_rates(model: ChoiceModel) -> TypeGuard[HasRates]:
    """Tell whether a model has one chain, whose law is what it predicts; a mixture has several."""
    return isinstance(model, HasRates) and getattr(model, "n_chains", 1) == 1


class Worker:
    """The thread and what waits for it. The thread begins with the first job."""

    def __init__(self, models: Mapping[str, ChoiceModel], settings: ServeSettings) -> None:
        self.models = models
        self.settings = settings
        self.metrics = Metrics(lambda: self.under_way)
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
            return unusable(f"{job.place_of(error.label)}: the label {shown(error.label)} {error.what}")
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
