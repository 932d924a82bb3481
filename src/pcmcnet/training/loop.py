"""One loop for every network: networks, batches and a loss, and no knowledge of models.

    epoch:   plan batches from (seed, epoch)  ->  a step for each batch  ->  loss of the validation part
    run:     epochs until the last, or until early stopping and a cool-down  ->  the weights to keep

All that the loop may ask of a network is declared by :class:`~pcmcnet.training.network.ChoiceNetwork`. Every epoch
draws its order of batches and its dropout from (seed, epoch) alone, and each part of a source that comes in several
parts also from its number. So a run that resumes from a checkpoint is, on a CPU, bit for bit the run that was never
interrupted. The generators are the run's own, whatever else draws in the process. Within a part nothing is read back
from the device.
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
from pcmcnet.training.device import default_torch_settings, device_of
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.prediction import parameter_count, predict
from pcmcnet.training.step import EpochPlan, Steps, StepSums, steps_for

SECONDS_BETWEEN_STATES = 300.0  # within an epoch, in which the state is kept between two parts of the source
MIN_GAIN_STANDARD_ERRORS = (
    2.0  # standard errors by which the weights of an earlier epoch must be better than the last ones
)
MIN_REPORTED_RISE = 0.1  # of the training loss that is reported

log = logging.getLogger("pcmcnet")

Nll = Callable[[EncodedSets], Tensor | None]  # NLL of the choices (S,), faster than by the network; None if it cannot


@dataclass(frozen=True)
class TrainingOutcome:
    """The result of a run of the loop, beside the network's weights."""

    history: list[dict[str, Any]]
    epochs: int  # that lead to the weights kept


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
    """Train a network in place and leave it with the weights to keep.

    Parameters
    ----------
    network
        On the device of ``data``.
    data, valid
        Encoded choice sets, in memory or part by part; ``valid`` decides on the weights to keep, and, with a number for
        ``min_delta``, on when to stop.
    config, seed
        Options, and the seed of all randomness.
    checkpoint
        The file in which the state is kept after epochs, and within long ones, and whether to resume from it.
    progress
        Whether to show progress.
    on_epoch
        Called with the entry of each epoch. An error that it raises ends the training, once the state is kept; a
        :class:`StopFit` ends it as if no epochs were left.

    Returns
    -------
    Outcome
        The history, and the number of epochs that lead to the weights kept.

    Raises
    ------
    TrainingError
        When the loss stops being finite, or no gradient reaches the weights any more.
    """
    # 1. Choose the kind of step, and start afresh or from the state of an earlier run.
    steps = steps_for(network, data, config)
    state = checkpoint.read() if checkpoint else None
    if state is None:
        state = RunState(stopping=None if valid is None else EarlyStopping.of(config))
    else:
        network.load_state_dict(state.module)
        steps.optimiser.restore(state.optimiser)
        log.info("resuming after epoch %d%s", state.epoch, ", within the next" if state.within else "")
    epochs_before = state.epoch
    # 2. Run the epochs, in as many threads as a batch of this size is worth. The state is kept before anyone hears of
    #    an epoch: whatever ends the run there, it can be resumed.
    pairs = min(config.sets_per_batch(len(data)) * data.mean_pairs, config.pair_budget)
    with (
        show_epochs(config.passes, show=progress) as report,
        one_thread_per_operation(pairs * parameter_count(network)),
        CheckpointWriter(checkpoint) as writer,
    ):
        while not state.finished:
            entry = _epoch(steps, config, state, seed=seed, writer=writer)
            entry["valid_loss"] = None if valid is None else mean_nll(network, valid, config, steps.nll)
            _require_sound(entry)
            _advance(state, entry, steps, config)
            writer.keep(state)
            report(entry)
            if on_epoch is not None and _stops(on_epoch, entry):
                state.finished = True
                writer.keep(state)
    # 3. Without a validation part keep the last weights.
    if valid is None or state.stopping is None:
        if state.epoch > epochs_before and current_group().is_first:
            _warn_if_diverged([entry["train_loss"] for entry in state.history])
        return TrainingOutcome(state.history, state.epoch)
    # 4. With one keep the best weights, or the last ones if the best are better by no more than noise.
    last = {name: tensor.clone() for name, tensor in state.module.items()}  # the state holds the network's own tensors
    if config.min_delta == "noise" and not _clearly_better(state.best, last, network, valid, config, steps.nll):
        network.load_state_dict(last)
        return TrainingOutcome(state.history, state.epoch)
    network.load_state_dict(state.best)
    return TrainingOutcome(state.history, state.stopping.best_epoch)


def _stops(on_epoch: EpochCallback, entry: dict[str, Any]) -> bool:
    """Report an epoch to the caller; return True if it is to be the last one."""
    try:
        on_epoch({**entry})
    except StopFit:
        return True
    return False


# -- epochs -------------------------------------------------------------------------------------------------------


def _epoch(
    steps: Steps, config: TrainConfig, state: RunState, *, seed: int, writer: CheckpointWriter
) -> dict[str, Any]:
    """Go once through the training part, or through the rest of it; return the entry for the history."""
    epoch, cooling, done = state.epoch + 1, state.cooling, state.within or EpochProgress()
    began = last_kept = time.perf_counter()
    sets = len(steps.source)
    expected_steps = math.ceil(sets / config.sets_per_batch(sets))  # a few more if pair_budget cuts batches

    def rate(step: int) -> float:
        """Return the learning rate of a step; asked for before each step, and so checks for Ctrl-C."""
        raise_if_interrupted()
        at = min(epoch - 1 + step / expected_steps, float(epoch))
        return learning_rate(config, at / config.passes) if cooling is None else cooling_rate(config, at, since=cooling)

    steps.network.train()
    with drawing_from(steps.draws), nullcontext() if steps.network.takes_generators else redirect_draws():
        total, taken = StepSums(*done.totals), done.steps
        for k, part in enumerate(steps.source.parts((seed, epoch), done.parts), start=done.parts):
            # 1. Plan the batches of this part, unless they were planned while the device was busy.
            plan = steps.plans_ahead.pop(epoch, None) or _plan(part, steps, config, seed, epoch, k)
            # 2. A step for each batch, with dropout from the plan's seed.
            steps.draws.seed(current_group().seed(plan.seed))
            sums = steps.run(part, plan.batches, map(rate, range(taken, taken + len(plan.batches))))
            # 3. A GPU is still at work on these steps: plan the next epoch meanwhile.
            if steps.device.type == "cuda" and part is steps.source and epoch < config.passes:
                steps.plans_ahead[epoch + 1] = _plan(part, steps, config, seed, epoch + 1)
            # 4. Read the sums, which waits for the device.
            total = total.plus(StepSums(*sums.tolist()))
            taken += len(plan.batches)
            # 5. In a long epoch keep the state between two parts, if it is sound.
            now = time.perf_counter()
            if now - last_kept > SECONDS_BETWEEN_STATES and all(map(math.isfinite, total)):
                _copy_weights(state, steps)
                state.within = EpochProgress(k + 1, taken, done.seconds + now - began, tuple(total))
                writer.keep(state)
                last_kept = now
    return {
        "epoch": epoch,
        "train_loss": total.loss / total.weight,
        "lr": rate(taken - 1),
        "gradient_norm": total.norm / taken,
        "seconds": done.seconds + time.perf_counter() - began,
    }


def _plan(part: EncodedPart, steps: Steps, config: TrainConfig, seed: int, epoch: int, k: int = 0) -> EpochPlan:
    """Draw the batches and the dropout seed of part k of an epoch, from (seed, epoch, k) alone.

    So the state of a run needs no state of a generator.
    """
    rng = np.random.default_rng([seed, epoch, k] if k else [seed, epoch])
    dropout_seed = int(rng.integers(2**63))
    limits = {"batch_size": config.sets_per_batch(len(steps.source)), "pair_budget": config.pair_budget}
    if steps.network.batches_by_person and isinstance(part, EncodedSets) and part.persons is not None:
        return EpochPlan(dropout_seed, plan_person_batches(part.persons, part.sizes, **limits, rng=rng))
    tight = steps.device.type != "cuda"  # where steps are recorded, few shapes save more than padding costs
    return EpochPlan(dropout_seed, plan_batches(part.sizes, **limits, rng=rng, tight=tight))


def _advance(state: RunState, entry: dict[str, Any], steps: Steps, config: TrainConfig) -> None:
    """Record an epoch in the state of the run."""
    # 1. The epoch is done.
    state.epoch, state.within = entry["epoch"], None
    state.history.append(entry)
    _copy_weights(state, steps)
    # 2. Keep the weights if they are the best on the validation part so far.
    if state.stopping is not None and state.stopping.update(state.epoch, entry["valid_loss"]):
        state.best = {k: v.clone() for k, v in state.module.items()}
    # 3. When patience runs out the cool-down begins; without one, under a constant rate, the run ends at once.
    if state.cooling is None and state.stopping is not None and state.stopping.stop:
        state.cooling = state.epoch
    cool_down = 0 if config.schedule == "constant" else config.patience
    cooled = state.cooling is not None and state.epoch >= state.cooling + cool_down
    state.finished = cooled or state.epoch >= config.passes


def _copy_weights(state: RunState, steps: Steps) -> None:
    """Set the state of the run to the current weights and optimiser state."""
    state.module = steps.network.state_dict()
    state.optimiser = steps.optimiser.state


def _require_sound(entry: dict[str, Any]) -> None:
    """Raise if the losses of an epoch are not finite, or if no gradient reached the weights."""
    epoch, loss, norm, held_out = (entry[k] for k in ("epoch", "train_loss", "gradient_norm", "valid_loss"))
    if not all(map(math.isfinite, (loss, norm, held_out or 0.0))):
        raise TrainingError(
            f"epoch {epoch}: the loss is no longer finite (training {loss}, validation {held_out}, gradient {norm}). "
            f"Lower lr, or set clip; the last good state is in the run folder if one was given."
        )
    if norm == 0:
        raise TrainingError(
            f"epoch {epoch}: no gradient reached the weights, so the model cannot learn. Either no feature differs "
            f"between the alternatives of any set, or, with rate='relu', all rates are dead: lower lr, or use "
            f"rate='exp'."
        )


def _warn_if_diverged(losses: list[float]) -> None:
    """Warn if the training loss lost more than half of what it had gained: no later epoch repairs that."""
    least, last = min(losses), losses[-1]
    if last - least > max(MIN_REPORTED_RISE, (losses[0] - least) / 2):
        log.warning(
            "the training loss fell to %.4g in epoch %d, but ended at %.4g: the fit came off course. "
            "Lower lr or dropout, or raise weight_decay",
            least,
            losses.index(least) + 1,
            last,
        )


# -- held-out losses ----------------------------------------------------------------------------------------------


def mean_nll(network: ChoiceNetwork, data: EncodedTable, config: TrainConfig, nll: Nll | None = None) -> float:
    """Return the weighted mean NLL of the choices, without dropout; ``nll`` is a faster way to it."""
    total = torch.zeros(2, dtype=torch.float64, device=device_of(network))
    for losses, weight in _losses(network, data, config, nll):
        total += torch.stack([(weight * losses).sum(), weight.sum()]).double()
    current_group().sum_over_processes(total)
    loss, weight = total.tolist()
    return float(loss / weight)


def _clearly_better(
    first: Tensors,
    second: Tensors,
    network: ChoiceNetwork,
    valid: EncodedTable,
    config: TrainConfig,
    nll: Nll | None = None,
) -> bool:
    """Return True if some weights beat others on the validation part by more than the noise of their difference.

    With the gain g_s of set s and its weight w_s, the mean gain is m = sum w g / sum w, and its standard error is
    sqrt(sum w^2 (g - m)^2) / sum w. The losses are compared set by set: what makes a set hard for both cancels.
    """
    # 1. The loss of each set by both.
    losses = []
    for weights in (first, second):
        network.load_state_dict(weights)
        losses.append([(loss.double(), weight.double()) for loss, weight in _losses(network, valid, config, nll)])
    # 2. Sums of w, w g, w^2, w^2 g and w^2 g^2 over the sets of all processes.
    sums = torch.zeros(5, dtype=torch.float64, device=device_of(network))
    for (ours, weight), (theirs, _) in zip(*losses, strict=True):
        gain = theirs - ours
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
    """Yield NLLs and weights of this process's sets, in an order that depends on the data alone."""
    for part in data.parts():
        local, share = (part.local, None) if isinstance(part, DistributedSets) else (part, current_group().share)
        if local is None:
            continue
        if nll is not None and (losses := nll(local)) is not None:
            yield losses, local.weight
            continue
        for _, batch, log_p in predict(network, local, pair_budget=config.pair_budget, share=share):
            yield choice_nll(log_p, batch.chosen), batch.weight
