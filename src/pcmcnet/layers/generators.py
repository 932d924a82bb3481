"""Random numbers from generators of one's own, whatever else draws in the process, in this thread or another.

Within :func:`drawing_from` the modules here draw from the generators given; elsewhere, as all of torch does, from the
global one. Modules that take no generator, torch's own and those of a user, are run within :func:`redirect_draws`: it
looks at the operators themselves and hands the generator to each that draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from threading import Lock
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class SeededGenerators:
    """Generators of one seed, one on each device that is drawn on. A seed gives the numbers that it gives to torch."""

    def __init__(self, seed: int = 0) -> None:
        self.value = seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self.seeds = torch.zeros(0, dtype=torch.int32)  # for kernels: what is at hand is taken before any are drawn

    def seed(self, seed: int) -> None:
        """Begin anew with another seed."""
        self.value = seed
        for generator in self._generators.values():
            generator.manual_seed(seed)

    def on(self, device: torch.device) -> torch.Generator:
        """Return the generator on a device."""
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.value)
        return self._generators[device]

    def generator_if_used(self, device: torch.device) -> torch.Generator | None:
        """Return the generator on a device, if anything was drawn from it."""
        return self._generators.get(device)


_draws: ContextVar[SeededGenerators | None] = ContextVar("draws", default=None)


def generator_on(device: torch.device) -> torch.Generator | None:
    """Return the generator to draw from on a device; None is the global one."""
    draws = _draws.get()
    return None if draws is None else draws.on(device)


def kernel_seeds(device: torch.device, count: int) -> torch.Tensor:
    """(count,) int32 seeds on a device, for kernels that draw by themselves."""
    draws = _draws.get()
    if draws is not None and len(draws.seeds) >= count:
        taken, draws.seeds = draws.seeds[:count], draws.seeds[count:]
        return taken
    return torch.randint(2**31 - 1, (count,), generator=generator_on(device), device=device, dtype=torch.int32)


@contextmanager
def drawing_from(draws: SeededGenerators) -> Iterator[None]:
    """Let modules draw from these generators within the block, in this thread."""
    token = _draws.set(draws)
    try:
        yield
    finally:
        _draws.reset(token)


def redirect_draws() -> AbstractContextManager[Any]:
    """Let everything within the block draw from the generators in use, if there are any."""
    draws = _draws.get()
    return nullcontext() if draws is None else _Redirected(draws)


class _Redirected(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each operator before it runs."""

    def __init__(self, draws: SeededGenerators) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws = draws

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from loading its compiler to leave this out of it: that takes longer than to fit a small table."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        device = torch.device(
            next((x.device for x in args if isinstance(x, torch.Tensor)), kwargs.get("device")) or "cpu"
        )
        if device.type == "meta":  # nothing is drawn; torch would load its compiler to find that out
            return args[0] if func._schema.is_mutable else func(*args, **kwargs)
        generator = self.draws.on(device)
        if any(argument.name == "generator" for argument in func._schema.arguments):
            return func(*args, **{**kwargs, "generator": generator})
        with _standing_in(generator):
            return func(*args, **kwargs)


_lock = Lock()


@contextmanager
def _standing_in(generator: torch.Generator) -> Iterator[None]:
    """Give the global generator of the device the state of another one, for an operator that takes none."""
    on_gpu = generator.device.type == "cuda"
    there = torch.cuda.default_generators[generator.device.index or 0] if on_gpu else torch.default_generator
    with _lock:
        before = there.get_state()
        there.set_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(there.get_state())
            there.set_state(before)
