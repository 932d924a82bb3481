"""Seeded random number generators that are separate from those of other code in the process.

Inside :func:`drawing_from`, the modules of this package use the given generators. Elsewhere, the modules use torch's
global generator. Modules without a generator argument (torch's or a user's modules) run inside :func:`redirect_draws`,
which passes the generator to each operator that draws random numbers.
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
    """One generator per device, all with the same seed, which draw the same numbers as torch does with this seed."""

    def __init__(self, seed: int = 0) -> None:
        self.seed_value = seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self.seeds = torch.zeros(0, dtype=torch.int32)  # for kernels; used up before any are drawn

    def seed(self, seed: int) -> None:
        """Set the seed of all generators."""
        self.seed_value = seed
        for generator in self._generators.values():
            generator.manual_seed(seed)

    def on(self, device: torch.device) -> torch.Generator:
        """Return the generator for a device, which is created on first use."""
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed_value)
        return self._generators[device]

    def generator_if_used(self, device: torch.device) -> torch.Generator | None:
        """Return the generator for a device, or None if no generator has been created for it."""
        return self._generators.get(device)


_draws: ContextVar[SeededGenerators | None] = ContextVar("draws", default=None)


def generator_on(device: torch.device) -> torch.Generator | None:
    """Return the current generator for a device, or None to use torch's global generator."""
    draws = _draws.get()
    return None if draws is None else draws.on(device)


def kernel_seeds(device: torch.device, count: int) -> torch.Tensor:
    """Return int32 seeds (count,) on a device, for kernels that generate their own random numbers."""
    draws = _draws.get()
    if draws is not None and len(draws.seeds) >= count:
        taken, draws.seeds = draws.seeds[:count], draws.seeds[count:]
        return taken
    return torch.randint(2**31 - 1, (count,), generator=generator_on(device), device=device, dtype=torch.int32)


@contextmanager
def drawing_from(draws: SeededGenerators) -> Iterator[None]:
    """Make modules use the given generators inside the ``with`` block, in this thread."""
    token = _draws.set(draws)
    try:
        yield
    finally:
        _draws.reset(token)


def redirect_draws() -> AbstractContextManager[Any]:
    """Make every operator inside the ``with`` block use the current generators, if any are set."""
    draws = _draws.get()
    return nullcontext() if draws is None else _RedirectedDraws(draws)


class _RedirectedDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that passes the generator to each operator that draws random numbers."""

    def __init__(self, draws: SeededGenerators) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws = draws

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not load its compiler, which takes longer than fitting a small table."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        device = torch.device(
            next((x.device for x in args if isinstance(x, torch.Tensor)), kwargs.get("device")) or "cpu"
        )
        if device.type == "meta":  # nothing is drawn; calling the operator would load torch's compiler
            return args[0] if func._schema.is_mutable else func(*args, **kwargs)
        generator = self.draws.on(device)
        if any(argument.name == "generator" for argument in func._schema.arguments):
            return func(*args, **{**kwargs, "generator": generator})
        with _as_global_generator(generator):
            return func(*args, **kwargs)


_lock = Lock()


@contextmanager
def _as_global_generator(generator: torch.Generator) -> Iterator[None]:
    """Temporarily set the global generator to a generator's state, for an operator without a generator argument."""
    on_gpu = generator.device.type == "cuda"
    default = torch.cuda.default_generators[generator.device.index or 0] if on_gpu else torch.default_generator
    with _lock:
        before = default.get_state()
        default.set_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(default.get_state())
            default.set_state(before)
