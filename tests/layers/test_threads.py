"""Small batches run on one thread, large ones in parallel parts, and the number of threads is restored."""

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pcmcnet.layers.settings import MIN_MULTIPLICATIONS_FOR_THREADS as ENOUGH
from pcmcnet.layers.threads import (
    _pool,
    at_most,
    iterate_in_parallel,
    one_thread_if_small,
    one_thread_per_operation,
    run_in_threads,
    threads,
)


@pytest.fixture(autouse=True)
def three_threads(threads: Callable[[int], None]) -> None:
    threads(3)


@pytest.mark.parametrize(("work", "number"), [(0, 1), (ENOUGH - 1, 1), (ENOUGH, 3), (1e12, 3)])
def test_only_large_work_uses_several_threads(work: float, number: int) -> None:
    with one_thread_if_small(work):
        assert torch.get_num_threads() == number
    assert torch.get_num_threads() == 3


def test_the_number_of_threads_is_restored_after_an_error() -> None:
    with pytest.raises(KeyError), one_thread_if_small(0):
        raise KeyError
    assert torch.get_num_threads() == 3


def test_a_thread_started_in_small_work_uses_all_threads_later() -> None:
    """PyTorch starts the thread with the single thread that the small work has set."""
    thread_counts = []

    def work() -> None:
        thread_counts.append(torch.get_num_threads())
        with one_thread_if_small(ENOUGH):
            thread_counts.append(torch.get_num_threads())
        with one_thread_if_small(0):
            thread_counts.append(torch.get_num_threads())
        thread_counts.append(torch.get_num_threads())

    with one_thread_if_small(0):
        other = threading.Thread(target=work)
        other.start()
        other.join()
        assert torch.get_num_threads() == 1
    assert thread_counts == [1, 3, 1, 3]
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(("work", "number"), [(0, 1), (ENOUGH - 1, 1), (ENOUGH, 3), (1e12, 3)])
def test_parallel_parts_use_one_thread_per_operation(work: float, number: int) -> None:
    """Threads that share an operation busy-wait for each other, which is slow on a shared machine."""
    with one_thread_per_operation(work):
        assert (torch.get_num_threads(), threads()) == (1, number)
    assert (torch.get_num_threads(), threads()) == (3, 3)


@pytest.mark.parametrize(("count", "number"), [(0, 1), (1, 1), (2, 2), (8, 3)])
def test_a_limit_on_the_number_of_parts_also_holds_for_large_work(count: int, number: int) -> None:
    with at_most(count), one_thread_per_operation(ENOUGH):
        assert (torch.get_num_threads(), threads()) == (1, number)
    assert (torch.get_num_threads(), threads()) == (3, 3)


def test_small_work_inside_large_work_is_one_part() -> None:
    with one_thread_per_operation(ENOUGH):
        with pytest.raises(KeyError), one_thread_per_operation(0):
            raise {1: KeyError}[threads()]
        assert (torch.get_num_threads(), threads()) == (1, 3)
        thread_counts = run_in_threads(lambda _: torch.get_num_threads(), [1, 2, 3, 4])
        assert (thread_counts, torch.get_num_threads()) == ([1] * 4, 1)
    assert (torch.get_num_threads(), threads()) == (3, 3)


def test_large_work_in_a_new_thread_uses_all_threads() -> None:
    thread_counts = []

    def work() -> None:
        with one_thread_per_operation(ENOUGH):
            thread_counts.append((torch.get_num_threads(), threads()))

    with one_thread_per_operation(0):
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert thread_counts == [(1, 3)]


# -- parts --------------------------------------------------------------------------------------------------------


def test_parts_run_in_parallel_with_ordered_results() -> None:
    all_there = threading.Barrier(3)

    def double(part: int) -> tuple[int, int, str, bool]:
        all_there.wait(timeout=60)  # no part can end before all have started
        return 2 * part, torch.get_num_threads(), threading.current_thread().name, torch.is_grad_enabled()

    numbers, threads, names, graphs = zip(*run_in_threads(double, [1, 2, 3]), strict=True)
    assert numbers == (2, 4, 6)
    assert threads == (1, 1, 1)
    assert len(set(names)) == 3
    assert not any(graphs)
    assert torch.get_num_threads() == 3


def test_a_single_part_runs_in_its_thread_with_all_cores() -> None:
    assert run_in_threads(lambda _: (threading.current_thread(), torch.get_num_threads()), [0]) == [
        (threading.current_thread(), 3)
    ]


def test_no_parts_give_no_results() -> None:
    assert run_in_threads(lambda part: part, []) == []


def test_later_threads_have_the_original_number() -> None:
    run_in_threads(torch.zeros, [1, 2])
    thread_counts: list[int] = []
    thread = threading.Thread(target=lambda: thread_counts.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert thread_counts == [3]


def test_an_error_in_a_part_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_in_threads(lambda part: 1 // part, [1, 0, 2])
    assert torch.get_num_threads() == 3


def test_a_thread_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may already be in the queue; if computed twice, it would overwrite the result of another thread."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    _pool.cache_clear()
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="can't start"):
        run_in_threads(abs, [1, 2])
    _pool.cache_clear()
    assert torch.get_num_threads() == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_has_its_own_threads() -> None:
    run_in_threads(abs, [1, 2, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from Python 3.12 on, forking with threads gives a warning
        child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if run_in_threads(abs, [-1, -2, -3]) == [1, 2, 3] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_work_continues_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    """No pool accepts work then, but a thread of the user may still be fitting."""
    script = f"""
import threading, torch
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.layers.threads import iterate_in_parallel, run_in_threads
torch.set_num_threads(2)
table = {{"s": [0, 0, 1, 1, 2, 2], "y": [1, 0, 0, 1, 1, 0], "x": [1.0, 2.0, 1.0, 3.0, 0.0, 2.0]}}
data = ChoiceData.from_long(table, choice_set="s", chosen="y", features=["x"])
def work():
    threading.main_thread().join()
    print(run_in_threads(abs, [-1, -2]))
    print(list(iterate_in_parallel(abs, [-1, -2], max_workers=2, on_abort=list)))
    model = PCMCNet(hidden=(2,), epochs=2, weight_decay=0.1, members=3)
    model.fit(data, progress=False, run_folder={str(tmp_path / "run")!r})
    print(len(model.history))
threading.Thread(target=work).start()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("[1, 2]\n" * 2 + "2\n", "")
    assert (tmp_path / "run" / "network-3-checkpoint.safetensors").exists()


def test_parallel_results_come_in_order() -> None:
    """Both wait for each other, so they must run at the same time."""
    together = threading.Barrier(2, timeout=30)

    def work(part: int) -> tuple[int, int, int, bool]:
        together.wait()
        return part, torch.get_num_threads(), threads(), torch.is_grad_enabled()

    results = list(iterate_in_parallel(work, [1, 2, 3, 4], max_workers=2, on_abort=lambda: None))
    assert results == [(part, 1, 1, True) for part in (1, 2, 3, 4)]
    assert torch.get_num_threads() == 3


def test_one_worker_uses_the_calling_thread() -> None:
    threads = iterate_in_parallel(lambda _: threading.current_thread(), [1, 2], max_workers=1, on_abort=lambda: None)
    assert set(threads) == {threading.current_thread()}


def test_a_failure_aborts_the_other_tasks() -> None:
    begun, ended = [], threading.Event()

    def work(part: int) -> None:
        begun.append(part)
        if part == 0:
            raise KeyError
        assert ended.wait(timeout=30)  # as a fit that checks after each epoch

    with pytest.raises(KeyError):
        list(iterate_in_parallel(work, range(50), max_workers=2, on_abort=ended.set))
    assert ended.is_set()
    assert len(begun) < 50


def test_closing_the_iterator_aborts_running_tasks() -> None:
    """The second waits until it is aborted, and the last ones never start."""
    ended, begun = threading.Event(), list[int]()

    def work(k: int) -> int:
        begun.append(k)
        return k if k == 0 or ended.wait(30) else -1

    results = iterate_in_parallel(work, range(50), max_workers=2, on_abort=ended.set)
    assert next(results) == 0
    results.close()
    assert ended.is_set()
    assert len(begun) < 50
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pcmcnet-side")]
