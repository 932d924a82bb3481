"""Tasks in threads, results in order."""

import threading
from functools import partial

import pytest

from pcmcnet.data.ahead import ahead


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_the_order_of_tasks(threads: int) -> None:
    assert list(ahead((partial(pow, k, 2) for k in range(10)), threads)) == [k**2 for k in range(10)]


def test_later_tasks_begin_while_an_earlier_one_is_under_way() -> None:
    """The first of two tasks ends only once the second has begun."""
    begun = threading.Event()

    def second() -> int:
        begun.set()
        return 2

    assert list(ahead([lambda: begun.wait(10), second], 2)) == [True, 2]


def test_no_more_tasks_are_taken_than_threads_and_one_in_use() -> None:
    taken: list[int] = []

    def tasks() -> object:
        for k in range(10):
            taken.append(k)
            yield partial(int, k)

    found = ahead(tasks(), 2)  # type: ignore[arg-type]
    assert next(found) == 0
    assert taken == [0, 1, 2]
    found.close()  # type: ignore[attr-defined]


def test_an_error_ends_the_work_at_its_turn() -> None:
    found = ahead([lambda: 1, lambda: 1 // 0, lambda: 3], 2)
    assert next(found) == 1
    with pytest.raises(ZeroDivisionError):
        next(found)
