"""The steps of an epoch: gather a batch, differentiate its loss, update the weights.

    gradient of the mean loss  ->  + gradient of the prior  ->  clip  ->  Adam  ->  project to signs

There are four kinds of steps, and :func:`steps_for` selects the fastest kind that the network, its data and its device
allow:

- ``Steps`` run in PyTorch, one batch after another.
- ``SharedSteps`` run in PyTorch and are shared by several processes.
- ``RecordedSteps`` run on a CUDA device and are captured as CUDA graphs.
- ``CompiledSteps`` (:mod:`pcmcnet.training.compiled_steps`) run in compiled code, for small networks on a CPU.

On a CUDA device, computing a step of a small batch takes less time than launching its kernels one by one. If a network
supports CUDA graphs (``supports_cuda_graphs``), its steps are therefore captured as a CUDA graph, once for each batch
shape, and then replayed with a single launch. Everything that differs between steps is copied to the device beforehand
(``EpochTape``). Capturing a graph takes as long as a hundred steps. Batches are therefore padded to one of a few
widths, so that there are few shapes. Nothing is read back from the device before the end of the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Ints
from pcmcnet.data.batches import Batch, DistributedSets, EncodedPart, EncodedSets, Source
from pcmcnet.layers.generators import SeededGenerators, drawing_from
from pcmcnet.layers.likelihood import mean_nll, weighted_mean
from pcmcnet.layers.tensor_ops import has_triton
from pcmcnet.training.adam import Adam, for_each
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.data_parallel import ProcessGroup, current_group
from pcmcnet.training.device import batches_on, device_of, gather_batch, wait_for_preloading
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import prediction_plan

MAX_GRAPHS = 64  # captured shapes of batches; other shapes are launched kernel by kernel
WIDTHS_PER_DOUBLING = 8  # padded widths between n and 2 n alternatives
MAX_RECORDED_PAIRS = 1 << 22  # pairs of a batch; the kernels of larger batches run longer than a launch takes


class StepSums(NamedTuple):
    """Sums of losses, weights and gradient norms over the steps of an epoch."""

    loss: float = 0.0  # weighted
    weight: float = 0.0
    norm: float = 0.0  # of the gradients, before clipping

    def plus(self, other: StepSums) -> StepSums:
        """Return the combined sums of these steps and of other steps."""
        return StepSums(*(a + b for a, b in zip(self, other, strict=True)))


class EpochPlan(NamedTuple):
    """The random choices of an epoch: its dropout seed, and the sets of each batch."""

    seed: int
    batches: list[Ints]


def steps_for(network: ChoiceNetwork, source: Source, config: TrainConfig) -> Steps:
    """Return the steps of a run: the fastest kind that the network, its data and its device allow."""
    from pcmcnet.training import compiled_steps  # imports this module

    if (group := current_group()).size > 1:
        return SharedSteps(network, source, config, group)
    if source.device.type == "cuda" and has_triton() and network.supports_cuda_graphs:
        return RecordedSteps(network, source, config)
    form = compiled_steps.usable_form(network, source.largest) if source.device.type == "cpu" else None
    if form is not None:
        return compiled_steps.CompiledSteps(network, source, config, form)
    return Steps(network, source, config)


class Steps:
    """The steps of a run in PyTorch, and the state that they share: optimiser, generators, totals.

    Subclasses override the source of batches (``batches``), the gradient of a batch (``gradient``), the update of the
    weights (``descend``), or the whole loop (``run``).
    """

    def __init__(self, network: ChoiceNetwork, source: Source, config: TrainConfig) -> None:
        self.network, self.source, self.max_norm = network, source, config.clip or math.inf
        self.parameters = list(network.parameters())
        self.prior_weights, self.sign_constrained = list(network.prior_weights), list(network.sign_constrained)
        self.device = device_of(network)
        # Without weight decay, this is the optimiser of the paper.
        self.optimiser = Adam(self.parameters, lr=config.lr, decay=config.decay, without_decay=self.prior_weights)
        self.generators = SeededGenerators()
        self.total = torch.zeros(3, dtype=torch.float64, device=self.device)  # ``StepSums`` on the device
        self.one = torch.ones((), device=self.device)  # created once and not in each step
        self.plans_ahead: dict[int, EpochPlan] = {}  # plans of later epochs, drawn while the device was busy

    def run(self, part: EncodedPart, plan: Sequence[Ints], rates: Iterable[float]) -> Tensor:
        """Take a step for each batch of the plan, with its learning rate, and return ``StepSums`` as a tensor."""
        self.total.zero_()
        for batch, lr in zip(self.batches(part, plan), rates, strict=True):
            self.optimiser.lr = lr
            self.step(batch)
        return self.total

    def batches(self, part: EncodedPart, plan: Sequence[Ints]) -> Iterator[Batch | None]:
        """Yield the batches of a plan, or None for a batch in which this process has no sets."""
        assert isinstance(part, EncodedSets)  # a single process holds all sets
        return batches_on(self.device, part, plan)

    def step(self, batch: Batch | None) -> None:
        """Update the weights with the gradient of a batch."""
        # 1. Compute the gradient of the mean loss of the batch.
        for parameter in self.parameters:
            parameter.grad = None
        loss, weight = self.gradient(batch)
        # 2. Add the gradient of the standard normal prior: |w|^2 / 2 over all sets gives w / S per set.
        for parameter in self.prior_weights:
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach(), alpha=1 / len(self.source))
        # 3. Clip the gradient, and take a step of Adam.
        self.descend(loss, weight)
        # 4. Project weights with a sign constraint.
        for part in self.sign_constrained:
            part.project_()

    def gradient(self, batch: Batch | None) -> tuple[Tensor, Tensor]:
        """Compute the gradients of a batch's mean loss, and return the sums of weighted losses and of weights."""
        assert batch is not None
        mean, loss, weight = self.mean_loss(batch)
        differentiate(mean, self.one.to(mean.dtype))
        return loss, weight

    def mean_loss(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean loss of a batch and, without gradients, the sum of weighted losses and the sum of weights."""
        if self.network.loss_is_nll:
            return mean_nll(self.network(batch), batch.chosen, batch.weight)
        return weighted_mean(self.network.set_losses(batch), batch.weight)

    def descend(self, loss: Tensor, weight: Tensor) -> None:
        """Clip the gradients, take an optimiser step, and add loss, weight and gradient norm to the totals."""
        norm = clip_gradients(self.parameters, self.max_norm)
        self.optimiser.step()
        self.total += torch.stack([loss, weight, norm]).double()

    def nll(self, data: EncodedSets) -> Tensor | None:
        """Return the NLL of the choices (S,) with the current weights, or None if only the network can compute it."""
        return None


class SharedSteps(Steps):
    """Steps of a group of processes, each of which computes its share of every batch."""

    def __init__(self, network: ChoiceNetwork, source: Source, config: TrainConfig, group: ProcessGroup) -> None:
        super().__init__(network, source, config)
        self.group = group

    def batches(self, part: EncodedPart, plan: Sequence[Ints]) -> Iterator[Batch | None]:
        """Yield this process's share of each batch of a plan, or None if the share is empty."""
        # A process that holds all sets takes every n-th; one that has read only some sets takes these.
        local, share = (part.local, part.share) if isinstance(part, DistributedSets) else (part, self.group.share)
        shares = [share(sets) for sets in plan]
        filled = [sets for sets in shares if len(sets)]
        batches = batches_on(self.device, local, filled) if local is not None and filled else iter(())
        for sets in shares:
            yield next(batches) if len(sets) else None

    def gradient(self, batch: Batch | None) -> tuple[Tensor, Tensor]:
        """Compute gradients of the mean loss of the whole batch, and return its sums of weighted losses and weights."""
        loss = weight = torch.zeros((), dtype=torch.float32, device=self.device)
        if batch is not None:
            loss = (batch.weight * self.network.set_losses(batch)).sum()
            weight = batch.weight.sum()
            loss.backward()  # type: ignore[no-untyped-call]
        return self.group.add_gradients(self.parameters, loss.detach(), weight)


class RecordedSteps(Steps):
    """Steps on a CUDA device, which are captured as CUDA graphs once for each batch shape and then replayed."""

    def __init__(self, network: ChoiceNetwork, source: Source, config: TrainConfig) -> None:
        from pcmcnet.training.adam_triton import ClippedAdam, EpochTape

        super().__init__(network, source, config)
        self.tape = EpochTape(self.device)
        self.optimiser.lr = self.tape.lr  # set on the device before each step
        is_supported = ClippedAdam.takes(self.optimiser)
        self.clipped = ClippedAdam(self.optimiser, self.max_norm) if is_supported else None
        self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}  # by numbers of sets and alternatives
        self.seen_shapes: set[tuple[int, int]] = set()
        self.data: EncodedSets | None = None  # the sets in the memory that the graphs read
        self.pair_budget = config.pair_budget

    def descend(self, loss: Tensor, weight: Tensor) -> None:
        """Clip the gradients, take an Adam step and update the totals, in two kernels if the weights allow it."""
        if self.clipped is None:
            super().descend(loss, weight)
        else:
            self.clipped.step(loss, weight, self.total)

    def run(self, part: EncodedPart, plan: Sequence[Ints], rates: Iterable[float]) -> Tensor:
        """Take a step for each batch of the plan, with its learning rate, and return ``StepSums`` as a tensor."""
        # 1. Copy to the device what differs between steps: sets, learning rates, dropout seeds.
        data = self._move_into_place(part)
        if not self.tape.write(plan, list(rates), self.generators.seed_value):
            self.graphs.clear()
        # 2. Compute the shape of each batch, padded to one of a few widths.
        counts = [len(sets) for sets in plan]
        largest, begins = int(data.sizes.max()), np.cumsum([0, *counts[:-1]])
        widest = np.maximum.reduceat(data.sizes[np.concatenate(plan)], begins)
        widths = [min(padded_width(int(n)), largest) for n in widest]
        # 3. Before the first step, compile all kernels in parallel.
        if not self.seen_shapes:
            self._compile(data, torch.split(self.tape.sets[: sum(counts)], counts), widths)
        # 4. Launch the steps on a separate stream; the current stream waits for them.
        self.total.zero_()
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for count, width in zip(counts, widths, strict=True):
                self._launch(data, count, width)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return self.total

    def _move_into_place(self, part: EncodedPart) -> EncodedSets:
        """Copy a part into the memory that the graphs read. If the part does not fit, discard the graphs."""
        assert isinstance(part, EncodedSets)
        if self.data is None or self.data is part:
            self.data = part
        elif (copied := self.data.copy_(part)) is not None:
            self.data = copied
        else:
            self.graphs.clear()
            self.data = part
        return self.data

    def _compile(self, data: EncodedSets, order: Sequence[Tensor], widths: Sequence[int]) -> None:
        """Compile the kernels for these batches before the first step, using one batch per approximate shape."""
        from pcmcnet.layers.kernel_launch import compile_in_parallel

        # 1. Select one batch for each power of two of sets and of alternatives. The widest come first, because their
        #    kernels take longest to compile.
        batches = sorted(zip(order, widths, strict=True), key=lambda batch: -batch[1])
        examples = {
            ((width - 1).bit_length(), (len(index) - 1).bit_length()): (index, width) for index, width in batches
        }
        # 2. Select batches of predictions, which have more sets, in the same way.
        plan = prediction_plan(self.network, data, self.pair_budget)
        predicted = {(int(data.sizes[sets].max()) - 1).bit_length(): sets for sets in plan}

        def passes() -> None:
            self.network.eval()
            with torch.no_grad(), suppress(torch.OutOfMemoryError):  # predictions of these sets may follow
                for batch in batches_on(self.device, data, predicted.values()):
                    self.network(batch)
            self.network.train()
            self.tape.take(1)
            for index, width in examples.values():
                mean, loss, weight = self.mean_loss(gather_batch(data, index, width))
                mean.backward()  # type: ignore[no-untyped-call]
                if self.clipped is not None:
                    self.clipped.step(loss, weight, self.total)

        # 3. Run them without launching anything: their kernels are collected, and compiled in parallel.
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with drawing_from(SeededGenerators()):
            compile_in_parallel(passes, self.stream)
        for parameter in self.parameters:
            parameter.grad = None

    def _launch(self, data: EncodedSets, count: int, width: int) -> None:
        """Take a step: launch single kernels for the first batch of a shape, then capture a graph, then replay it."""
        shape = (count, width)
        if shape not in self.graphs:
            pairs = count * int(self.network.count_pairs(np.array([width]))[0])
            too_large = pairs > MAX_RECORDED_PAIRS
            if shape not in self.seen_shapes or len(self.graphs) == MAX_GRAPHS or too_large:
                self.seen_shapes.add(shape)
                self._next_step(data, count, width)
                return
            self.graphs[shape] = self._record(data, count, width)
        self.graphs[shape].replay()

    def _record(self, data: EncodedSets, count: int, width: int) -> torch.cuda.CUDAGraph:
        """Capture a step for batches of one shape, while earlier steps may still be running.

        ``torch.cuda.graph`` would wait for the earlier steps, and release memory that the next batches need again.
        """
        # 1. If the device has little memory left, release cached memory for the graph.
        if not self.graphs or torch.cuda.mem_get_info(self.device)[0] < torch.cuda.memory_reserved(self.device):
            wait_for_preloading()
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
        # 2. Register the generator from which replays draw, and let the graph allocate its own gradients.
        graph = torch.cuda.CUDAGraph()
        if (generator := self.generators.generator_if_used(self.device)) is not None:
            graph.register_generator_state(generator)
        for parameter in self.parameters:
            parameter.grad = None
        # 3. Capture the kernels of one step.
        graph.capture_begin(pool=self.pool)
        try:
            self._next_step(data, count, width)
        finally:
            graph.capture_end()
        return graph

    def _next_step(self, data: EncodedSets, count: int, width: int) -> None:
        """Take the next step of the epoch, with the batch, learning rate and seeds from the tape."""
        index = self.tape.take(count)
        self.generators.seeds = self.tape.seeds
        self.step(gather_batch(data, index, width))


def differentiate(loss: Tensor, by: Tensor) -> None:
    """Run ``loss.backward(by)`` without its check of ``by``, which takes half a second because it imports sympy."""
    run = getattr(torch.autograd.graph, "_engine_run_backward", None)
    if run is None:  # private function of PyTorch, which may be missing in some versions
        loss.backward(by)  # type: ignore[no-untyped-call]
    else:
        run((loss,), (by,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def padded_width(alternatives: int) -> int:
    """Round a number of alternatives up to one of a few widths."""
    step = max((1 << alternatives.bit_length() - 1) // WIDTHS_PER_DOUBLING, 1)
    return -(-alternatives // step) * step


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale the gradients in place to a norm of at most ``max_norm``, and return the original norm.

    The result is the same as that of ``torch.nn.utils.clip_grad_norm_``, which sorts gradients by device and takes
    longer than the matrix products of a small network.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm: Tensor = torch.cat([g.flatten() for g in gradients]).norm()
    if max_norm < math.inf:
        for_each("mul", gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
