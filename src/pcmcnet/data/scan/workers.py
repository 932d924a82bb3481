"""Pieces of a table, several at a time: results come in the order of the pieces, whoever is done first.

So what is put together from them is the same, to the last bit, for any number of workers. Those of one machine are this
process and helpers beside it. Threads would be simpler, but gain half as much: they wait for Python's lock between the
many short calls (measured). ``pcmcnet.cluster`` has workers on other machines.

A helper is a fresh interpreter that reads pickled tasks from a pipe and answers by another one. It never imports the
user's script, as those of ``multiprocessing`` do, which would run it again where it has no guard. It gets its first
task when it has started: until then others take them, and where they are done before, it is not waited for.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, TypeVar

import numpy as np

from pcmcnet.checks import require_number
from pcmcnet.errors import PcmcNetError

T = TypeVar("T")
U = TypeVar("U")
Outcome = tuple[bool, Any]  # whether it went well, and the result, or else the error to raise

_BY_DEFAULT = 2  # each takes up to two fifths of the memory allowed while it converts a shard (measured)
_PROGRAM = f"from {__name__} import serve; serve()"
_READY = b"!"
_SOON = 0.01  # seconds, in which to see that there is nothing left to help with
_WORTH = 10**8  # values of a table that take some five seconds; with half as many, hardly any is gained (measured)


def keep_freed_memory() -> None:
    """Have the C library keep up to 64 MiB that are freed, for the next array: a worker takes much of it in turns.

    By default glibc returns all above some MiB to the system, which clears each page before it comes back: a quarter of
    the time to make a shard (measured). It learns from the largest array freed so far, if that has up to 32 MiB. The
    memory of this one is never touched.
    """
    np.empty(2**25 - 2**16, np.uint8)


class Workers(Protocol):
    """Who does the work."""

    @property
    def count(self) -> int:
        """How many there are."""

    def map(self, function: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
        """Yield what a function makes of each item, in their order; what it raises is raised in its turn."""

    def __enter__(self) -> Workers:
        """Stay ready for further work within a block."""

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        """Need them no longer."""


def workers_for(number: int | None, values: float = 0.0) -> Processes:
    """Take so many processes, or by default two, where there are two cores and a table has values enough."""
    if number is None:
        startable = sys.executable and not getattr(sys, "frozen", False)  # a program of its own would start itself
        return Processes(min(_BY_DEFAULT, os.cpu_count() or 1) if values >= _WORTH and startable else 1)
    require_number("workers", number, whole=True, low=1)
    return Processes(number)


class Processes:
    """The process itself, and helpers beside it while they are needed."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._helpers: list[_Helper] = []
        self._inside = 0

    def __enter__(self) -> Processes:
        self._inside += 1
        for helper in [helper for helper in self._helpers if helper.process.poll() is not None]:
            helper.end(at_once=True)
            self._helpers.remove(helper)
        while len(self._helpers) < self.count - 1:
            self._helpers.append(_Helper())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        self._inside -= 1
        if not self._inside:
            for helper in self._helpers:
                helper.end(at_once=error is not None)
            self._helpers = []

    def map(self, function: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
        """Work on the items here and in helpers, each taking the next one when it is done with its own."""
        keep_freed_memory()
        if self.count == 1 or len(items) < 2:
            yield from map(function, items)
            return
        with self:
            yield from _Shared(function, items).results(self._helpers)


class _Shared:
    """Items of which whoever is free takes the next one, and their results."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.function, self.items = function, items
        self.found: dict[int, Outcome] = {}  # by the number of the item
        self.taken, self.failed, self.workers = 0, False, 1
        self.change = threading.Condition()

    def results(self, helpers: Sequence[_Helper]) -> Iterator[Any]:
        """Yield results in the order of the items."""
        given = pickle.dumps(self.function)
        self.workers += len(helpers)
        # 1. A thread for each helper hands it items and takes its answers.
        threads = [threading.Thread(target=self._by_helper, args=(helper, given), daemon=True) for helper in helpers]
        for thread in threads:
            thread.start()
        # 2. Work on items here, too, until the next result in order is there.
        try:
            for k in range(len(self.items)):
                while k not in self.found and (mine := self._next()) is not None:
                    self._done(mine, _outcome(self.function, self.items[mine]))
                with self.change:
                    while k not in self.found:
                        self.change.wait()
                fine, result = self.found.pop(k)
                if not fine:
                    raise result
                yield result
        except BaseException:  # nobody waits for what helpers are at
            for helper in helpers:
                helper.process.kill()
            raise
        finally:
            self.failed = True
            for thread in threads:
                thread.join()

    def _next(self) -> int | None:
        """Take an item, unless there is none left, or one has failed."""
        with self.change:
            if self.failed or self.taken == len(self.items):
                return None
            self.taken += 1
            return self.taken - 1

    def _done(self, number: int, outcome: Outcome) -> None:
        with self.change:
            self.found[number] = outcome
            self.change.notify_all()

    def _by_helper(self, helper: _Helper, function: bytes) -> None:
        """Hand items to a helper: the next one before an answer, or it would wait for us.

        Items are to be small, so that they fit into a pipe which nobody reads yet.
        """
        while not helper.ready.wait(_SOON):
            if self.failed or self.taken == len(self.items):
                return
        sent: deque[int] = deque()
        try:
            while True:
                # one item ahead, but none where few are left, which whoever is free had better take
                ahead = 2 if len(self.items) - self.taken > 2 * self.workers else 1
                while len(sent) < ahead and (number := self._next()) is not None:
                    sent.append(number)
                    pickle.dump((function, self.items[number]), helper.tasks)
                    helper.tasks.flush()
                    function = b""  # it knows it from now on
                if not sent:
                    return
                self._done(sent[0], pickle.load(helper.answers))
                sent.popleft()
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait for its answers are to hear of it
            died = f"a process that helped to read the table died ({error!r}): try again, with workers=1."
            for number in sent:
                self._done(number, (False, PcmcNetError(died)))


class _Helper:
    """An interpreter that finds the same packages; ``ready`` once it has loaded what it needs."""

    def __init__(self) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.tasks, self.answers = self.process.stdin, self.process.stdout
        self.ready = threading.Event()
        self._start = threading.Thread(target=self._wait, daemon=True)
        self._start.start()

    def _wait(self) -> None:
        self.answers.read(len(_READY))  # none comes from one that died, as its first task will tell
        self.ready.set()

    def end(self, *, at_once: bool) -> None:
        """Let it end by itself, or at once, as one that has not even started."""
        if at_once or not self.ready.is_set():
            self.process.kill()
        self._start.join()
        with suppress(OSError):  # one that died leaves what it did not read
            self.tasks.close()
        self.answers.close()
        self.process.wait()


def _outcome(function: Callable[[Any], Any], item: Any) -> Outcome:
    try:
        return True, function(item)
    except Exception as error:  # noqa: BLE001 - raised again in its turn
        return False, error


def serve() -> None:
    """Do what the pipe of a helper asks for, until it is closed."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks hears it, and closes the pipe
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print is no answer
    keep_freed_memory()
    answers.write(_READY)
    answers.flush()
    function: Callable[[Any], Any] = repr  # until the first task brings one
    while True:
        try:
            given, item = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)  # at once: what an interpreter does at its end takes as long as a piece
        function = pickle.loads(given) if given else function
        pickle.dump(_outcome(function, item), answers)
        answers.flush()
