"""Searches for offers, one at a time, in a separate process with low priority.

A search runs Python code for up to a few seconds. In a thread of the server, it would hold the interpreter lock and so
delay the threads that read and answer other requests. All services of the server share one search process, which
starts with the first search. The number of searches in progress is limited; further requests get status 503.

If a model must be called for every offer, the search runs in a thread of the server, because the process has no models.
Each call is then a query in the queue of large queries, so that other queries are computed between two calls.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.concurrency import can_start_interpreter
from pcmcnet.data.scan.workers import HelperProcess
from pcmcnet.decisions.branch_and_bound import SearchResult, local_search, starting_offers
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.offer_value import BlackBoxModel, OfferValue, expected_revenue
from pcmcnet.decisions.optimise_offer import improve_and_bound
from pcmcnet.layers.threads import one_thread_per_operation
from pcmcnet.serving.request_body import RequestError, busy

MAX_OFFERS = 16  # in progress
SEARCH_SECONDS = 2.0  # for the local searches and the proof of optimality
_PROOF_SECONDS = 1.0  # part of SEARCH_SECONDS that is reserved for the proof
_GRACE_SECONDS = 10.0  # a process that has not answered this long after the time of its search is killed
_STARTS = 2  # local searches, in addition to the one from the current offer
_PRIORITY = 10  # added to the nice value of the server: a higher nice value is a lower priority

SearchTask = tuple[OfferValue, ConstraintRows, Bools, float]  # the arguments of search_offer


class FoundOffer(NamedTuple):
    """The best offer of a search, and choice probabilities."""

    best: SearchResult
    probabilities: Floats  # (2, n) for the best offer and for the current one


def search_offer(value: OfferValue, rows: ConstraintRows, now: Bools, seconds: float) -> FoundOffer:
    """Return the best offer of a search from a few starts, and a bound, after about ``seconds`` at the latest."""
    end = time.monotonic() + seconds
    starts = starting_offers(rows, value.revenue, _STARTS, np.random.default_rng(0))
    if rows.allow(now[None])[0]:
        starts = np.concatenate([starts, now[None]])
    offers, values = local_search(
        lambda candidates, _: expected_revenue(value, candidates),
        rows,
        starts,
        stop=lambda: time.monotonic() > end - min(_PROOF_SECONDS, seconds / 2),
    )
    deadline = min(end, time.monotonic() + _PROOF_SECONDS)
    best = improve_and_bound(value, rows, offers[values.argmax()], deadline=deadline)
    return FoundOffer(best, value.probabilities(np.stack([best.offer, now]), np.zeros(2, np.int64)))


class OfferSearcher:
    """A process that searches for offers, and the searches that wait for it."""

    def __init__(self, most: int = MAX_OFFERS) -> None:
        self.most, self.in_progress = most, 0
        self._pool = ThreadPoolExecutor(1, "pcmcnet-offers")
        self._process: HelperProcess | None = None

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Count an offer during the block. Raise RequestError if too many offers are in progress."""
        if self.in_progress >= self.most:
            raise busy(f"the server has {self.in_progress} offers in progress")
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1

    async def search(self, value: OfferValue, rows: ConstraintRows, now: Bools, until: float) -> FoundOffer:
        """Return the best offer found by ``until``, in seconds of the monotonic clock."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._search, value, rows, now, until)

    def _search(self, value: OfferValue, rows: ConstraintRows, now: Bools, until: float) -> FoundOffer:
        """Run a search in the process, or in this thread if it calls a model or no process can be started."""
        process = None
        # 1. Wait for the process, and compute the time that is left for the search.
        if can_start_interpreter() and not isinstance(value, BlackBoxModel):
            process = self._process = self._process or HelperProcess(__name__)
            process.ready.wait(max(0.0, until - time.monotonic()))
        seconds = min(SEARCH_SECONDS, until - time.monotonic())
        if seconds <= 0 or (process is not None and not process.ready.is_set()):
            raise RequestError(504, "timeout before the search for the offer began: try again later.")
        if process is None:
            return search_offer(value, rows, now, seconds)
        # 2. Send the search, and read its result. A search that does not stop is killed with its process.
        limit = threading.Timer(seconds + _GRACE_SECONDS, process.process.kill)
        limit.start()
        try:
            pickle.dump((_FUNCTION, (value, rows, now, seconds)), process.tasks)
            process.tasks.flush()
            succeeded, result = pickle.load(process.results)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self.close()  # the next search starts a new process
            raise busy("the search for the offer ended unexpectedly") from error
        finally:
            limit.cancel()
        if not succeeded:
            raise result
        found: FoundOffer = result
        return found

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.end(kill=True)


def _run_task(task: SearchTask) -> FoundOffer:
    """Run a search in the process, on one thread."""
    _lower_priority()
    with one_thread_per_operation(0):
        return search_offer(*task)


_FUNCTION = pickle.dumps(_run_task)


@cache
def _lower_priority() -> None:
    with suppress(AttributeError, OSError):  # not on Windows
        os.nice(_PRIORITY)


@cache
def shared_searcher() -> OfferSearcher:
    """Return the searcher of this process, which ends with it."""
    searcher = OfferSearcher()
    atexit.register(searcher.close)
    return searcher
