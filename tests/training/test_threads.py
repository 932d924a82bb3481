"""Small batches run on one thread, and the number of threads is always put back."""

import pytest
import torch

from pcmcnet.training.threads import SMALL, threads_for


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("work", "threads"), [(0, 1), (SMALL - 1, 1), (SMALL, 3), (1e12, 3)])
def test_only_large_work_uses_several_threads(work: float, threads: int) -> None:
    with threads_for(work):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 3


def test_the_number_is_put_back_after_an_error() -> None:
    with pytest.raises(KeyError), threads_for(0):
        raise KeyError
    assert torch.get_num_threads() == 3
