"""The training loop of all networks, which depends on networks, batches and a loss, but not on any model.

    epoch:   plan batches from (seed, epoch)  ->  a step for each batch  ->  loss of the validation part
    run:     epochs until the last, or until early stopping and a cool-down  ->  the weights to keep

:class:`~pcmcnet.training.network.ChoiceNetwork` declares every attribute and method of a network that the loop uses.
The order of batches and the dropout of an epoch depend only on (seed, epoch) and, if the source has several parts, on
the index of the part. On a CPU, a resumed run therefore equals an uninterrupted run bit for bit. The random generators
of a run are independent of other code in the process. During the steps of a part, nothing is read back from the device.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcmcnet.concurrency import raise_if_interrupted
from pcmcnet.data.batches import (
    DistributedSets,
    EncodedPart,
    EncodedSets,
    EncodedTable,
    Source,
    plan_batches,
    plan_person_batches,
)
from pcmcnet.errors import StopFit, TrainingError
from pcmcnet.layers.generators import drawing_from, redirect_draws
from pcmcnet.layers.likelihood import choice_nll
from pcmcnet.layers.threads import one_thread_per_operation
from pcmcnet.progress import EpochCallback, show_epochs
from pcmcnet.training.checkpoint import Checkpoint, CheckpointWriter, EpochProgress, RunState, Tensors
from pcmcnet.training.config import EarlyStopping, TrainConfig, cooling_rate, learning_rate
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.device import device_of
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import parameter_count, predict
from pcmcnet.training.step import EpochPlan, Steps, StepSums, steps_for
from pcmcnet.training.torch_settings import default_torch_settings

SECONDS_BETWEEN_STATES = 300.0  # within an epoch; states are saved between two parts of the source
MIN_GAIN_STANDARD_ERRORS = 2.0  # by which an earlier epoch must beat the last
# Norm of the gradient, relative to the loss, up to which the gradient of untrained weights counts as rounding errors.
# The derivative of the loss by a score is at most 1, and is rounded to float32 (2**-24). If no feature differs between
# alternatives, these derivatives cancel, exactly or up to a few roundings, depending on the order of the sums.
MAX_ROUNDED_GRADIENT = 2.0**-22
MIN_REPORTED_RISE = 0.1  # smallest rise of the training loss that is reported as divergence

log = logging.getLogger("pcmcnet")

Nll = Callable[[EncodedSets], Tensor | None]  # fast NLL of the choices (S,); None if unsupported


@dataclass(frozen=True)
class TrainingOutcome:
    """The result of a training run, in addition to the weights of the network."""

    history: list[dict[str, Any]]
    epochs: int  # of training after which the returned weights were reached


@default_torch_settings()
@torch.enable_grad()
def train(
    network: ChoiceNetwork,
    data: Source,
    config: TrainConfig,
    *,
    valid: EncodedTable | None = None,
    seed: int = 0,
    checkpoint: Checkpoint | None = None,
    progress: bool = False,
    on_epoch: EpochCallback | None = None,
) -> TrainingOutcome:
    """Train a network in place, and keep the selected weights: those of the last epoch or of the best epoch.

    Parameters
    ----------
    network
        The network, on the device of ``data``.
    data
        Encoded training sets, in memory or in parts.
    config
        Options of the training loop.
    valid
        Encoded validation sets, in memory or in parts, which are used to select the weights and, if ``min_delta`` is a
        number, for early stopping. If None (default), the last weights are kept.
    seed
        Seed of all random numbers. Default 0.
    checkpoint
        The file to which the state is saved after epochs and during long epochs, and whether to resume from this file.
        If None (default), nothing is saved.
    progress
        Whether to show progress. Default False.
    on_epoch
        Function that is called with the history entry of each epoch. If the function raises an exception, training ends
        after the state is saved. If the function raises :class:`StopFit`, training ends as after the last epoch.
        Default None.

    Returns
    -------
    Outcome
        The history, and the number of epochs after which the selected weights were reached.

    Raises
    ------
    TrainingError
        If the loss is no longer finite, or the gradient of all weights is 0.
    """
    # 1. Choose the kind of step, and start from scratch or from the state of an earlier run.
    steps = steps_for(network, data, config)
    state = checkpoint.read() if checkpoint else None
    if state is None:
        state = RunState(stopping=None if valid is None else EarlyStopping.of(config))
    else:
        network.load_state_dict(state.module)
        steps.optimiser.restore(state.optimiser)
        log.info("resuming after epoch %d%s", state.epoch, ", within the next one" if state.within else "")
    epochs_before = state.epoch
    # 2. Run the epochs, with as many threads as the size of a batch justifies. The state is saved before an epoch is
    #    reported, so that the run can be resumed even if the report raises.
    typical_set = float(network.count_pairs(np.sqrt(data.mean_pairs)))
    pairs = min(config.sets_per_batch(len(data)) * typical_set, config.pair_budget)
    with (
        show_epochs(config.passes, show=progress) as report,
        one_thread_per_operation(pairs * parameter_count(network)),
        CheckpointWriter(checkpoint) as writer,
    ):
        while not state.finished:
            entry = _epoch(steps, config, state, seed=seed, writer=writer)
            entry["valid_loss"] = None if valid is None else mean_nll(network, valid, config, steps.nll)
            _require_finite(entry)
            _require_gradient(entry, data)
            _advance(state, entry, steps, config)
            writer.save(state)
            report(entry)
            if on_epoch is not None and _stops(on_epoch, entry):
                state.finished = True
                writer.save(state)
    # 3. Without a validation part, keep the last weights.
    if valid is None or state.stopping is None:
        if state.epoch > epochs_before and current_group().is_first:
            _warn_if_diverged([entry["train_loss"] for entry in state.history])
        return TrainingOutcome(state.history, state.epoch)
    # 4. With one, keep the best weights, or the last ones if the best are not better by more than noise.
    last = {name: tensor.clone() for name, tensor in state.module.items()}  # the state shares the network's tensors
    if config.min_delta == "noise" and not _is_clearly_better(state.best, last, network, valid, config, steps.nll):
        network.load_state_dict(last)
        return TrainingOutcome(state.history, state.epoch)
    network.load_state_dict(state.best)
    return TrainingOutcome(state.history, state.stopping.best_epoch)


def _stops(on_epoch: EpochCallback, entry: dict[str, Any]) -> bool:
    """Report an epoch to the caller, and return True if the caller stops training."""
    try:
        on_epoch({**entry})
    except StopFit:
        return True
    return False


# -- epochs -------------------------------------------------------------------------------------------------------


def _epoch(
    steps: Steps, config: TrainConfig, state: RunState, *, seed: int, writer: CheckpointWriter
) -> dict[str, Any]:
    """Train for one epoch, or for the rest of an interrupted epoch, and return its history entry."""
    epoch, cooling, done = state.epoch + 1, state.cooling, state.within or EpochProgress()
    began = last_saved = time.perf_counter()
    sets = len(steps.source)
    expected_steps = math.ceil(sets / config.sets_per_batch(sets))  # more if pair_budget splits batches

    def rate(step: int) -> float:
        """Return the learning rate of a step, and check for Ctrl-C: this is called before each step."""
        raise_if_interrupted()
        at = min(epoch - 1 + step / expected_steps, float(epoch))
        return learning_rate(config, at / config.passes) if cooling is None else cooling_rate(config, at, since=cooling)

    steps.network.train()
    with drawing_from(steps.generators), nullcontext() if steps.network.takes_generators else redirect_draws():
        total, taken = StepSums(*done.totals), done.steps
        for k, part in enumerate(steps.source.parts((seed, epoch), done.parts), start=done.parts):
            # 1. Plan the batches of this part, unless this was done while the device was busy.
            plan = steps.plans_ahead.pop(epoch, None) or _plan(part, steps, config, seed, epoch, k)
            # 2. Take a step for each batch, with dropout from the seed of the plan.
            steps.generators.seed(current_group().seed(plan.seed))
            sums = steps.run(part, plan.batches, map(rate, range(taken, taken + len(plan.batches))))
            # 3. A GPU is still computing these steps: plan the next epoch meanwhile.
            if steps.device.type == "cuda" and part is steps.source and epoch < config.passes:
                steps.plans_ahead[epoch + 1] = _plan(part, steps, config, seed, epoch + 1)
            # 4. Read the sums; this waits for the device.
            total = total.plus(StepSums(*sums.tolist()))
            taken += len(plan.batches)
            # 5. In a long epoch, save the state between two parts if all sums are finite.
            now = time.perf_counter()
            if now - last_saved > SECONDS_BETWEEN_STATES and all(map(math.isfinite, total)):
                _copy_weights(state, steps)
                state.within = EpochProgress(k + 1, taken, done.seconds + now - began, tuple(total))
                writer.save(state)
                last_saved = now
    return {
        "epoch": epoch,
        "train_loss": total.loss / total.weight,
        "lr": rate(taken - 1),
        "gradient_norm": total.norm / taken,
        "seconds": done.seconds + time.perf_counter() - began,
    }


def _plan(part: EncodedPart, steps: Steps, config: TrainConfig, seed: int, epoch: int, k: int = 0) -> EpochPlan:
    """Draw the batches and the dropout seed of part k of an epoch, which depend only on (seed, epoch, k).

    A checkpoint therefore needs no state of a random generator.
    """
    rng = np.random.default_rng([seed, epoch, k] if k else [seed, epoch])
    dropout_seed = int(rng.integers(2**63))
    limits: dict[str, Any] = {
        "batch_size": config.sets_per_batch(len(steps.source)),
        "pair_budget": config.pair_budget,
        "pairs": steps.network.count_pairs,
    }
    if steps.network.batches_by_person and isinstance(part, EncodedSets) and part.persons is not None:
        return EpochPlan(dropout_seed, plan_person_batches(part.persons, part.sizes, **limits, rng=rng))
    tight = steps.device.type != "cuda"  # captured steps: having few shapes saves more than padding costs
    return EpochPlan(dropout_seed, plan_batches(part.sizes, **limits, rng=rng, tight=tight))


def _advance(state: RunState, entry: dict[str, Any], steps: Steps, config: TrainConfig) -> None:
    """Record an epoch in the state of the run."""
    # 1. Record the epoch and the weights.
    state.epoch, state.within = entry["epoch"], None
    state.history.append(entry)
    _copy_weights(state, steps)
    # 2. Copy the weights if they are the best on the validation part so far.
    if state.stopping is not None and state.stopping.update(state.epoch, entry["valid_loss"]):
        state.best = {k: v.clone() for k, v in state.module.items()}
    # 3. When patience runs out, the cool-down begins. A constant learning rate has none: the run ends immediately.
    if state.cooling is None and state.stopping is not None and state.stopping.should_stop:
        state.cooling = state.epoch
    cool_down = 0 if config.schedule == "constant" else config.patience
    cooled = state.cooling is not None and state.epoch >= state.cooling + cool_down
    state.finished = cooled or state.epoch >= config.passes


def _copy_weights(state: RunState, steps: Steps) -> None:
    """Store the current weights and optimiser state in the state of the run."""
    state.module = steps.network.state_dict()
    state.optimiser = steps.optimiser.state


def _require_finite(entry: dict[str, Any]) -> None:
    """Raise TrainingError if a loss of an epoch, or its gradient, is not finite."""
    epoch, loss, norm, held_out = (entry[k] for k in ("epoch", "train_loss", "gradient_norm", "valid_loss"))
    if not all(map(math.isfinite, (loss, norm, held_out or 0.0))):
        raise TrainingError(
            f"epoch {epoch}: the loss is no longer finite (training loss {loss}, validation loss {held_out}, gradient "
            f"norm {norm}). Lower lr, or set clip. The last good state is in the run folder, if a run folder was given."
        )


def _require_gradient(entry: dict[str, Any], data: Source) -> None:
    """Raise TrainingError if the gradient of an epoch is 0, or consists of rounding errors.

    If a feature differs between alternatives, a tiny gradient may also mean that the untrained weights are optimal.
    """
    epoch, norm = entry["epoch"], entry["gradient_norm"]
    is_rounded = epoch == 1 and norm <= MAX_ROUNDED_GRADIENT * entry["train_loss"]
    if norm == 0 or (is_rounded and not any(chunk.varies_within_sets() for chunk in data.chunks())):
        raise TrainingError(
            f"epoch {epoch}: no gradient reached the weights, so the model cannot learn. Either no feature differs "
            f"between the alternatives of any choice set or, with rate='relu', all rates are dead: lower lr, or use "
            f"rate='exp'."
        )


def _warn_if_diverged(losses: list[float]) -> None:
    """Warn if the training loss ended more than halfway between its minimum and its initial value."""
    lowest, last = min(losses), losses[-1]
    if last - lowest > max(MIN_REPORTED_RISE, (losses[0] - lowest) / 2):
        log.warning(
            "training diverged: the training loss fell to %.4g in epoch %d, but ended at %.4g. "
            "Lower lr or dropout, or raise weight_decay",
            lowest,
            losses.index(lowest) + 1,
            last,
        )


# -- held-out losses ----------------------------------------------------------------------------------------------


def mean_nll(network: ChoiceNetwork, data: EncodedTable, config: TrainConfig, nll: Nll | None = None) -> float:
    """Return the weighted mean NLL of the choices, without dropout, using ``nll`` if it supports the data."""
    total = torch.zeros(2, dtype=torch.float64, device=device_of(network))
    for losses, weight in _losses(network, data, config, nll):
        total += torch.stack([(weight * losses).sum(), weight.sum()]).double()
    current_group().sum_over_processes(total)
    loss, weight = total.tolist()
    return float(loss / weight)


def _is_clearly_better(
    first: Tensors,
    second: Tensors,
    network: ChoiceNetwork,
    valid: EncodedTable,
    config: TrainConfig,
    nll: Nll | None = None,
) -> bool:
    """Return True if the first weights beat the second weights on the validation data by more than noise.

    With the gain g_s of set s and its weight w_s, the mean gain is m = sum w g / sum w, and its standard error is
    sqrt(sum w^2 (g - m)^2) / sum w. The losses are compared set by set, so that the difficulty of a set cancels.
    """
    # 1. Compute the loss of each set with both weights.
    losses = []
    for weights in (first, second):
        network.load_state_dict(weights)
        losses.append([(loss.double(), weight.double()) for loss, weight in _losses(network, valid, config, nll)])
    # 2. Sum w, w g, w^2, w^2 g and w^2 g^2 over the sets of all processes.
    sums = torch.zeros(5, dtype=torch.float64, device=device_of(network))
    for (first_loss, weight), (second_loss, _) in zip(*losses, strict=True):
        gain = second_loss - first_loss
        sums += torch.stack(
            [x.sum() for x in (weight, weight * gain, weight**2, weight**2 * gain, (weight * gain) ** 2)]
        )
    current_group().sum_over_processes(sums)
    # 3. Compare the mean gain with its standard error.
    total, gain, squares, cross, square = sums.tolist()
    mean = gain / total
    return bool(
        mean > MIN_GAIN_STANDARD_ERRORS * math.sqrt(max(square - 2 * mean * cross + mean**2 * squares, 0.0)) / total
    )


def _losses(
    network: ChoiceNetwork, data: EncodedTable, config: TrainConfig, nll: Nll | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the NLLs and weights of the sets of this process, in an order that depends only on the data."""
    for part in data.parts():
        local, share = (part.local, None) if isinstance(part, DistributedSets) else (part, current_group().share)
        if local is None:
            continue
        if nll is not None and (losses := nll(local)) is not None:
            yield losses, local.weight
            continue
        for _, batch, log_p in predict(network, local, pair_budget=config.pair_budget, share=share):
            yield choice_nll(log_p, batch.chosen), batch.weight
