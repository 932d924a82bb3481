"""Workers that process items in parallel and return the results in the order of the items.

Results that are combined in the order of the items are identical, to the last bit, for any number of workers. On one
machine, the workers are the current process and its helper processes. Threads would be simpler, but in measurements
they gave only half the speed-up, because threads wait for Python's global interpreter lock between many short calls.
``pcmcnet.cluster`` provides workers on other machines.

A helper is a new interpreter that reads pickled tasks from one pipe and writes results to another. Unlike the processes
of ``multiprocessing``, a helper does not import the user's script, because a script without a main guard would run
again. A helper gets its first task after it has started. While a helper starts, the other workers process the items. If
the other workers finish first, they do not wait for the new helper.
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
from pcmcnet.concurrency import can_start_interpreter, interpreter_command
from pcmcnet.errors import PcmcNetError

T = TypeVar("T")
U = TypeVar("U")
TaskOutcome = tuple[bool, Any]  # True and the result, or False and the exception

_DEFAULT_WORKERS = 2  # each takes up to two fifths of the memory while it converts a shard (measured)
_PROGRAM = f"from {__name__} import run_helper; run_helper()"
_READY = b"!"
_POLL_SECONDS = 0.01  # between checks whether items are left while a helper starts
_MIN_PARALLEL_VALUES = 10**8  # values of a table, about five seconds; with half as many, little is gained (measured)


def keep_freed_memory() -> None:
    """Make the C library keep up to 64 MiB of freed memory for the next array.

    By default, glibc returns large freed blocks to the system, which clears each page before it is used again. In
    measurements, clearing pages took a quarter of the time needed to write a shard. The size limit of glibc adapts to
    the largest block freed so far, up to 32 MiB, so this function allocates and frees a block of nearly 32 MiB, whose
    pages are never touched.
    """
    np.empty(2**25 - 2**16, np.uint8)


class Workers(Protocol):
    """Workers that process items in parallel."""

    @property
    def count(self) -> int:
        """Number of workers."""

    def map(self, function: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
        """Yield the results of a function on all items, in order.

        If an item fails, its exception is raised in place of its result.
        """

    def __enter__(self) -> Workers:
        """Keep the workers running for several calls of :meth:`map`."""

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        """Release the workers."""


def workers_for(number: int | None, values: float = 0.0) -> Processes:
    """Return ``number`` processes. The default is two processes for a large table on at least two cores, otherwise one.

    ``values`` is the number of values in the table.
    """
    if number is None:
        use_default = values >= _MIN_PARALLEL_VALUES and can_start_interpreter()
        return Processes(min(_DEFAULT_WORKERS, os.cpu_count() or 1) if use_default else 1)
    require_number("workers", number, whole=True, low=1)
    return Processes(number)


class Processes:
    """The current process and its helper processes, which run only while they are needed."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._helpers: list[HelperProcess] = []
        self._depth = 0  # of nested with blocks

    def __enter__(self) -> Processes:
        self._depth += 1
        for helper in [helper for helper in self._helpers if helper.process.poll() is not None]:
            helper.end(kill=True)
            self._helpers.remove(helper)
        while len(self._helpers) < self.count - 1:
            self._helpers.append(HelperProcess())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        self._depth -= 1
        if not self._depth:
            for helper in self._helpers:
                helper.end(kill=error is not None)
            self._helpers = []

    def map(self, function: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
        """Process items in this process and in helpers.

        Each worker takes the next item when it has finished the last one.
        """
        keep_freed_memory()
        if self.count == 1 or len(items) < 2:
            yield from map(function, items)
            return
        with self:
            yield from _SharedItems(function, items).results(self._helpers)


class _SharedItems:
    """Items that idle workers take one by one, and the results of these items."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.function, self.items = function, items
        self.outcomes: dict[int, TaskOutcome] = {}  # by the number of the item
        self.taken, self.stopped, self.workers = 0, False, 1
        self.change = threading.Condition()

    def results(self, helpers: Sequence[HelperProcess]) -> Iterator[Any]:
        """Yield results in the order of the items."""
        pickled = pickle.dumps(self.function)
        self.workers += len(helpers)
        # 1. Start a thread per helper, which sends it items and receives its results.
        threads = [threading.Thread(target=self._feed, args=(helper, pickled), daemon=True) for helper in helpers]
        for thread in threads:
            thread.start()
        # 2. Process items in this thread, too, until the next result in order is available.
        try:
            for k in range(len(self.items)):
                while k not in self.outcomes and (number := self._next()) is not None:
                    self._finish(number, _outcome(self.function, self.items[number]))
                with self.change:
                    while k not in self.outcomes:
                        self.change.wait()
                succeeded, result = self.outcomes.pop(k)
                if not succeeded:
                    raise result
                yield result
        except BaseException:  # the results of running tasks are not needed
            for helper in helpers:
                helper.process.kill()
            raise
        finally:
            self.stopped = True
            for thread in threads:
                thread.join()

    def _next(self) -> int | None:
        """Return the index of the next item, or None if no item is left or the computation has stopped."""
        with self.change:
            if self.stopped or self.taken == len(self.items):
                return None
            self.taken += 1
            return self.taken - 1

    def _finish(self, number: int, outcome: TaskOutcome) -> None:
        with self.change:
            self.outcomes[number] = outcome
            self.change.notify_all()

    def _feed(self, helper: HelperProcess, function: bytes) -> None:
        """Send items to a helper. The next item is sent before the last result is read, so the helper does not wait.

        Items must fit into the buffer of a pipe, because the helper does not read the next item while it processes one.
        """
        while not helper.ready.wait(_POLL_SECONDS):
            if self.stopped or self.taken == len(self.items):
                return
        sent: deque[int] = deque()
        try:
            while True:
                # Send one item ahead, unless few are left: an idle worker can process those sooner.
                limit = 2 if len(self.items) - self.taken > 2 * self.workers else 1
                while len(sent) < limit and (number := self._next()) is not None:
                    sent.append(number)
                    pickle.dump((function, self.items[number]), helper.tasks)
                    helper.tasks.flush()
                    function = b""  # the helper keeps it
                if not sent:
                    return
                self._finish(sent[0], pickle.load(helper.results))
                sent.popleft()
        except Exception as error:  # noqa: BLE001 - any error must reach the thread that waits for the results
            message = f"a helper process that read the table ended unexpectedly ({error!r}): try again with workers=1."
            for number in sent:
                self._finish(number, (False, PcmcNetError(message)))


class HelperProcess:
    """A helper process with the import path of the current process, but without the working folder.

    ``ready`` is set when the process has imported everything, including ``module``, which its tasks may need.
    """

    def __init__(self, module: str | None = None) -> None:
        command, environment = interpreter_command(_PROGRAM if module is None else f"import {module}; {_PROGRAM}")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.tasks, self.results = self.process.stdin, self.process.stdout
        self.ready = threading.Event()
        self._starter = threading.Thread(target=self._wait_until_ready, daemon=True)
        self._starter.start()

    def _wait_until_ready(self) -> None:
        self.results.read(len(_READY))  # also returns if the process died; its first task then raises
        self.ready.set()

    def end(self, *, kill: bool) -> None:
        """Kill the process, or only close its pipe if it has started and ``kill`` is False."""
        if kill or not self.ready.is_set():
            self.process.kill()
        self._starter.join()
        with suppress(OSError):  # closing flushes tasks that a dead process did not read
            self.tasks.close()
        self.results.close()
        self.process.wait()


def _outcome(function: Callable[[Any], Any], item: Any) -> TaskOutcome:
    try:
        return True, function(item)
    except Exception as error:  # noqa: BLE001 - raised again when its result is due
        return False, error


def run_helper() -> None:
    """Run tasks from standard input until it is closed, as the main program of a helper process."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes the pipe
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text goes to standard error, not into the results
    keep_freed_memory()
    results.write(_READY)
    results.flush()
    function: Callable[[Any], Any] = repr  # replaced by the first task
    while True:
        try:
            pickled, item = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)  # a normal exit of the interpreter takes as long as a chunk
        function = pickle.loads(pickled) if pickled else function
        pickle.dump(_outcome(function, item), results)
        results.flush()
