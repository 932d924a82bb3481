"""Small batches run on one thread, parts of large ones in threads that compute alone, and numbers are put back."""

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


def test_the_number_is_put_back_after_an_error() -> None:
    with pytest.raises(KeyError), one_thread_if_small(0):
        raise KeyError
    assert torch.get_num_threads() == 3


def test_a_thread_that_begins_during_small_work_has_all_threads_for_large_work() -> None:
    """PyTorch lets it begin with the one thread that the small work has set."""
    found = []

    def work() -> None:
        found.append(torch.get_num_threads())
        with one_thread_if_small(ENOUGH):
            found.append(torch.get_num_threads())
        with one_thread_if_small(0):
            found.append(torch.get_num_threads())
        found.append(torch.get_num_threads())

    with one_thread_if_small(0):
        other = threading.Thread(target=work)
        other.start()
        other.join()
        assert torch.get_num_threads() == 1
    assert found == [1, 3, 1, 3]
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(("work", "number"), [(0, 1), (ENOUGH - 1, 1), (ENOUGH, 3), (1e12, 3)])
def test_large_work_is_shared_out_in_parts_while_each_operation_has_one_thread(work: float, number: int) -> None:
    """Threads that share an operation wait for each other, with their cores busy; beside others that takes long."""
    with one_thread_per_operation(work):
        assert (torch.get_num_threads(), threads()) == (1, number)
    assert (torch.get_num_threads(), threads()) == (3, 3)


def test_small_work_within_large_work_is_one_part_and_the_numbers_are_put_back_after_an_error() -> None:
    with one_thread_per_operation(ENOUGH):
        with pytest.raises(KeyError), one_thread_per_operation(0):
            raise {1: KeyError}[threads()]
        assert (torch.get_num_threads(), threads()) == (1, 3)
        seen = run_in_threads(lambda _: torch.get_num_threads(), [1, 2, 3, 4])
        assert (seen, torch.get_num_threads()) == ([1] * 4, 1)
    assert (torch.get_num_threads(), threads()) == (3, 3)


def test_large_work_in_a_thread_that_begins_meanwhile_has_all_threads() -> None:
    found = []

    def work() -> None:
        with one_thread_per_operation(ENOUGH):
            found.append((torch.get_num_threads(), threads()))

    with one_thread_per_operation(0):
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert found == [(1, 3)]


# -- parts --------------------------------------------------------------------------------------------------------


def test_parts_are_computed_side_by_side_in_their_order() -> None:
    all_there = threading.Barrier(3)

    def double(part: int) -> tuple[int, int, str, bool]:
        all_there.wait(timeout=60)  # no part can end before all have begun
        return 2 * part, torch.get_num_threads(), threading.current_thread().name, torch.is_grad_enabled()

    numbers, threads, names, graphs = zip(*run_in_threads(double, [1, 2, 3]), strict=True)
    assert numbers == (2, 4, 6)
    assert threads == (1, 1, 1)
    assert len(set(names)) == 3
    assert not any(graphs)
    assert torch.get_num_threads() == 3


def test_a_single_part_stays_in_its_thread_with_all_others_to_help() -> None:
    assert run_in_threads(lambda _: (threading.current_thread(), torch.get_num_threads()), [0]) == [
        (threading.current_thread(), 3)
    ]


def test_no_part_is_no_work() -> None:
    assert run_in_threads(lambda part: part, []) == []


def test_threads_to_come_have_the_number_of_before() -> None:
    run_in_threads(torch.zeros, [1, 2])
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [3]


def test_an_error_in_a_part_is_told_and_the_number_is_put_back() -> None:
    with pytest.raises(ZeroDivisionError):
        run_in_threads(lambda part: 1 // part, [1, 0, 2])
    assert torch.get_num_threads() == 3


def test_a_thread_that_cannot_begin_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may already be in the queue then: computed once more, it would write where another thread does."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    _pool.cache_clear()
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="can't start"):
        run_in_threads(abs, [1, 2])
    _pool.cache_clear()
    assert torch.get_num_threads() == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_has_threads_of_its_own() -> None:
    run_in_threads(abs, [1, 2, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from Python 3.12 on: forks and threads do not go well together
        child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if run_in_threads(abs, [-1, -2, -3]) == [1, 2, 3] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_work_goes_on_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    """No pool takes work then; a thread of the user's own may still be fitting."""
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


def test_what_goes_side_by_side_comes_in_order_from_threads_that_compute_alone() -> None:
    """Both wait for each other, which one thread after the other never could."""
    together = threading.Barrier(2, timeout=30)

    def work(part: int) -> tuple[int, int, int, bool]:
        together.wait()
        return part, torch.get_num_threads(), threads(), torch.is_grad_enabled()

    found = list(iterate_in_parallel(work, [1, 2, 3, 4], max_workers=2, on_abort=lambda: None))
    assert found == [(part, 1, 1, True) for part in (1, 2, 3, 4)]
    assert torch.get_num_threads() == 3


def test_one_at_a_time_stays_in_the_calling_thread() -> None:
    found = iterate_in_parallel(lambda _: threading.current_thread(), [1, 2], max_workers=1, on_abort=lambda: None)
    assert set(found) == {threading.current_thread()}


def test_when_one_fails_others_give_up_or_never_begin() -> None:
    begun, ended = [], threading.Event()

    def work(part: int) -> None:
        begun.append(part)
        if part == 0:
            raise KeyError
        assert ended.wait(timeout=30)  # as a training that looks after each epoch

    with pytest.raises(KeyError):
        list(iterate_in_parallel(work, range(50), max_workers=2, on_abort=ended.set))
    assert ended.is_set()
    assert len(begun) < 50


def test_who_wants_no_more_results_ends_those_under_way() -> None:
    """The second waits until it is told to give up, and the last ones never begin."""
    ended, begun = threading.Event(), list[int]()

    def work(k: int) -> int:
        begun.append(k)
        return k if k == 0 or ended.wait(30) else -1

    found = iterate_in_parallel(work, range(50), max_workers=2, on_abort=ended.set)
    assert next(found) == 0
    found.close()
    assert ended.is_set()
    assert len(begun) < 50
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pcmcnet-side")]
