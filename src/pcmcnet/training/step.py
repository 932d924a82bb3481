"""The steps of an epoch: gather a batch, differentiate its loss, move the weights.

On a CUDA device a step of a small batch is over sooner than its kernels can be launched one by one. So the
steps of a module that allows it (``capturable``) are recorded as a CUDA graph, once for each shape of batch, and from
then on replayed by a single launch: what one step has in place of another is on the device before (``epoch_tape``). To
record one takes as long as a hundred steps, so that few shapes are to occur: batches are padded to some more places.
Nothing is read back from the device before the end of the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.arrays import Ints
from pcmcnet.data.batches import Batch, EncodedSets, Part, Portion, Source
from pcmcnet.layers.generators import Draws, drawing_from
from pcmcnet.layers.likelihood import choice_nll, mean_nll, weighted_mean
from pcmcnet.training.adam import Adam, for_each
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.data_parallel import Group
from pcmcnet.training.device import device_of, wait_until_ready
from pcmcnet.training.device_batches import batches_on, gathered
from pcmcnet.training.prediction import prediction_plan

if TYPE_CHECKING:
    from pcmcnet.training.adam_triton import ClippedAdam

GRAPHS = 64  # of different shapes, at most; other batches are computed step by step
WIDTHS = 8  # numbers of places between n and 2 n that batches are padded to
LARGE = 1 << 22  # pairs of a batch whose kernels take longer than to launch them


class Totals(NamedTuple):
    """Sums over the steps of an epoch."""

    loss: float = 0.0  # weighted
    weight: float = 0.0
    norm: float = 0.0  # of the gradients, before clipping

    def plus(self, other: Totals) -> Totals:
        """Add the sums over further steps."""
        return Totals(*(a + b for a, b in zip(self, other, strict=True)))


class Drawn(NamedTuple):
    """What is left to chance in an epoch: the seed of its dropout, and which sets go together."""

    seed: int
    plan: list[Ints]


class Steps:
    """Runs the steps of one epoch after another."""

    data: EncodedSets  # the part of the source that batches are taken from

    def __init__(self, module: nn.Module, source: Source, config: TrainConfig) -> None:
        self.module, self.source, self.limit = module, source, config.clip or math.inf
        self.parameters = list(module.parameters())
        self.with_prior: list[nn.Parameter] = list(getattr(module, "with_prior", ()))
        self.signed: list[Any] = list(getattr(module, "signed", ()))  # parts whose weights keep to signs
        self.whole_persons: bool = getattr(module, "whole_persons", False)  # whether a batch has all sets of a person
        self.own_losses: Callable[[Batch], Tensor] | None = getattr(module, "set_losses", None)  # (B,) in place of NLLs
        self.device = device_of(module)
        self.total = torch.zeros(3, dtype=torch.float64, device=self.device)
        self.one = torch.ones((), device=self.device)  # made once, and not at each step
        self.optimiser = self._optimiser(config)
        self.draws = Draws()
        self.ahead: dict[int, Drawn] = {}  # what was drawn for later epochs while the device was at work

    def _optimiser(self, config: TrainConfig) -> Adam:
        """Without decay this is the paper's optimiser."""
        return Adam(self.parameters, lr=config.lr, decay=config.decay, without_decay=self.with_prior)

    def run(self, plan: Sequence[Ints], rates: Iterable[float]) -> Tensor:
        """Take a step for each batch of the plan, with its learning rate; returns the sums of ``Totals``, unread."""
        self.total.zero_()
        for batch, lr in zip(batches_on(self.device, self.data, plan), rates, strict=True):
            self.optimiser.lr = lr
            self.step(batch)
        return self.total

    def turn_to(self, part: Part) -> None:
        """Take batches from another part of the source."""
        assert isinstance(part, EncodedSets)  # a process alone has all of it
        self.data = part

    def step(self, batch: Batch) -> None:
        """Move the weights by the gradient of a batch."""
        for parameter in self.parameters:
            parameter.grad = None
        mean, loss, weight = self.mean_loss(batch)
        differentiate(mean, self.one.to(mean.dtype))
        self.move(loss, weight)

    def mean_loss(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean loss of a batch, and the sums of losses and of weights, without a gradient."""
        if self.own_losses is None:
            return mean_nll(self.module(batch), batch.chosen, batch.weight)
        return weighted_mean(self.own_losses(batch), batch.weight)

    def losses(self, batch: Batch) -> Tensor:
        """Return what each set of a batch adds to the loss (B,): its NLL, or what the module makes of it."""
        return choice_nll(self.module(batch), batch.chosen) if self.own_losses is None else self.own_losses(batch)

    def nll(self, data: EncodedSets) -> Tensor | None:
        """(S,) NLL of the choices by the weights as they are; None where there is no faster way than the module."""
        return None

    def move(self, loss: Tensor, weight: Tensor) -> None:
        """Move the weights by the gradients they have, those with a standard normal prior also by its own."""
        for parameter in self.with_prior:
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach(), alpha=1 / len(self.source))
        self.descend(loss, weight)
        for part in self.signed:
            part.project_()

    def descend(self, loss: Tensor, weight: Tensor) -> None:
        """Clip the gradients, take a step of the optimiser, and keep the totals."""
        norm = clip_gradients(self.parameters, self.limit)
        self.optimiser.step()
        self.total += torch.stack([loss, weight, norm]).double()


class SharedSteps(Steps):
    """The same, each step taken by the processes of a group together."""

    share: Callable[[Ints], Ints]  # of a batch: where this process has its sets

    def __init__(self, module: nn.Module, source: Source, config: TrainConfig, group: Group) -> None:
        super().__init__(module, source, config)
        self.group = group

    def turn_to(self, part: Part) -> None:
        """Take batches from another part of the source, of which this process has all sets or its own alone."""
        own = part.own if isinstance(part, Portion) else part
        self.share = part.share if isinstance(part, Portion) else self.group.share
        if own is not None:  # else it has no set of any batch
            self.data = own

    def run(self, plan: Sequence[Ints], rates: Iterable[float]) -> Tensor:
        """Take a step for each batch of the plan, with its learning rate; a process may have no set of a batch."""
        shares = [self.share(sets) for sets in plan]
        held = [sets for sets in shares if len(sets)]
        own = batches_on(self.device, self.data, held) if held else iter(())
        self.total.zero_()
        for sets, lr in zip(shares, rates, strict=True):
            self.optimiser.lr = lr
            self.step_together(next(own) if len(sets) else None)
        return self.total

    def step_together(self, batch: Batch | None) -> None:
        """Move the weights by the gradient of a batch of which this process has a share, or nothing."""
        for parameter in self.parameters:
            parameter.grad = None
        loss = weight = torch.zeros((), dtype=torch.float32, device=self.device)
        if batch is not None:
            loss = (batch.weight * self.losses(batch)).sum()
            weight = batch.weight.sum()
            loss.backward()  # type: ignore[no-untyped-call]
        self.move(*self.group.add_gradients(self.parameters, loss.detach(), weight))


class RecordedSteps(Steps):
    """The same, recorded as CUDA graphs, where there is Triton."""

    def __init__(self, module: nn.Module, source: Source, config: TrainConfig) -> None:
        from pcmcnet.training.epoch_tape import EpochTape

        self.tape = EpochTape(device_of(module))
        super().__init__(module, source, config)
        self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self.met: set[tuple[int, int]] = set()
        self.clipped = self._clipped()
        self.pair_budget = config.pair_budget

    def _optimiser(self, config: TrainConfig) -> Adam:
        optimiser = super()._optimiser(config)
        optimiser.lr = self.tape.lr
        return optimiser

    def _clipped(self) -> ClippedAdam | None:
        """Return the optimiser as kernels, where they take the weights."""
        from pcmcnet.training.adam_triton import ClippedAdam

        return ClippedAdam(self.optimiser, self.limit) if ClippedAdam.takes(self.optimiser) else None

    def descend(self, loss: Tensor, weight: Tensor) -> None:
        """Do the same in two kernels, where there are any."""
        if self.clipped is None:
            super().descend(loss, weight)
        else:
            self.clipped.step(loss, weight, self.total)

    def run(self, plan: Sequence[Ints], rates: Iterable[float]) -> Tensor:
        """Take a step for each batch of the plan, with its learning rate; returns the sums of ``Totals``, unread."""
        counts = [len(sets) for sets in plan]
        if not self.tape.write(plan, list(rates), self.draws.value):
            self.graphs.clear()
        largest, begins = int(self.data.sizes.max()), np.cumsum([0, *counts[:-1]])
        widest = np.maximum.reduceat(self.data.sizes[np.concatenate(plan)], begins)
        places = [min(rounded(int(n)), largest) for n in widest]
        if not self.met:
            self.compile(torch.split(self.tape.sets[: sum(counts)], counts), places)
        self.total.zero_()
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for count, width in zip(counts, places, strict=True):
                self.replay(count, width)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return self.total

    def compile(self, order: Sequence[Tensor], places: Sequence[int]) -> None:
        """Compile the kernels of batches like these before the first step: one batch of about each shape shows them.

        Those of the widest take longest, and are begun first; and before them, of predictions, which are of more sets.
        """
        from pcmcnet.layers.gpu.launch import compile_together

        shapes = sorted(zip(order, places, strict=True), key=lambda batch: -batch[1])
        shown = {((width - 1).bit_length(), (len(index) - 1).bit_length()): (index, width) for index, width in shapes}
        plan = prediction_plan(self.module, self.data, self.pair_budget)
        predicted = {(int(self.data.sizes[sets].max()) - 1).bit_length(): sets for sets in plan}

        def passes() -> None:
            self.module.eval()
            with torch.no_grad(), suppress(torch.OutOfMemoryError):  # predictions follow, of these sets if of no others
                for batch in batches_on(self.device, self.data, predicted.values()):
                    self.module(batch)
            self.module.train()
            self.tape.take(1)
            for index, width in shown.values():
                mean, loss, weight = self.mean_loss(gathered(self.data, index, width))
                mean.backward()  # type: ignore[no-untyped-call]
                if self.clipped is not None:
                    self.clipped.step(loss, weight, self.total)

        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with drawing_from(Draws()):
            compile_together(passes, self.stream)
        for parameter in self.parameters:
            parameter.grad = None

    def turn_to(self, part: Part) -> None:
        """Take batches from another part: in the memory that the graphs read, or, where it is too small, anew."""
        assert isinstance(part, EncodedSets)
        before = getattr(self, "data", part)
        held = part if before is part else before.copy_(part)
        if held is None:
            self.graphs.clear()
        self.data = part if held is None else held

    def replay(self, count: int, places: int) -> None:
        """Take a step: as it is at the first batch of a shape, recorded at the second, replayed from then on."""
        shape = (count, places)
        if shape not in self.graphs:
            if shape not in self.met or len(self.graphs) == GRAPHS or count * places**2 > LARGE:
                self.met.add(shape)
                self.take(count, places)
                return
            self.graphs[shape] = self.record(count, places)
        self.graphs[shape].replay()

    def record(self, count: int, places: int) -> torch.cuda.CUDAGraph:
        """Record a step for batches of a shape, while those before it may still be under way.

        ``torch.cuda.graph`` would wait for them, and give back memory that the next batches need again.
        """
        if not self.graphs or torch.cuda.mem_get_info(self.device)[0] < torch.cuda.memory_reserved(self.device):
            wait_until_ready()
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()  # to make room for what the graph keeps
        graph = torch.cuda.CUDAGraph()
        if (generator := self.draws.drawn_on(self.device)) is not None:
            graph.register_generator_state(generator)
        for parameter in self.parameters:
            parameter.grad = None  # the graph makes its own
        graph.capture_begin(pool=self.pool)
        try:
            self.take(count, places)
        finally:
            graph.capture_end()
        return graph

    def take(self, count: int, places: int) -> None:
        """Take the next step of the epoch."""
        index = self.tape.take(count)
        self.draws.seeds = self.tape.seeds
        self.step(gathered(self.data, index, places))


def differentiate(loss: Tensor, by: Tensor) -> None:
    """Do as ``loss.backward(by)``, which checks ``by`` by a library of algebra that takes half a second to load."""
    run = getattr(torch.autograd.graph, "_engine_run_backward", None)
    if run is None:  # in another version of PyTorch, as it is not public
        loss.backward(by)  # type: ignore[no-untyped-call]
    else:
        run((loss,), (by,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def rounded(places: int) -> int:
    """Round up to one of few numbers."""
    step = max((1 << places.bit_length() - 1) // WIDTHS, 1)
    return -(-places // step) * step


def clip_gradients(parameters: Iterable[Tensor], limit: float) -> Tensor:
    """Bring the gradients down to a norm of ``limit``, in place; returns the norm they had.

    As ``torch.nn.utils.clip_grad_norm_``, whose sorting by devices takes longer than a small network's products.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm: Tensor = torch.cat([g.flatten() for g in gradients]).norm()
    if limit < math.inf:
        for_each("mul", gradients, (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm
