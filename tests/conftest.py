"""Settings of all tests: one thread, hypothesis profiles, and visibility of the GPU.

PyTorch is imported where it is used: the process that distributes the tests does not need it.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import hypothesis
import pytest

# On a shared machine single examples are slow at random; time is measured in benchmarks/, not here. Examples are the
# same in every run; PCMCNET_EXPLORE=1 draws others. There are fewer examples if slow tests are excluded.
for profile, examples in (("all", 50), ("quick", 20)):
    hypothesis.settings.register_profile(
        profile, deadline=None, max_examples=examples, print_blob=True, derandomize="PCMCNET_EXPLORE" not in os.environ
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of examples by the selected tests."""
    hypothesis.settings.load_profile("quick" if "not slow" in config.option.markexpr else "all")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked gpu if there is no CUDA device."""
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Freeze the million objects of imports and collection, so that garbage collection skips them."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.fixture(scope="session", autouse=True)
def auto_is_the_cpu() -> Iterator[Callable[[], bool]]:
    """Results are bitwise reproducible only on a CPU; tests for a GPU name it. Yield a function that detects a GPU."""
    import torch

    torch.set_num_threads(1)  # fixed order of sums, as in the processes that tests start
    is_available = torch.cuda.is_available
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        yield is_available


@pytest.fixture(autouse=True)
def only_tests_for_a_gpu_see_one(
    request: pytest.FixtureRequest, auto_is_the_cpu: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show the GPU only to its tests, and hide it from programs that other tests start."""
    if request.node.get_closest_marker("gpu"):
        monkeypatch.setattr("torch.cuda.is_available", auto_is_the_cpu)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Yield a function that sets the number of torch's threads; the number is restored afterwards."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
