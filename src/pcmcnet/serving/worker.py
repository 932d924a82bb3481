"""Worker threads that run the models for all requests: one for small queries and two for large queries.

The cost of a query is its number of ordered pairs of alternatives, times a factor for the kind of query. Queries up to
a limit are small. Small queries that arrive while their thread is busy are predicted together in one batch. When the
thread is free, it waits a few milliseconds for requests that are still being read. So a small query waits for other
small ones only. Large queries are computed in other threads, one chunk of choice sets at a time. The second of these
threads waits while there are small queries, because it would take their processor time. Queries of similar cost, up to
a factor of two, are computed in the order of their arrival: if they took turns, all of them would finish late, and
under overload all would exceed the timeout. Queries of different cost take turns, so that none waits for the end of a
far larger one, and many smaller ones cannot hold up a large one for ever. A cancelled query stops between two chunks.
The number of requests in progress is limited. Further requests are rejected immediately. A query that fails
does not affect the other queries in its batch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Column, Contents, Numeric, concat_column
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.data.kinds import KINDS
from pcmcnet.errors import PcmcNetError, describe_value, shortened
from pcmcnet.layers.threads import at_most, threads
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.design import UnseenLabelError
from pcmcnet.serving.middleware import ServerMetrics
from pcmcnet.serving.request_body import RequestError, busy, unprocessable
from pcmcnet.serving.settings import ServeSettings

log = logging.getLogger("pcmcnet.serving")

# -- Batch -------------------------------------------------------------------------------------------------------------
# The choice sets of several requests are combined into one table, so that a model is called once.


def concat_requests(parts: Sequence[ChoiceData]) -> ChoiceData:
    """Concatenate choice data with the same schema, without unavailable rows."""
    first = parts[0]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.sizes for part in parts]))])
    labels = [part.labels for part in parts if part.labels is not None]
    return replace(
        first,
        offsets=offsets,
        set_ids=first.set_ids if len(parts) == 1 else np.arange(len(offsets) - 1),  # a single request keeps its ids
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
    """Concatenate categorical columns. Categories with the same name get the same code."""
    code_of: dict[str, int] = {}
    codes = []
    for column in columns:
        new_codes = np.array([code_of.setdefault(name, len(code_of)) for name in column.categories], np.int32)
        codes.append(new_codes[column.codes])
    return Categorical(np.concatenate(codes), tuple(code_of))


# -- Jobs --------------------------------------------------------------------------------------------------------------
# The queries of the workers, and the chunks of a large query.


QueryKind = Literal["log_proba", "rates", "offer"]
# Cost of one ordered pair of alternatives: rates are predicted in addition to the probabilities, and an offer compares
# its formula with the predictions for 16 offers.
COST_PER_PAIR: dict[QueryKind, int] = {"log_proba": 1, "rates": 2, "offer": 16}
MAX_SMALL_COST = 10_000  # 5 ms for a network of 64x64 units


@dataclass(frozen=True, slots=True)
class Job:
    """A query about choice sets. The result is (N,) log-probabilities, the (n, n) rates of one set, or an offer.

    A request cancels its query by cancelling the future ``result``.
    """

    model: str
    query: QueryKind
    data: ChoiceData
    request_sets: ChoiceData | None = None  # the sets of the request, if ``data`` was derived from them
    result: Future[Any] = field(default_factory=Future)
    evaluate: Callable[[ChoiceModel], Any] | None = None  # computes an offer
    is_of_search: bool = False  # one of many queries of a search or a market, which are never small
    variant: ChoiceModel | None = None  # to be asked instead of the served model, such as one with other coefficients

    @property
    def pairs(self) -> int:
        """Number of ordered pairs of alternatives."""
        return int((self.data.sizes**2).sum())

    @property
    def cost(self) -> int:
        """Estimated running time, in units of one ordered pair in a prediction."""
        return COST_PER_PAIR[self.query] * self.pairs

    def can_batch_with(self, other: Job) -> bool:
        """Return True if one call to the model can compute both queries."""
        return self.query == other.query == "log_proba" and self.model == other.model

    def position_of(self, label: str) -> str:
        """Return a description of where a label first occurs in the request."""
        data = self.data if self.request_sets is None else self.request_sets
        labels = data.labels
        assert labels is not None
        at = int(np.argmax(labels.codes == labels.categories.index(label)))
        k = int(data.set_of_alternative[at])
        hidden = int(((data.hidden_sets == k) & (data.hidden_rows < data.rows[at])).sum())
        return f"set {data.set_ids[k]}, alternative {at - int(data.offsets[k]) + hidden}"

    def finish(self, outcome: Any) -> None:
        """Set the result, or the error, unless the query was cancelled."""
        if self.result.set_running_or_notify_cancel():
            if isinstance(outcome, Exception):
                self.result.set_exception(outcome)
            else:
                self.result.set_result(outcome)


class ChunkedJob:
    """A large query, computed chunk by chunk. A chunk has sets of similar size, which need little padding."""

    def __init__(self, job: Job, sets: int, pairs: int) -> None:
        self.job = job
        self._order = np.argsort(job.data.sizes, kind="stable")
        self._starts = [*chunk_starts(job.data.sizes[self._order] ** 2, sets, pairs), len(job.data)]
        self._results: dict[int, Any] = {}
        self._n_started = 0
        self._lock = Lock()

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return len(self._starts) - 1

    @property
    def can_continue(self) -> bool:
        """Whether there are chunks that have not been started, of a query that was not cancelled and did not fail."""
        return self._n_started < self.n_chunks and not self.job.result.done()

    @property
    def cost_class(self) -> int:
        """Number of binary digits of the cost, which is equal for queries of similar cost."""
        return self.job.cost.bit_length()

    def start_next(self) -> int:
        """Return the number of the next chunk, which the caller computes."""
        self._n_started += 1
        return self._n_started - 1

    def query(self, chunk: int) -> Job:
        """Return the query about a chunk."""
        if self.n_chunks == 1:  # nothing to split
            return replace(self.job, result=Future())
        start, stop = self._starts[chunk : chunk + 2]
        return replace(self.job, data=self.job.data.subset(self._order[start:stop]), result=Future())

    def add(self, chunk: int, query: Job) -> None:
        """Add the result of a chunk. The first error, or the last chunk, finishes the job."""
        error = query.result.exception()
        with self._lock:
            if self.job.result.done():
                return
            if error is None:
                self._results[chunk] = query.result.result()
            if error is not None or len(self._results) == self.n_chunks:
                self.job.finish(error or self._joined())

    def _joined(self) -> Any:
        """Return the results of all chunks, in the order of the query."""
        if self.n_chunks == 1:
            return self._results[0]
        data = self.job.data
        values = np.concatenate([self._results[chunk] for chunk in range(self.n_chunks)])
        joined = np.empty_like(values)
        joined[consecutive_indices(data.offsets[:-1][self._order], data.sizes[self._order])] = values
        return joined


def chunk_starts(pairs: NDArray[np.int64], most_sets: int, most_pairs: int) -> list[int]:
    """Return the starts of chunks within both limits, given the pairs of each set. A single set may exceed a limit.

    Examples
    --------
    >>> chunk_starts(np.array([4, 4, 9, 25, 1, 1, 1]), most_sets=2, most_pairs=10)
    [0, 2, 3, 4, 6]
    """
    starts, total = [0], 0
    for k, of_set in enumerate(pairs.tolist()):
        if k > starts[-1] and (k - starts[-1] >= most_sets or total + of_set > most_pairs):
            starts.append(k)
            total = 0
        total += of_set
    return starts


# -- Worker ------------------------------------------------------------------------------------------------------------


QUIET_SECONDS = 1.0  # time without small queries after which all threads compute large ones

OUT_OF_RANGE = "the model has no finite prediction for these values: they are too far from its training data."


@runtime_checkable
class HasRates(Protocol):
    """A Markov chain model that can return its rates."""

    def rates(self, data: Any) -> list[Floats]:
        """Return the (n, n) rates of each choice set."""


def has_single_chain(model: ChoiceModel) -> TypeGuard[HasRates]:
    """Return True if predictions are the stationary distribution of one chain. A mixture has several chains."""
    return isinstance(model, HasRates) and getattr(model, "n_chains", 1) == 1


class Worker:
    """The worker threads and their queues. Each thread starts with its first job."""

    def __init__(self, models: Mapping[str, ChoiceModel], settings: ServeSettings) -> None:
        self.models = models
        self.settings = settings
        self.metrics = ServerMetrics(lambda: self.in_flight)
        self.in_flight = 0  # admitted requests without a response
        self._unqueued = 0  # admitted requests that are still being parsed
        self._waiting: deque[Job] = deque()
        self._large: dict[int, deque[ChunkedJob]] = {}  # by cost class; the next one to be served comes first
        self._changed = Condition()
        self._closed = False
        self._threads: dict[str, Thread] = {}  # by name
        self._large_threads = max(1, min(settings.large_threads, threads()))
        self._quiet_at = 0.0  # time of the monotonic clock at which all threads may compute large queries

    # -- on the event loop ------------------------------------------------------------------------------------

    @contextmanager
    def admit(self) -> Iterator[Admission]:
        """Admit a request for the duration of the block. Raise RequestError if the server is busy or stopping."""
        with self._changed:
            if (refusal := self.refusal()) is not None:
                raise refusal
            self.in_flight += 1
            self._unqueued += 1
        admission = Admission(self)
        try:
            yield admission
        finally:
            with self._changed:
                self.in_flight -= 1
                self._unqueued -= admission.is_unqueued
                self._changed.notify_all()

    def refusal(self) -> RequestError | None:
        """Return the error with which a request would be rejected now, or None if the server accepts requests."""
        if self._closed:
            return busy("the server is stopping", close=True)
        if self.in_flight >= self.settings.queue:
            return busy(f"the server has {self.in_flight} requests in progress")
        return None

    def put(self, job: Job, *, first: bool) -> Future[Any]:
        """Queue a job. ``first`` is True for the first job of a request."""
        sets, pairs = self.settings.batch_sets, self.settings.batch_pairs
        is_small = not job.is_of_search and len(job.data) <= sets and job.cost <= min(MAX_SMALL_COST, pairs)
        with self._changed:
            self._unqueued -= first
            if is_small:
                self._quiet_at = monotonic() + QUIET_SECONDS
                self._waiting.append(job)
                self._start("pcmcnet-small", self._run_small)
            else:
                work = ChunkedJob(job, sets, pairs)
                self._large.setdefault(work.cost_class, deque()).append(work)
                for number in range(self._large_threads):
                    self._start(f"pcmcnet-large-{number}", partial(self._run_large, number))
            self._changed.notify_all()
        return job.result

    def _start(self, name: str, run: Callable[[], None]) -> None:
        """Start a thread unless it is running."""
        if name not in self._threads:
            thread = Thread(target=run, name=name, daemon=True)
            thread.start()
            self._threads[name] = thread

    def open(self) -> None:
        """Admit requests again after a stop."""
        with self._changed:
            self._closed = False

    @property
    def stopping(self) -> bool:
        """True if no more requests are admitted."""
        return self._closed

    def stop(self) -> None:
        """Admit no more requests."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self, timeout: float | None = None) -> None:
        """Admit no more requests, compute those in the queues, and wait at most ``timeout`` seconds for the threads."""
        self.stop()
        threads, self._threads = self._threads, {}
        until = None if timeout is None else monotonic() + timeout
        for thread in threads.values():
            thread.join(None if until is None else max(0.0, until - monotonic()))

    # -- on the threads ---------------------------------------------------------------------------------------

    def _run_small(self) -> None:
        while (batch := self._next_small()) is not None:
            self._finish(batch)

    def _run_large(self, number: int) -> None:
        """Compute one chunk of the oldest large query of each cost class in turn, in one of the threads for them."""
        while (started := self._next_large(number)) is not None:
            work, chunk = started
            query = work.query(chunk)
            with at_most(threads() - 1 if number == 0 else 1):  # one core is left for small queries
                self._finish([query])
            work.add(chunk, query)
            with self._changed:
                if (queue := self._large.pop(work.cost_class, None)) is not None:
                    self._large[work.cost_class] = queue  # behind classes that have arrived meanwhile

    def _next_large(self, number: int) -> tuple[ChunkedJob, int] | None:
        """Wait for the next chunk of a large query. Return None when the worker is closed and the queues are empty.

        All threads but the first wait until there have been no small queries for some time.
        """
        with self._changed:
            while True:
                pause = 0.0 if number == 0 else self._quiet_at - monotonic()
                if self._large and pause <= 0:
                    if (work := self._pop_large()).can_continue:
                        return self._start_chunk(work)
                elif self._closed and (number > 0 or not self._large):
                    self._threads.pop(f"pcmcnet-large-{number}", None)  # a later query starts a new thread
                    return None
                else:
                    self._changed.wait(pause if self._large else None)

    def _pop_large(self) -> ChunkedJob:
        """Remove the oldest large query of the next cost class, and move the others of its class behind all classes."""
        cost_class = next(iter(self._large))
        queue = self._large.pop(cost_class)
        work = queue.popleft()
        if queue:
            self._large[cost_class] = queue
        return work

    def _start_chunk(self, work: ChunkedJob) -> tuple[ChunkedJob, int]:
        """Start the next chunk of a query, and keep the query in front of those of its class if it has more chunks."""
        chunk = work.start_next()
        if work.can_continue:
            self._large.setdefault(work.cost_class, deque()).appendleft(work)
        return work, chunk

    def _next_small(self) -> list[Job] | None:
        """Wait for the next batch of small queries. Return None when the worker is closed and the queue is empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                self._threads.pop("pcmcnet-small", None)  # a later query starts a new thread
                return None
            # Wait briefly for requests that are still being parsed, unless the batch is full.
            until = monotonic() + self.settings.gather
            while self._waiting and self._unqueued > 0 and (left := until - monotonic()) > 0:
                if self._next_batch()[1]:
                    break
                self._changed.wait(left)
            batch, self._waiting = self._next_batch()
            return batch

    def _next_batch(self) -> tuple[list[Job], deque[Job]]:
        """Split the queue into the next batch, within its limits, and the rest. Cancelled jobs are dropped."""
        batch: list[Job] = []
        rest: deque[Job] = deque()
        sets = pairs = 0
        for job in self._waiting:
            if job.result.cancelled():
                continue
            within = sets + len(job.data) <= self.settings.batch_sets and pairs + job.pairs <= self.settings.batch_pairs
            if not batch or (not rest and within and job.can_batch_with(batch[0])):
                batch.append(job)
                sets, pairs = sets + len(job.data), pairs + job.pairs
            else:
                rest.append(job)
        return batch, rest

    def _finish(self, batch: list[Job]) -> None:
        """Compute a batch and set the results of its jobs."""
        if batch:
            self.metrics.batch(sets=sum(len(job.data) for job in batch), requests=len(batch))
            for job, outcome in zip(batch, self._outcomes(batch), strict=True):
                job.finish(outcome)

    def _outcomes(self, batch: list[Job]) -> list[Any]:
        """Return the result or the error of each job: from one call to the model or, if it fails, one call per job."""
        try:
            return self._compute(batch)
        except Exception as error:  # noqa: BLE001 - the thread survives all errors of models
            if len(batch) == 1:
                return [self._client_error(batch[0], error)]
            return [outcome for job in batch for outcome in self._outcomes([job])]

    def _client_error(self, job: Job, error: Exception) -> Exception:
        """Return an error of the model, reworded for the client."""
        if isinstance(error.__cause__, IndexError):
            for kind in self.models[job.model].schema.contents.values():
                if (message := KINDS[kind].unknown) is not None:
                    return unprocessable(message)
        if isinstance(error, UnseenLabelError):
            return unprocessable(
                f"{job.position_of(error.label)}: the label {describe_value(error.label)} {error.what}"
            )
        if isinstance(error, PcmcNetError):
            return unprocessable(shortened(str(error)))
        log.error("a model failed", exc_info=error)
        return error

    def _compute(self, batch: list[Job]) -> list[Any]:
        """Return the result of each job from one call to the model. Raise PcmcNetError if a result is not finite."""
        model = batch[0].variant or self.models[batch[0].model]
        data = concat_requests([job.data for job in batch])
        if batch[0].query == "rates":
            assert isinstance(model, HasRates)
            (rates,) = model.rates(data)
            if not np.isfinite(rates).all():
                raise PcmcNetError(OUT_OF_RANGE)
            return [rates]
        if batch[0].evaluate is not None:
            return [batch[0].evaluate(model)]
        values = model.predict_log_proba(data)
        if np.isnan(values).any():
            raise PcmcNetError(OUT_OF_RANGE)
        ends = np.cumsum([len(job.data.rows) for job in batch])
        return np.split(values, ends[:-1])


class Admission:
    """An admitted request, which may queue several jobs."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.is_unqueued = True

    def put(self, job: Job) -> Future[Any]:
        """Queue a job and return the future of its result."""
        first, self.is_unqueued = self.is_unqueued, False
        return self._worker.put(job, first=first)


@dataclass(frozen=True)
class QueuedModel:
    """A served model for a search in another thread. Each call waits in the queue of large queries."""

    name: str
    admission: Admission
    until: float  # of the monotonic clock; a call that ends later raises RequestError

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        """Return the log-probability of each alternative."""
        pending = self.admission.put(Job(self.name, "log_proba", data, is_of_search=True))
        try:
            log_p: Floats = pending.result(max(0.0, self.until - monotonic()))
        except TimeoutError:
            pending.cancel()
            raise RequestError(504, "timeout during the search for the offer: try again later.") from None
        return log_p
