"""Training steps of small networks on a CPU in compiled code (``compiled_steps.c``), with many batches per call.

In PyTorch, a step of a small network consists of about a hundred calls, which take longer than the arithmetic. The
results of compiled steps and of PyTorch are equal up to rounding. Weights and optimiser state stay in the memory of
their tensors, so checkpoints have the same form as in PyTorch. The compiled code also computes the losses of held-out
sets after each epoch. The C code is compiled when the package is built. PyTorch is used if the compiled code is missing
or does not support the network.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.compiled import load_library
from pcmcnet.concurrency import raise_if_interrupted
from pcmcnet.data.batches import EncodedPart, EncodedSets, Source
from pcmcnet.errors import TrainingError
from pcmcnet.layers import settings
from pcmcnet.training.adam import BETAS, EPS, for_each
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.device import device_of
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import parameter_count
from pcmcnet.training.step import Steps

LIBRARY_FILE = Path(__file__).with_name("libsteps.so")
MAX_LAYERS_OR_COLUMNS = 64  # layers, or categorical columns; MAX_LAYERS in the C code
MULTIPLICATIONS_PER_CALL = 1e9  # a few tenths of a second: Ctrl-C is checked between calls
VERSION = 6  # of the C interface; must equal the version in the C code


@dataclass(frozen=True, kw_only=True)
class CompiledForm:
    """The weights of a network, by their role in the formulas at the top of ``compiled_steps.c``."""

    embeddings: Sequence[Tensor]  # of the alternatives
    individual_embeddings: Sequence[Tensor]
    numbers: int  # numeric columns of an alternative
    individual_numbers: int
    first: tuple[Tensor | None, Tensor | None, Tensor, Tensor]  # W0, Wa, Wb, b
    layers: Sequence[tuple[Tensor, Tensor]]  # after the first; the last has one output, or 2 r with r factors
    utility: tuple[Sequence[Tensor], Tensor, Tensor, Tensor | None] | None  # constants, slopes, v, V
    items: Tensor | None  # (n, n) scores added to pairs of labels
    slope: float  # of the activation below 0
    exponential: bool  # rates exp(f); otherwise max(0, f)
    epsilon: float
    floor: float
    bounds: Sequence[tuple[Tensor, Tensor, Tensor]] = ()  # weights with required signs, their lower and upper bounds
    rank: int = 0  # number r of factors, or 0 if pairs are scored

    @property
    def max_alternatives(self) -> int:
        """Size of the largest choice set for which compiled steps are used."""
        if self.rank:
            return settings.COMPILED_FACTORED_UP_TO_ALTERNATIVES
        return settings.COMPILED_UP_TO_ALTERNATIVES

    @property
    def weights(self) -> list[Tensor | None]:
        """The weights in the order of the C code."""
        before = [*self.embeddings, *self.individual_embeddings, *self.first]
        layers = [weight for layer in self.layers for weight in layer]
        if self.utility is None:
            return [*before, *layers, *[None] * (len(self.embeddings) + 3)]
        constants, *coefficients = self.utility
        return [*before, *layers, *constants, *coefficients]


class _Weight(ctypes.Structure):
    """A weight with its Adam state, as declared in the C code."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("value", "mean", "square")),
        ("size", ctypes.c_int64),
        ("decay", ctypes.c_float),
        ("prior", ctypes.c_float),
        ("moves", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("low", ctypes.c_void_p),
        ("high", ctypes.c_void_p),
    )


class _NetworkShape(ctypes.Structure):
    """The shape of a network, as declared in the C code."""

    sizes = ("layers", "numbers", "categories", "individual_numbers", "individual_categories")
    _fields_ = (
        *((name, ctypes.c_int64) for name in sizes),
        *((name, ctypes.c_int64 * MAX_LAYERS_OR_COLUMNS) for name in ("width", "embedding", "individual_embedding")),
        *((name, ctypes.c_int64) for name in ("utility", "exponential", "labels", "rank")),
        *((name, ctypes.c_double) for name in ("slope", "epsilon", "floor")),
        ("items", ctypes.c_void_p),
    )


class _Sets(ctypes.Structure):
    """The addresses of encoded choice sets, as declared in the C code; ``log_expansion`` may be NULL."""

    whole = ("starts", "counts", "categorical", "individual_categorical", "chosen")
    names = (*whole, "numeric", "individual_numeric", "weight", "log_expansion")
    _fields_ = tuple((name, ctypes.c_void_p) for name in names)


class _Optimiser(ctypes.Structure):
    """The options of Adam, as declared in the C code."""

    _fields_ = (*((name, ctypes.c_double) for name in ("clip", "beta1", "beta2", "eps")), ("taken", ctypes.c_int64))


@cache
def compiled_library() -> Any:
    """Return the compiled library, or None if it is missing or unusable."""
    return load_library(
        LIBRARY_FILE, version_function="pcmcnet_steps_layout", version=_layout(), fallback="training uses PyTorch"
    )


def usable_form(network: ChoiceNetwork, largest: int) -> CompiledForm | None:
    """Return the compiled form of a network on a CPU, or None if its steps run in PyTorch.

    Parameters
    ----------
    network
        The network.
    largest
        Number of alternatives in the largest choice set.
    """
    if device_of(network).type != "cpu" or compiled_library() is None:
        return None
    form = network.compiled_form
    return None if form is None or largest > form.max_alternatives else form


def _layout() -> int:
    """Return a number that encodes the version and the byte sizes of the C structures."""
    layout = VERSION
    for structure in (_NetworkShape, _Sets, _Weight, _Optimiser):
        layout = layout * 10_000 + ctypes.sizeof(structure)
    return layout


class CompiledSteps(Steps):
    """Training steps of a small network in compiled code, with many steps per call."""

    def __init__(self, network: ChoiceNetwork, source: Source, config: TrainConfig, form: CompiledForm) -> None:
        super().__init__(network, source, config)
        self.form, self.shape, self.size = form, _shape(form), parameter_count(network)
        # Fill the table of weights in the order of the C code: addresses of weight and state, decay or prior, bounds.
        slots = {slot.weight.data_ptr(): slot for slot in self.optimiser.slots}
        bounds = {weight.data_ptr(): (low.data_ptr(), high.data_ptr()) for weight, low, high in form.bounds}
        prior = {weight.data_ptr() for weight in self.prior_weights}
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
            entry.low, entry.high = bounds.get(weight.data_ptr(), (None, None))

    def run(self, part: EncodedPart, plan: Sequence[Ints], rates: Iterable[float]) -> Tensor:
        """Take a step for each batch of the plan, with its learning rate, and return ``StepSums`` as a tensor."""
        assert isinstance(part, EncodedSets)  # a process alone has all sets
        if not len(plan) or not self.moving or not _is_readable(part):
            return super().run(part, plan, rates)
        totals, rates = np.zeros(3), iter(rates)
        # 1. Estimate the work of each batch, by which consecutive batches are grouped into calls.
        starts = np.cumsum([0, *(len(sets) for sets in plan[:-1])])
        work = np.add.reduceat(self._work(part.sizes[np.concatenate(plan)]), starts)
        # 2. Run the steps of each group in one call. Reading a learning rate from ``rates`` checks for Ctrl-C.
        for calls in _split_by_work(work):
            batches = [plan[k] for k in calls]
            self._call(batches, np.fromiter(islice(rates, len(batches)), float), part, totals)
        return torch.from_numpy(totals)

    def nll(self, data: EncodedSets) -> Tensor | None:
        """Return the NLL of the choices (S,) with the current weights, or None if the C code cannot read the data."""
        if not 0 < data.largest <= self.form.max_alternatives or not _is_readable(data):
            return None
        losses, addresses = np.empty(len(data)), _addresses(data)
        for sets in _split_by_work(self._work(data.sizes)):
            raise_if_interrupted()
            places = (_address(sets), ctypes.c_int64(len(sets)), _address(losses[sets[0] :]))
            _require_memory(compiled_library().pcmcnet_losses(*self._arguments(addresses), *places))
        return torch.from_numpy(losses)

    def _work(self, sizes: Ints) -> Floats:
        """Return the approximate number of multiplications in a pass over each set."""
        return self.size * sizes.astype(float) ** (1 if self.form.rank else 2)

    def _arguments(self, addresses: _Sets) -> tuple[Any, ...]:
        """Return the leading arguments that all C functions share."""
        return ctypes.byref(self.shape), ctypes.byref(addresses), self.table, ctypes.c_int64(len(self.table))

    def _call(self, plan: Sequence[Ints], rates: Floats, data: EncodedSets, totals: Floats) -> None:
        """Run the steps of all batches of a plan in one call, and add the sums over the steps to the totals."""
        order = np.ascontiguousarray(np.concatenate(plan), dtype=np.int64)
        ends = np.cumsum([len(sets) for sets in plan], dtype=np.int64)
        adam = _Optimiser(self.max_norm, *BETAS, EPS, int(self.moving[0].step))
        arguments = self._arguments(_addresses(data))
        plans = (_address(order), _address(ends), _address(rates), ctypes.c_int64(len(plan)))
        _require_memory(compiled_library().pcmcnet_steps(*arguments, ctypes.byref(adam), *plans, _address(totals)))
        for_each("add", [slot.step for slot in self.moving], len(plan))


def _split_by_work(work: Floats) -> list[Ints]:
    """Split positions into consecutive groups, one for each call, by the amount of work."""
    calls = np.cumsum(work) // MULTIPLICATIONS_PER_CALL
    return np.split(np.arange(len(work)), np.flatnonzero(np.diff(calls)) + 1)


def _address(array: Floats | Ints) -> ctypes.c_void_p:
    """Return the address of an array, valid as long as the array is referenced."""
    return ctypes.c_void_p(array.ctypes.data)


def _require_memory(status: int) -> None:
    """Raise TrainingError if the C code reports that it could not allocate memory."""
    if status:
        raise TrainingError("not enough memory for a batch: lower batch_size or pair_budget.")


def _shape(form: CompiledForm) -> _NetworkShape:
    """Return the shape of a network for the C code."""
    shape = _NetworkShape(
        layers=len(form.layers),
        numbers=form.numbers,
        categories=len(form.embeddings),
        individual_numbers=form.individual_numbers,
        individual_categories=len(form.individual_embeddings),
        utility=form.utility is not None,
        exponential=form.exponential,
        labels=0 if form.items is None else len(form.items),
        rank=form.rank,
        slope=form.slope,
        epsilon=form.epsilon,
        floor=form.floor,
        items=None if form.items is None else form.items.data_ptr(),
    )
    for name, widths in (
        ("width", [weight.shape[1] for weight, _ in form.layers]),
        ("embedding", [weight.shape[1] for weight in form.embeddings]),
        ("individual_embedding", [weight.shape[1] for weight in form.individual_embeddings]),
    ):
        getattr(shape, name)[: len(widths)] = widths
    return shape


def _is_readable(data: EncodedSets) -> bool:
    """Return True if the tensors have the memory layout and types that the C code reads."""
    tensors = {name: tensor for name in _Sets.names if (tensor := getattr(data, name)) is not None}
    kinds = {name: torch.int64 if name in _Sets.whole else torch.float32 for name in tensors}
    return all(tensor.is_contiguous() and tensor.dtype == kinds[name] for name, tensor in tensors.items())


def _addresses(data: EncodedSets) -> _Sets:
    """Return the addresses of encoded sets. The sets must stay referenced while the C code reads them."""
    tensors = [getattr(data, name) for name in _Sets.names]
    return _Sets(*(None if tensor is None else tensor.data_ptr() for tensor in tensors))
