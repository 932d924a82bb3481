"""What all tests share: one thread, how hypothesis searches, and which of them see a GPU.

PyTorch is imported where it is used: the process that hands out the tests to others needs none.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import hypothesis
import pytest

# A shared machine makes single examples slow at random: time is measured in benchmarks/, not here. A test that passed
# passes again: examples are the same in every run. PCMCNET_EXPLORE=1 draws others. Fewer where slow tests are left out.
for profile, examples in (("all", 50), ("quick", 20)):
    hypothesis.settings.register_profile(
        profile, deadline=None, max_examples=examples, print_blob=True, derandomize="PCMCNET_EXPLORE" not in os.environ
    )


def pytest_configure(config: pytest.Config) -> None:
    """Draw as many examples as the tests that are asked for."""
    hypothesis.settings.load_profile("quick" if "not slow" in config.option.markexpr else "all")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked gpu where there is no CUDA device."""
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Search for garbage only among what tests make: what is imported and collected, a million objects, stays."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


@pytest.fixture(scope="session", autouse=True)
def auto_is_the_cpu() -> Iterator[Callable[[], bool]]:
    """Results are promised to the bit on a CPU alone; a test for a GPU names it. Yields what tells if there is one."""
    import torch

    torch.set_num_threads(1)  # sums in one order, as in the processes that tests start
    is_available = torch.cuda.is_available
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        yield is_available


@pytest.fixture(autouse=True)
def only_tests_for_a_gpu_see_one(
    request: pytest.FixtureRequest, auto_is_the_cpu: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show the GPU to the tests for it, and hide it from the programs that others start."""
    if request.node.get_closest_marker("gpu"):
        monkeypatch.setattr("torch.cuda.is_available", auto_is_the_cpu)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Set the number of torch's threads; it is put back afterwards."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
