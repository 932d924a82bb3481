"""Steps of small networks on a CPU by compiled code: one call for many batches (``compiled_steps.c``).

Through PyTorch a step of a small network is some hundred calls, which take longer than its arithmetic. The numbers are
the same to rounding; weights and the optimiser's state stay in the memory of their tensors, so checkpoints are too.
Losses of held-out sets after each epoch come from the same code.
The code is compiled when the package is built. Where it was not, and for networks that it does not know, steps go
through PyTorch.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.batches import EncodedSets, Source
from pcmcnet.errors import TrainingError
from pcmcnet.interrupts import raise_if_heard
from pcmcnet.layers import settings
from pcmcnet.training.adam import BETAS, EPS, for_each
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.prediction import size_of
from pcmcnet.training.step import Steps

log = logging.getLogger("pcmcnet")

LIBRARY = Path(__file__).with_name("libsteps.so")  # whatever a platform calls such files
MOST = 64  # layers, or columns of categories, as in the code
A_CALL = 1e9  # multiplications, some tenths of a second: an interrupt is heard between calls
VERSION = 3  # of what the code expects; it tells its own, with the sizes of its structures


@dataclass(frozen=True, kw_only=True)
class SmallNetwork:
    """The weights of a pairwise network, by their part in the formula that ``compiled_steps.c`` begins with."""

    embeddings: Sequence[Tensor]  # of alternatives
    own_embeddings: Sequence[Tensor]  # of the individual
    numbers: int  # of an alternative
    own_numbers: int
    first: tuple[Tensor | None, Tensor, Tensor, Tensor]  # W0, Wa, Wb, b
    layers: Sequence[tuple[Tensor, Tensor]]  # after the first, the last with one output
    utility: tuple[Sequence[Tensor], Tensor, Tensor, Tensor | None] | None  # constants, slopes, v, V
    items: Tensor | None  # (n, n) scores to add by labels
    slope: float  # of the activation below 0
    exponential: bool  # rates exp f, or max(0, f)
    epsilon: float
    floor: float

    @property
    def weights(self) -> list[Tensor | None]:
        """The weights in the order of the compiled code."""
        before = [*self.embeddings, *self.own_embeddings, *self.first]
        layers = [weight for layer in self.layers for weight in layer]
        if self.utility is None:
            return [*before, *layers, *[None] * (len(self.embeddings) + 3)]
        constants, *others = self.utility
        return [*before, *layers, *constants, *others]


class _Weight(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("value", "mean", "square")),
        ("size", ctypes.c_int64),
        ("decay", ctypes.c_float),
        ("prior", ctypes.c_float),
        ("moves", ctypes.c_int32),
        ("unused", ctypes.c_int32),
    )


class _Network(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("layers", "numbers", "categories", "own_numbers", "own_categories")),
        *((name, ctypes.c_int64 * MOST) for name in ("width", "embedding", "own_embedding")),
        *((name, ctypes.c_int64) for name in ("utility", "exponential", "labels")),
        *((name, ctypes.c_double) for name in ("slope", "epsilon", "floor")),
        ("items", ctypes.c_void_p),
    )


class _Sets(ctypes.Structure):
    whole = ("starts", "counts", "categorical", "individual_categorical", "chosen")
    names = (*whole, "numeric", "individual_numeric", "weight")
    _fields_ = tuple((name, ctypes.c_void_p) for name in names)


class _Optimiser(ctypes.Structure):
    _fields_ = (*((name, ctypes.c_double) for name in ("clip", "beta1", "beta2", "eps")), ("taken", ctypes.c_int64))


@cache
def library() -> Any:
    """Return the compiled code, or None where the package was built without it."""
    if not LIBRARY.exists():
        return None
    try:
        code = ctypes.CDLL(str(LIBRARY))
        code.pcmcnet_steps_layout.restype = ctypes.c_int64
        found = code.pcmcnet_steps_layout()
    except (OSError, AttributeError) as error:
        log.warning("%s cannot be used (%s): fits go through PyTorch. Install pcmcnet again", LIBRARY, error)
        return None
    if found != _layout():
        log.warning("%s is of another version, and not used: install pcmcnet again", LIBRARY)
        return None
    return code


def _layout() -> int:
    """The version, and the sizes of structures in bytes."""
    layout = VERSION
    for structure in (_Network, _Sets, _Weight, _Optimiser):
        layout = layout * 10_000 + ctypes.sizeof(structure)
    return layout


class CompiledSteps(Steps):
    """The steps of a small network, many in one call."""

    def __init__(self, module: nn.Module, source: Source, config: TrainConfig, form: SmallNetwork) -> None:
        super().__init__(module, source, config)
        self.form, self.network, self.size = form, _network(form), size_of(module)
        slots = {slot.weight.data_ptr(): slot for slot in self.optimiser.slots}
        prior = {weight.data_ptr() for weight in self.with_prior}
        self.moving = [slot for slot in self.optimiser.slots if slot.weight.requires_grad]
        self.table = (_Weight * len(form.weights))()
        for entry, weight in zip(self.table, form.weights, strict=True):
            if weight is None or not weight.numel():
                continue
            slot = slots[weight.data_ptr()]
            entry.value, entry.mean, entry.square = (
                tensor.data_ptr() for tensor in (weight, slot.exp_avg, slot.exp_avg_sq)
            )
            entry.size, entry.decay, entry.moves = weight.numel(), slot.decay, weight.requires_grad
            entry.prior = 1 / len(source) if weight.data_ptr() in prior else 0.0

    def run(self, plan: Sequence[Ints], rates: Iterable[float]) -> Tensor:
        """Take a step for each batch of the plan, with its learning rate; returns the sums of ``Totals``."""
        if not len(plan) or not self.moving or not _readable(self.data):
            return super().run(plan, rates)
        totals, rates = np.zeros(3), iter(rates)
        starts = np.cumsum([0, *(len(sets) for sets in plan[:-1])])
        for calls in _cut(np.add.reduceat(self._work(self.data.sizes[np.concatenate(plan)]), starts)):
            part = [plan[k] for k in calls]
            self._call(part, np.fromiter(islice(rates, len(part)), float), totals)
        return torch.from_numpy(totals)

    def nll(self, data: EncodedSets) -> Tensor | None:
        """(S,) NLL of the choices by the weights as they are, in float64; None for sets that this does not take."""
        if not 0 < data.largest <= settings.COMPILED_UP_TO_ALTERNATIVES or not _readable(data):
            return None
        losses, sets = np.empty(len(data)), _sets(data)
        for part in _cut(self._work(data.sizes)):
            raise_if_heard()
            places = (_address(part), ctypes.c_int64(len(part)), _address(losses[part[0] :]))
            _require_memory(library().pcmcnet_losses(*self._given(sets), *places))
        return torch.from_numpy(losses)

    def _work(self, sizes: Ints) -> Floats:
        """Multiplications of a pass over sets, about."""
        return self.size * sizes.astype(float) ** 2

    def _given(self, sets: _Sets) -> tuple[Any, ...]:
        return ctypes.byref(self.network), ctypes.byref(sets), self.table, ctypes.c_int64(len(self.table))

    def _call(self, plan: Sequence[Ints], rates: Floats, totals: Floats) -> None:
        order = np.ascontiguousarray(np.concatenate(plan), dtype=np.int64)
        ends = np.cumsum([len(sets) for sets in plan], dtype=np.int64)
        adam, sets = _Optimiser(self.limit, *BETAS, EPS, int(self.moving[0].step)), _sets(self.data)
        plans = (_address(order), _address(ends), _address(rates), ctypes.c_int64(len(plan)))
        _require_memory(library().pcmcnet_steps(*self._given(sets), ctypes.byref(adam), *plans, _address(totals)))
        for_each("add", [slot.step for slot in self.moving], len(plan))


def _cut(work: Floats) -> list[Ints]:
    """Positions of what one call computes, then of the next."""
    return np.split(np.arange(len(work)), np.flatnonzero(np.diff(np.cumsum(work) // A_CALL)) + 1)


def _address(array: Floats | Ints) -> ctypes.c_void_p:
    """Where an array is, as long as somebody holds it."""
    return ctypes.c_void_p(array.ctypes.data)


def _require_memory(missing: int) -> None:
    if missing:
        raise TrainingError("there is no memory for a batch: lower batch_size or pair_budget.")


def _network(form: SmallNetwork) -> _Network:
    network = _Network(
        layers=len(form.layers),
        numbers=form.numbers,
        categories=len(form.embeddings),
        own_numbers=form.own_numbers,
        own_categories=len(form.own_embeddings),
        utility=form.utility is not None,
        exponential=form.exponential,
        labels=0 if form.items is None else len(form.items),
        slope=form.slope,
        epsilon=form.epsilon,
        floor=form.floor,
        items=None if form.items is None else form.items.data_ptr(),
    )
    for name, widths in (
        ("width", [weight.shape[1] for weight, _ in form.layers]),
        ("embedding", [weight.shape[1] for weight in form.embeddings]),
        ("own_embedding", [weight.shape[1] for weight in form.own_embeddings]),
    ):
        getattr(network, name)[: len(widths)] = widths
    return network


def _readable(data: EncodedSets) -> bool:
    """Tell whether the tensors lie in memory as the code reads them."""
    tensors = {name: getattr(data, name) for name in _Sets.names}
    kinds = {name: torch.int64 if name in _Sets.whole else torch.float32 for name in tensors}
    return all(tensor.is_contiguous() and tensor.dtype == kinds[name] for name, tensor in tensors.items())


def _sets(data: EncodedSets) -> _Sets:
    return _Sets(*(getattr(data, name).data_ptr() for name in _Sets.names))
