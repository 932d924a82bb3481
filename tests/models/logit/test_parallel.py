"""Parallel chunks: results are in order, products use one thread each, and thread counts change no bit."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from unittest import mock

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pcmcnet.models.logit import latent_class_likelihood as mixture
from pcmcnet.models.logit import logit_likelihood as logit
from pcmcnet.models.logit import maximum_likelihood as parts
from pcmcnet.models.logit.latent_class_likelihood import LatentClassLikelihood
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import map_in_threads, single_threaded_blas


def blas_threads(_: int = 0) -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_results_are_in_the_order_of_the_chunks() -> None:
    assert map_in_threads(lambda i: i * i, range(20)) == [i * i for i in range(20)]
    assert map_in_threads(str, []) == []


def test_matrix_products_use_one_thread_per_chunk() -> None:
    before = blas_threads()
    assert map_in_threads(blas_threads, range(2)) == [{1}, {1}]
    assert map_in_threads(blas_threads, [0]) == [before]
    with single_threaded_blas():
        assert blas_threads() == {1}
    assert blas_threads() == before


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Let products use two threads. A thread that ends sets this, because a live one would own the limit."""
    with ThreadPoolExecutor(1) as pool:
        limits = pool.submit(threadpool_limits, 2, user_api="blas").result()
    yield
    with ThreadPoolExecutor(1) as pool:
        pool.submit(limits.restore_original_limits).result()


@pytest.mark.usefixtures("two_threads")
def test_overlapping_limits_are_lifted_by_the_last_thread() -> None:
    """The first thread to enter leaves first, and products still use one thread. The last one lifts the limit."""
    entered, other, left = Event(), Event(), Event()

    def first() -> None:
        with single_threaded_blas():
            entered.set()
            assert other.wait(10)
        left.set()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(first)
        assert entered.wait(10)
        with single_threaded_blas():
            other.set()
            assert left.wait(10)
            assert blas_threads() == {1}
        done.result()
    assert blas_threads() == {2}


def test_the_limit_of_another_thread_is_lowered_and_restored() -> None:
    def inside() -> tuple[set[int], set[int]]:
        with single_threaded_blas():
            return blas_threads(), map_in_threads(blas_threads, range(2))[0]

    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(inside).result() == ({1}, {1})
        assert blas_threads() == {2}


def test_thread_local_limits_are_lifted_by_their_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP limits are per thread: each thread that enters sets its limit and restores the earlier one."""
    library = mock.Mock(threading_layer="openmp", num_threads=4)
    library.set_num_threads.side_effect = lambda number: setattr(library, "num_threads", number)
    monkeypatch.setattr(parts, "_blas", lambda: [library])
    with single_threaded_blas():
        assert library.num_threads == 1
        library.num_threads = 3  # set by another thread
        with single_threaded_blas():
            assert library.num_threads == 1
        assert library.num_threads == 3
    assert library.num_threads == 4


def test_an_error_restores_the_number_of_threads() -> None:
    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(ZeroDivisionError), single_threaded_blas(), single_threaded_blas():
            _ = 1 // 0
        assert blas_threads() == {2}


def test_an_error_in_a_chunk_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        map_in_threads(lambda i: 1 // i, [1, 0, 2])


def test_results_do_not_depend_on_the_number_of_threads(
    threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logit, "_PART", 64)
    monkeypatch.setattr(mixture, "_PERSONS", 16)
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, 200)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    sets = LogitLikelihood.from_matrix(rng.normal(size=(offsets[-1], 5)), offsets, rng.integers(0, sizes))
    both = LatentClassLikelihood(
        sets, np.arange(200), np.column_stack([np.ones(200), rng.normal(size=200)]), rng.uniform(0.5, 2, 200), 3, 0.1
    )
    x = rng.normal(size=both.n_parameters)
    result = []
    for number in (1, 2):
        threads(number)
        at = both.at(x)
        result.append(
            [at.log_p, at.r, both.hessian(x), both.step(at, 1.0)[0].x, *(a for pair in at.inside for a in pair)]
        )
    assert len(sets._chunks) > 10
    for one, two in zip(*result, strict=True):
        np.testing.assert_array_equal(one, two)
