"""One loop for every network: modules, batches and a loss, and no knowledge of models.

A module maps a ``Batch`` to log-probabilities (B, J). Every epoch draws its order of batches and its dropout from
(seed, epoch) alone, and each part of a source that comes in several also from its number. So a run that goes on from a
checkpoint is, on a CPU, bit for bit the run that was never interrupted. Generators are the run's own, whatever else
draws in the process; a module whose parts ask for them says so (``takes_generators``), and for others what they draw is
redirected. Within a part nothing is read back from the device.
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
from torch import Tensor, nn

from pcmcnet.data.batches import EncodedSets, Part, Parted, Portion, Source, plan_batches, plan_persons
from pcmcnet.errors import StopFit, TrainingError
from pcmcnet.interrupts import raise_if_heard
from pcmcnet.layers.generators import drawing_from, redirected
from pcmcnet.layers.likelihood import choice_nll
from pcmcnet.layers.threads import parts_for
from pcmcnet.progress import Report, show_epochs
from pcmcnet.training.checkpoint import Checkpoint, Keeper, RunState, Tensors, Within
from pcmcnet.training.config import TrainConfig
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.device import device_of, undisturbed
from pcmcnet.training.dispatch import steps_for
from pcmcnet.training.prediction import predict, size_of
from pcmcnet.training.schedule import cooling_rate, learning_rate
from pcmcnet.training.step import Drawn, Steps, Totals
from pcmcnet.training.stopping import EarlyStopping

KEPT_EVERY = 300.0  # seconds after which the state is kept within an epoch too, between two parts of the source
NOISE = 2.0  # standard errors by which weights of an earlier epoch have to be better than the last ones
RISE = 0.1  # smallest rise of the training loss that is reported

log = logging.getLogger("pcmcnet")

Nll = Callable[[EncodedSets], Tensor | None]  # (S,) of the choices; None for sets that it does not take


@dataclass(frozen=True)
class Outcome:
    """What a run of the loop leaves, beside the module's weights."""

    history: list[dict[str, Any]]
    epochs: int  # that lead to the weights kept


@undisturbed()
@torch.enable_grad()
def train(
    module: nn.Module,
    data: Source,
    config: TrainConfig,
    *,
    valid: Parted | None = None,
    seed: int = 0,
    checkpoint: Checkpoint | None = None,
    progress: bool = False,
    on_epoch: Report | None = None,
) -> Outcome:
    """Train a module in place and leave it with the weights to keep.

    Parameters
    ----------
    module
        On the device of ``data``; maps a batch to log-probabilities.
    data, valid
        Encoded choice sets, in memory or part by part; ``valid`` decides on the weights to keep, and, with a number for
        ``min_delta``, on when to stop.
    config, seed
        Options, and where all randomness comes from.
    checkpoint
        Where the state goes after epochs, and within long ones, and whether to go on from there.
    progress
        Whether to show progress.
    on_epoch
        Called with the entry of each epoch; what it raises ends the training, once the state is kept, and a
        :class:`StopFit` ends it as if no epochs were left.

    Raises
    ------
    TrainingError
        When the loss stops being finite, or no gradient reaches the weights any more.
    """
    steps = steps_for(module, data, config)
    state = checkpoint.read() if checkpoint else None
    if state is None:
        state = RunState(stopping=None if valid is None else _stopping(config))
    else:
        module.load_state_dict(state.module)
        steps.optimiser.restore(state.optimiser)
        log.info("resuming after epoch %d%s", state.epoch, ", within the next" if state.within else "")
    before = state.epoch
    pairs = min(config.sets_per_batch(len(data)) * data.mean_pairs, config.pair_budget)
    with (
        show_epochs(config.passes, show=progress) as report,
        parts_for(pairs * size_of(module)),
        Keeper(checkpoint) as keeper,
    ):
        while not state.finished:
            entry = _epoch(steps, config, state, seed=seed, keeper=keeper)
            entry["valid_loss"] = None if valid is None else mean_nll(module, valid, config, steps.nll)
            _require_sound(entry)
            _advance(state, entry, steps, config)
            keeper.keep(state)
            report(entry)
            if on_epoch is not None and _ends(on_epoch, entry):
                state.finished = True
                keeper.keep(state)
    if valid is None or state.stopping is None:
        if state.epoch > before and current_group().leads:
            _tell_of_rise([entry["train_loss"] for entry in state.history])
        return Outcome(state.history, state.epoch)
    last = {name: tensor.clone() for name, tensor in state.module.items()}  # these are the module's own
    if config.min_delta == "noise" and not _clearly_better(state.best, last, module, valid, config, steps.nll):
        module.load_state_dict(last)
        return Outcome(state.history, state.epoch)
    module.load_state_dict(state.best)
    return Outcome(state.history, state.stopping.best_epoch)


def _ends(on_epoch: Report, entry: dict[str, Any]) -> bool:
    """Report an epoch; tell whether that is to be the last one."""
    try:
        on_epoch({**entry})
    except StopFit:
        return True
    return False


def _stopping(config: TrainConfig) -> EarlyStopping:
    """Return the rule for a validation part; with "noise" it never stops the training."""
    if config.min_delta == "noise":
        return EarlyStopping(patience=config.passes + 1, min_delta=0.0)
    return EarlyStopping(config.patience, config.min_delta)


def _clearly_better(
    first: Tensors, second: Tensors, module: nn.Module, valid: Parted, config: TrainConfig, nll: Nll | None = None
) -> bool:
    """Tell whether some weights beat others on the validation part by more than the noise of their difference.

    The losses of both are compared set by set: what makes a set hard for both cancels.
    """
    losses = []
    for weights in (first, second):
        module.load_state_dict(weights)
        losses.append([(loss.double(), weight.double()) for loss, weight in _losses(module, valid, config, nll)])
    sums = torch.zeros(5, dtype=torch.float64, device=device_of(module))
    for (ours, weight), (theirs, _) in zip(*losses, strict=True):
        gain = theirs - ours
        sums += torch.stack(
            [x.sum() for x in (weight, weight * gain, weight**2, weight**2 * gain, (weight * gain) ** 2)]
        )
    current_group().add_up(sums)
    total, gain, squares, cross, square = sums.tolist()
    mean = gain / total
    return bool(mean > NOISE * math.sqrt(max(square - 2 * mean * cross + mean**2 * squares, 0.0)) / total)


def _epoch(steps: Steps, config: TrainConfig, state: RunState, *, seed: int, keeper: Keeper) -> dict[str, Any]:
    """Go once through the training part, or through the rest of it; returns the entry for the history."""
    epoch, cooling, done = state.epoch + 1, state.cooling, state.within or Within()
    began = kept = time.perf_counter()
    device, sets = steps.total.device, len(steps.source)
    batch_size = config.sets_per_batch(sets)
    expected = math.ceil(sets / batch_size)  # a few more where the budget of pairs cuts batches

    def rate(step: int) -> float:
        raise_if_heard()  # asked for before each step
        at = min(epoch - 1 + step / expected, float(epoch))
        return learning_rate(config, at / config.passes) if cooling is None else cooling_rate(config, at, since=cooling)

    steps.module.train()
    given = getattr(steps.module, "takes_generators", False)
    with drawing_from(steps.draws), nullcontext() if given else redirected():
        total, taken = Totals(*done.totals), done.steps
        for k, part in enumerate(steps.source.parts((seed, epoch), done.parts), start=done.parts):
            drawn = steps.ahead.pop(epoch, None) or _draw(part, steps, config, batch_size, seed, epoch, k)
            steps.draws.seed(current_group().seed(drawn.seed))
            steps.turn_to(part)
            plan = drawn.plan
            sums = steps.run(plan, map(rate, range(taken, taken + len(plan))))
            if device.type == "cuda" and part is steps.source and epoch < config.passes:  # the device is at work
                steps.ahead[epoch + 1] = _draw(part, steps, config, batch_size, seed, epoch + 1)
            total = total.plus(Totals(*sums.tolist()))
            taken += len(plan)
            if (now := time.perf_counter()) - kept > KEPT_EVERY and all(map(math.isfinite, total)):
                _hold(state, steps)
                state.within = Within(k + 1, taken, done.seconds + now - began, tuple(total))
                keeper.keep(state)
                kept = now
    return {
        "epoch": epoch,
        "train_loss": total.loss / total.weight,
        "lr": rate(taken - 1),
        "gradient_norm": total.norm / taken,
        "seconds": done.seconds + time.perf_counter() - began,
    }


def _draw(part: Part, steps: Steps, config: TrainConfig, batch_size: int, seed: int, epoch: int, k: int = 0) -> Drawn:
    """Draw for a part of an epoch. Each does so by itself: the state of a run needs none of a generator."""
    rng = np.random.default_rng([seed, epoch, k] if k else [seed, epoch])
    drawn = int(rng.integers(2**63))
    limits = {"batch_size": batch_size, "pair_budget": config.pair_budget}
    if steps.whole_persons and isinstance(part, EncodedSets) and part.persons is not None:
        return Drawn(drawn, plan_persons(part.persons, part.sizes, **limits, rng=rng))
    tight = steps.device.type != "cuda"  # where steps are recorded, few shapes save more than padding costs
    return Drawn(drawn, plan_batches(part.sizes, **limits, rng=rng, tight=tight))


def _require_sound(entry: dict[str, Any]) -> None:
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


def _tell_of_rise(losses: list[float]) -> None:
    """Warn of a network that lost again more than half of what it had learnt: no later epoch is going to repair it."""
    least, last = min(losses), losses[-1]
    if last - least > max(RISE, (losses[0] - least) / 2):
        log.warning(
            "the training loss fell to %.4g in epoch %d, but ended at %.4g: the fit came off course. "
            "Lower lr or dropout, or raise weight_decay",
            least,
            losses.index(least) + 1,
            last,
        )


def _hold(state: RunState, steps: Steps) -> None:
    """Let the state be that of the weights and of the optimiser as they are now."""
    state.module = steps.module.state_dict()
    state.optimiser = steps.optimiser.state


def _advance(state: RunState, entry: dict[str, Any], steps: Steps, config: TrainConfig) -> None:
    """Take an epoch into the state of the run."""
    state.epoch, state.within = entry["epoch"], None
    state.history.append(entry)
    _hold(state, steps)
    if state.stopping is not None and state.stopping.update(state.epoch, entry["valid_loss"]):
        state.best = {k: v.clone() for k, v in state.module.items()}
    if state.cooling is None and state.stopping is not None and state.stopping.stop:
        state.cooling = state.epoch
    cool = 0 if config.schedule == "constant" else config.patience
    cooled = state.cooling is not None and state.epoch >= state.cooling + cool
    state.finished = cooled or state.epoch >= config.passes


def mean_nll(module: nn.Module, data: Parted, config: TrainConfig, nll: Nll | None = None) -> float:
    """Weighted mean negative log-likelihood of the choices, without dropout; ``nll`` is a faster way to them."""
    total = torch.zeros(2, dtype=torch.float64, device=device_of(module))
    for losses, weight in _losses(module, data, config, nll):
        total += torch.stack([(weight * losses).sum(), weight.sum()]).double()
    current_group().add_up(total)
    loss, weight = total.tolist()
    return float(loss / weight)


def _losses(module: nn.Module, data: Parted, config: TrainConfig, nll: Nll | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield negative log-likelihoods and weights of this process's sets, in an order that the data alone decide on."""
    for part in data.parts():
        own, share = (part.own, None) if isinstance(part, Portion) else (part, current_group().share)
        if own is None:
            continue
        if nll is not None and (losses := nll(own)) is not None:
            yield losses, own.weight
            continue
        for _, batch, log_p in predict(module, own, pair_budget=config.pair_budget, share=share):
            yield choice_nll(log_p, batch.chosen), batch.weight
