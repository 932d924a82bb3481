"""Fit a network: choose what the options leave open on held-out sets, train, refit, average.

    1. short fits to parts of the table choose weight decay, number of epochs, latent classes
    2. one network is trained on the whole table, and once more if the validation part is to be learnt from as well
    3. further networks are trained from other seeds; their probabilities are averaged

Weight decay: the best one spans three orders of magnitude from table to table, and no rule on sizes and numbers of
weights that was tried finds it.

    ladder of decays   64 -- 16 -- 4 -- 1 -- 0.25 -- 0.06 -- 0.016 -- 0.004     from almost a logit to unregularised

The walk begins at 4 and 1 and goes on along the ladder while held-out sets are predicted better. A parabola through the
best rung and its neighbours, over the logarithm of the decay, gives the decay. It stays within a quarter of a step of
the best rung: losses soar where the decay is too weak, so the parabola alone would lean towards strong decay. On a
small table the last two rungs are left out: they would serve many sets alone. Of a large table a sample is searched:
decay acts like a prior, whose weight against the data falls with the number of sets, so the decay found on a sample is
multiplied by the sample's share of the table.

Every number here was chosen on inner splits of development tables.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import Any, Literal

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, Encoder, ScannedData, Sets
from pcmcnet.errors import ConfigError, TrainingError
from pcmcnet.layers.threads import iterate_in_parallel, threads
from pcmcnet.models.interface.encoders import frozen_encoders
from pcmcnet.models.interface.fitted import FitRecord, FittedState
from pcmcnet.models.networks.averaging import (
    BIN_COUNTS,
    AveragedNetwork,
    BinnedView,
    NetworkSpec,
    automatic_members,
    bins_per_member,
)
from pcmcnet.models.networks.network_config import NetworkConfig
from pcmcnet.models.networks.trainer import NetworkBuilder, TrainedNetwork, Trainer
from pcmcnet.progress import StepReporter, describe_epoch, show_steps
from pcmcnet.selection import (
    DIVERGED_LOSS,
    SMALL_TABLE_SETS,
    Fold,
    Trial,
    TrialLog,
    best_number,
    grow_while_better,
    held_out_folds,
    held_out_groups,
    held_out_weights,
    parabola_minimum,
    searched_share,
    walk_ladder,
)
from pcmcnet.training import compiled_steps
from pcmcnet.training.checkpoint import CHECKPOINT
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.device import device_of
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.run_folder import REFIT, SEARCH, network_checkpoint_file, open_run_folder

log = logging.getLogger("pcmcnet")

DECAYS = (64.0, 16.0, 4.0, 1.0, 0.25, 0.0625, 0.015625, 0.00390625)
SMALL_TABLE_RUNGS = 6  # of the ladder, for small tables
FIRST_RUNGS = (2, 3)
MAX_SHIFT = 0.25  # rungs between the decay and the best rung, at most
TRIAL_LENGTH = 0.5  # epochs of a trial, as a share of those of a fit: the best decay is nearly the same
MAX_CLASSES = 4
BIN_PERIODS = (0, 3, 2)  # every n-th member may have bins: none of them, a third, half
DEFAULT_BIN_PERIOD = 3  # if no held-out sets decide

Auto = Literal["auto"]


@dataclass(frozen=True, kw_only=True)
class DecaySearch:
    """The trials of weight decays, and how many choice sets each was fitted to and predicted."""

    trials: tuple[Trial, ...]
    fitted_sets: int
    held_out_sets: int


@dataclass(frozen=True, kw_only=True)
class InitRecord:
    """The fitted network that a fit started from: the fingerprint of its table, and its epochs."""

    fingerprint: str
    epochs: int


@dataclass(frozen=True, kw_only=True)
class NetworkRecord(FitRecord):
    """How the fit of a network went.

    Parameters
    ----------
    spec
        Number of latent classes, and bins of each averaged network.
    epochs, weight_decay
        Of the weights kept.
    refit
        Whether the network was trained again on the training and the validation part.
    decay_search, class_trials
        What was tried on held-out sets.
    init
        The fitted network that the fit started from.
    """

    spec: NetworkSpec = field(default_factory=NetworkSpec)
    epochs: int
    weight_decay: float
    refit: bool = False
    decay_search: DecaySearch | None = None
    class_trials: tuple[Trial, ...] = ()
    init: InitRecord | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedNetwork(FittedState):
    """A trained network with the encoder of its inputs."""

    encoder: Encoder
    network: ChoiceNetwork


def fit_network(
    trainer: Trainer,
    train: Sets,
    valid: Sets | None,
    *,
    classes: int | Auto = 1,
    members: int | Auto = 1,
    with_bins: bool = True,
    average: type[AveragedNetwork] = AveragedNetwork,
) -> FittedNetwork:
    """Return a network fitted to a table.

    Parameters
    ----------
    trainer
        Options, seed, device; how to build the network.
    train, valid
        Choice sets to fit, and perhaps a validation part.
    classes
        Number of latent classes; "auto" learns it from held-out sets.
    members
        Number of averaged networks; "auto" is 6 for small networks on small tables if the weight decay is learnt, too.
    with_bins
        Whether some of the averaged networks may see numbers by bins.
    average
        The class of an average of such networks.
    """
    run, config, start = trainer.run, trainer.config, trainer.starting_network
    tables = () if valid is None else (valid,)
    both = joined_parts(train, valid) if config.refit and valid is not None else None
    with open_run_folder(run.run_folder, resume=run.resume):
        # 1. Choose weight decay, epochs and classes by short fits to parts of the table.
        trials = ShortFits.of(trainer, train, valid) if config.weight_decay == "auto" or classes == "auto" else None
        config, decay_search = choose_decay(config, trials)
        classes, class_trials = choose_classes(classes, config, trials, start)
        # 2. Train one network; with refit, train another one on both parts for as many epochs.
        first = last = trainer.train(train, tables, config, classes=classes, file=CHECKPOINT)
        part, file = train, CHECKPOINT
        if both is not None:
            log.info("training again on both parts for %d epochs", first.epochs)
            part, tables, file = both(), (), REFIT
            last = trainer.train(part, tables, replace(config, epochs=first.epochs), classes=classes, file=file)
        # 3. Train further networks for as many epochs as the last one, and average their probabilities.
        learns_decay = trainer.config.weight_decay == "auto"
        number = automatic_members(learns_decay, train, last.network) if members == "auto" else members
        if number > 1 and classes > 1:
            raise ConfigError("averaged networks need classes=1: the classes of several networks do not match.")
        encoder, bins = choose_bins(trainer, trials, decay_search, part, last.encoder, number, with_bins=with_bins)
        same = replace(config, epochs=len(last.history))

        def train_member(member: Trainer, k: int) -> TrainedNetwork:
            seen = encoder.with_bins(bins[k])
            return member.train(part, tables, same, encoder=seen, file=network_checkpoint_file(file, k + 1))

        others = train_members(trainer, train_member, last.network, len(bins))
    record = NetworkRecord(
        spec=NetworkSpec(classes=classes, bins=bins),
        epochs=first.epochs,
        weight_decay=config.decay,
        refit=both is not None,
        decay_search=decay_search,
        class_trials=class_trials,
        init=None if start is None else InitRecord(fingerprint=start.fingerprint, epochs=start.epochs),
    )
    views = [BinnedView(encoder, other.encoder).to(trainer.device) for other in others]
    network = average([last.network, *(other.network for other in others)], views) if others else last.network
    return FittedNetwork(record=record, history=first.history, encoder=encoder, network=network)


def build_network(
    build: NetworkBuilder, encoder: Encoder, spec: NetworkSpec, average: type[AveragedNetwork] = AveragedNetwork
) -> ChoiceNetwork:
    """Return a fresh network of the architecture that a fit has found, for weights that are read from a file."""
    encoders = [encoder, *(encoder.with_bins(bins) for bins in spec.bins[1:])]
    members = [build(seen, spec.classes) for seen in encoders]
    return members[0] if len(members) == 1 else average(members, [BinnedView(encoder, seen) for seen in encoders[1:]])


def joined_parts(train: Sets, valid: Sets) -> Callable[[], Sets]:
    """Return a function that joins both parts; raise ConfigError if they cannot be joined."""
    if isinstance(train, ChoiceData) and isinstance(valid, ChoiceData):
        return lambda: train.concat(valid)
    if isinstance(train, ScannedData) and isinstance(valid, ScannedData):
        joined = train.concat(valid)
        return lambda: joined
    raise ConfigError("refit=True needs both parts in memory, or both from one split of a scanned table.")


# -- Choices on held-out sets -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ShortFits:
    """Short fits to parts of the training sets, by whose losses on held-out sets options are chosen.

    Parameters
    ----------
    trainer
        Trains without progress and checkpoints.
    folds, encoders
        What is fitted and predicted, and what is known about the columns in each fold.
    share
        Share of the training sets that the folds were drawn from.
    log
        Losses of the trials, kept for a resumed run.
    """

    trainer: Trainer
    folds: Sequence[Fold]
    encoders: Sequence[Encoder]
    share: float
    log: TrialLog
    _straight: dict[tuple[int, float], TrainedNetwork] = field(default_factory=dict)  # fits of one class without bins

    @classmethod
    def of(cls, trainer: Trainer, train: Sets, valid: Sets | None) -> ShortFits | None:
        """Return the fits for a table; None if it is too small, or nothing differs between alternatives."""
        run, train = trainer.run, train.with_positive_weight()
        # 1. Gaps that a fold lacks, and vectors of frozen encoders, are known from the whole training part. A network
        #    to start from has its encoder already.
        whole = train.schema.can_have_missing_values or frozen_encoders(trainer.encoders) or run.init is not None
        common = trainer.learn_encoder(train) if whole else None
        # 2. Keep the folds in which a network can learn anything.
        folds = held_out_folds(train, None if valid is None else valid.with_positive_weight(), run.seed)
        encoders = [common or trainer.learn_encoder(fold.train) for fold in folds]
        varying = [
            (fold, encoder)
            for fold, encoder in zip(folds, encoders, strict=True)
            if encoder.encode(fold.train, warn=False).varies_within_sets()
        ]
        if not varying:
            return None
        # 3. Losses of an interrupted run are read again.
        folder = run.run_folder
        trial_log = TrialLog.open(None if folder is None else folder / SEARCH, trainer.identity, resume=run.resume)
        folds, encoders = [fold for fold, _ in varying], [encoder for _, encoder in varying]
        return cls(trainer.quiet, folds, encoders, searched_share(train), trial_log)

    @property
    def held_out_sets(self) -> int:
        """Number of choice sets that are predicted, in all folds together."""
        return sum(len(sets) for fold in self.folds for sets in fold.held_out)

    @property
    def fitted_sets(self) -> int:
        """Mean number of choice sets that a trial is fitted to."""
        return sum(len(fold.train) for fold in self.folds) // len(self.folds)

    def losses_by_epoch(self, decay: float) -> tuple[float, ...]:
        """Return the mean held-out loss after each epoch of fits with a weight decay."""
        curves = [
            self.log.run_once(f"weight decay {decay:g}, fold {k}", partial(self._curve, k, decay))
            for k in range(len(self.folds))
        ]
        # A fit that diverged has one loss; it counts in every epoch.
        longest = max(map(len, curves))
        even = [[*curve, *curve[-1:] * (longest - len(curve))] for curve in curves]
        weights = [sum(float(sets.weights.sum()) for sets in fold.held_out) for fold in self.folds]
        mean = np.average(even, axis=0, weights=weights)
        log.info("weight decay %g: held-out NLL %.4f", decay, mean[-1])
        return tuple(map(float, mean))

    def choice_losses(self, decay: float, *, classes: int | None = None, bins: int = 0) -> Floats:  # -> (H,)
        """Return the loss of every held-out choice by fits with some classes, or some bins per number."""
        what = f"{bins} bins" if classes is None else f"{classes} classes"
        number = self._classes if classes is None else classes
        losses = [
            self.log.run_once(
                f"{what}, fold {k}",
                partial(self._fold_losses, k, decay, number, bins),
                if_diverged=sum(map(len, self.folds[k].held_out)),
            )
            for k in range(len(self.folds))
        ]
        return np.concatenate([np.asarray(part) for part in losses])

    @property
    def _classes(self) -> int:
        """Latent classes of a trial: one, or those of the network to start from."""
        start = self.trainer.starting_network
        return 1 if start is None else start.spec.classes

    def _curve(self, k: int, decay: float) -> list[float]:
        return [entry["valid_loss"] for entry in self._trained(k, decay, self._classes, 0).history]

    def _fold_losses(self, k: int, decay: float, classes: int, bins: int) -> list[float]:
        trained, budget = self._trained(k, decay, classes, bins), self.trainer.config.pair_budget
        return [float(x) for sets in self.folds[k].held_out for x in trained.choice_nll(sets, budget)]

    def _trained(self, k: int, decay: float, classes: int, bins: int) -> TrainedNetwork:
        """Return a network fitted to a fold; plain ones are kept, since several questions are about them."""
        plain = classes == self._classes and not bins
        if plain and (k, decay) in self._straight:
            return self._straight[k, decay]
        fold, encoder, config = self.folds[k], self.encoders[k], self.trainer.config
        if bins:
            encoder = encoder.with_knots(fold.train).with_bins(bins)
        length = max(round(TRIAL_LENGTH * config.passes), 1)
        short = replace(config, epochs=length, min_delta="noise", weight_decay=decay)
        trained = self.trainer.train(fold.train, fold.held_out, short, classes=classes, encoder=encoder)
        if plain:
            self._straight[k, decay] = trained
        return trained


def choose_decay(config: NetworkConfig, trials: ShortFits | None) -> tuple[NetworkConfig, DecaySearch | None]:
    """Return the options with a weight decay and a number of epochs learnt from held-out sets, and the trials."""
    if trials is None or config.weight_decay != "auto":
        return config, None
    curves: dict[int, tuple[float, ...]] = {}

    def final_loss(rung: int) -> float:
        curves[rung] = trials.losses_by_epoch(DECAYS[rung])
        return curves[rung][-1]

    # 1. Walk along the ladder of decays.
    rungs = SMALL_TABLE_RUNGS if trials.fitted_sets < SMALL_TABLE_SETS else len(DECAYS)
    losses = walk_ladder(final_loss, FIRST_RUNGS, rungs)
    tried = tuple(Trial(value=DECAYS[rung], held_out_nll=loss) for rung, loss in losses.items())
    search = DecaySearch(trials=tried, fitted_sets=trials.fitted_sets, held_out_sets=trials.held_out_sets)
    best = min(losses, key=losses.__getitem__)
    if losses[best] >= DIVERGED_LOSS:
        values = ", ".join(f"{trial.value:g}" for trial in tried)
        raise TrainingError(f"training diverged with every weight decay that was tried ({values}): lower lr.")
    # 2. Go to the bottom of a parabola, near the best rung, and scale it to the whole table.
    step = DECAYS[0] / DECAYS[1]
    shift = parabola_minimum(losses, MAX_SHIFT) - best
    decay = trials.share * float(DECAYS[best] * step**-shift)
    # 3. Take fewer epochs if the best trial had its least loss long before its end.
    epochs = config.passes if config.epochs == "auto" else config.epochs
    if config.epochs == "auto":
        epochs = shorter_length(curves[best], epochs, trials.held_out_sets)
    log.info("weight decay %.3g, %d epochs: learnt from %d held-out sets", decay, epochs, trials.held_out_sets)
    return replace(config, weight_decay=decay, epochs=epochs), search


def shorter_length(losses: Sequence[float], epochs: int, held_out_sets: int) -> int:
    """Return the epochs of a fit, or fewer if the losses of a trial rose again after an early epoch.

    A rise counts from half a standard error on, of a loss whose standard deviation over choice sets is 1.
    """
    least = int(np.argmin(losses))
    rose = losses[-1] - losses[least] > 0.5 / math.sqrt(held_out_sets)
    return max(round(epochs * (least + 1) / len(losses)), 1) if rose else epochs


def choose_classes(
    classes: int | Auto, config: NetworkConfig, trials: ShortFits | None, start: Any
) -> tuple[int, tuple[Trial, ...]]:
    """Return the number of latent classes, given or learnt from held-out sets, and the trials."""
    if classes != "auto":
        return classes, ()
    if start is not None:
        return start.spec.classes, ()
    if trials is None:
        return 1, ()
    decay = config.decay / trials.share
    tried = grow_while_better(
        lambda number: trials.choice_losses(decay, classes=number),
        held_out_weights(trials.folds),
        held_out_groups(trials.folds),
        largest=MAX_CLASSES,
        what="classes",
    )
    return best_number(tried), tried


def choose_bins(
    trainer: Trainer,
    trials: ShortFits | None,
    search: DecaySearch | None,
    part: Sets,
    encoder: Encoder,
    members: int,
    *,
    with_bins: bool,
) -> tuple[Encoder, tuple[int, ...]]:
    """Return the bins per number of each averaged network, and the encoder that all of them share."""
    start = trainer.starting_network
    if start is not None:
        return encoder, start.spec.bins
    if members == 1 or not with_bins:
        return encoder, (0,) * members
    binned = encoder.with_knots(part.with_positive_weight())
    if not binned.has_knots:
        return encoder, (0,) * members
    period = DEFAULT_BIN_PERIOD if trials is None or search is None else best_bin_period(trials, search)
    bins = bins_per_member(members, period)
    return (binned if any(bins) else encoder), bins


def best_bin_period(trials: ShortFits, search: DecaySearch) -> int:
    """Return the n of "every n-th member has bins" with the least held-out loss; 0 for none."""
    # 1. Fit with the best decay, with and without bins.
    decay = min(search.trials, key=lambda trial: trial.held_out_nll).value
    straight, binned = (trials.choice_losses(decay, bins=bins) for bins in (0, BIN_COUNTS[0]))
    # 2. Compare averages of the two probabilities in which the binned one counts as often as in the members.
    weights = held_out_weights(trials.folds)
    nll = {n: float(np.average(average_nll(straight, binned, n), weights=weights)) for n in BIN_PERIODS}
    shown = ", ".join(f"{f'1 of {n}' if n else 'none'} {loss:.4f}" for n, loss in nll.items())
    log.info("averaged networks with bins, held-out NLL: %s", shown)
    return min(nll, key=nll.__getitem__)


def average_nll(straight: Floats, binned: Floats, period: int) -> Floats:  # 2 x (H,) -> (H,)
    """Return the NLL of an average of probabilities in which every ``period``-th is of a network with bins."""
    if not period:
        return straight
    mean: Floats = -np.logaddexp(np.log1p(-1 / period) - straight, -np.log(period) - binned)
    return mean


# -- Averaged networks --------------------------------------------------------------------------------------------


def train_members(
    trainer: Trainer, train_member: Callable[[Trainer, int], TrainedNetwork], first: ChoiceNetwork, members: int
) -> list[TrainedNetwork]:
    """Return the further networks of an average, each trained from its own seed.

    Parameters
    ----------
    trainer
        Of the first network.
    train_member
        Trains the network at a position, from 1 on, with a trainer of its own seed.
    first
        The first network.
    members
        Number of networks, the first one included.
    """
    run, start = trainer.run, trainer.starting_network
    # Networks train in parallel if their compiled steps release the GIL. A callback forces one after the other.
    parallel = _trains_without_gil(first) and run.on_epoch is None and current_group().size == 1
    max_workers, cancelled = threads() if parallel else 1, Event()
    trained: list[TrainedNetwork] = []
    with show_steps(members - 1, show=run.progress and members > 1) as shown:
        steps = StepReporter() if parallel else shown  # only this thread updates the progress bar
        on_epoch = partial(_cancel_if, cancelled) if parallel else run.on_epoch

        def train_one(k: int) -> TrainedNetwork:
            name = f"network {k + 1} of {members}"
            steps.begin(name)
            member = trainer.with_run(
                seed=int(np.random.default_rng([run.seed, k]).integers(2**31)),
                init=None if start is None else replace(start, number=k),
                on_epoch=steps.epochs(on_epoch, network=k + 1),
                progress=False,
                warn=False,
            )
            try:
                return train_member(member, k)
            except TrainingError as error:
                raise TrainingError(f"{name}: {error}") from error

        positions = range(1, members)
        results = iterate_in_parallel(train_one, positions, max_workers=max_workers, on_abort=cancelled.set)
        with closing(results):
            for k, one in zip(positions, results, strict=True):
                shown.end(f"network {k + 1} of {members}", describe_epoch(one.history[-1]))
                trained.append(one)
    return trained


def _trains_without_gil(network: ChoiceNetwork) -> bool:
    """Return whether compiled steps train the network, which release Python's interpreter lock."""
    compiled = network.compiled_form is not None and compiled_steps.compiled_library() is not None
    return compiled and device_of(network).type == "cpu"


def _cancel_if(cancelled: Event, entry: dict[str, Any]) -> None:
    """Cancel at the end of an epoch if the caller gave up; the checkpoint stays resumable."""
    if cancelled.is_set():
        raise CancelledError
