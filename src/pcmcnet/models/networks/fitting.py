"""Fit a network: choose options on held-out sets, train the network, refit it, and average several networks.

    1. short fits to parts of the table choose the weight decay, the number of epochs and the number of latent classes
    2. one network is trained on the training part, and with ``refit`` another one on the training and validation part
    3. short fits choose how many averaged networks have bins
    4. the other averaged networks are trained from other seeds

:func:`fit_network` runs these steps in order. The choices are based on the held-out losses of short fits
(:class:`ShortFits`). The rules that compare losses are in :mod:`pcmcnet.selection`.

The best weight decay varies by three orders of magnitude between tables, and no simple rule based on the number of
choice sets and the number of weights predicts it.

    ladder of decays   64 -- 16 -- 4 -- 1 -- 0.25 -- 0.06 -- 0.016 -- 0.004     from almost a logit to unregularised

The search first tries decays of 4 and 1, then moves along the ladder as long as the held-out loss falls. The chosen
decay minimises a parabola, in the logarithm of the decay, through the best decay tried and its neighbours. The chosen
decay is at most a quarter of a step from the best decay tried, because losses rise steeply towards weak decay and an
unrestricted parabola would choose too strong a decay. On a small table, the two weakest decays are left out, since only
large tables need such weak decay. For a large table, the search uses only a sample. Weight decay acts like a prior,
whose weight relative to the data falls with the number of choice sets, so the decay found for the sample is multiplied
by the sample's share of the table.

All constants were chosen on inner splits of development tables.
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
from pcmcnet.models.networks.averaged_members import (
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
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.device import device_of
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.run_folder import CHECKPOINT, REFIT, SEARCH, network_checkpoint_file, open_run_folder

log = logging.getLogger("pcmcnet")

DECAYS = (64.0, 16.0, 4.0, 1.0, 0.25, 0.0625, 0.015625, 0.00390625)
SMALL_TABLE_RUNGS = 6  # rungs of the ladder that small tables use
FIRST_RUNGS = (2, 3)  # where the search begins
MAX_SHIFT = 0.25  # largest distance between the decay and the best rung, in rungs
TRIAL_LENGTH = 0.5  # epochs of a trial, as a share of those of a fit: the best decay is nearly the same
# Of a table with fewer sets than this, factored networks hold out all four quarters in turn, and other networks two.
# Short fits of factored networks are fast, and with few held-out sets they chose too weak a decay. On inner splits of
# the itinerary table, the NLL fell by .006 (standard error .006).
MAX_ALL_QUARTERS_SETS = 2_000
MAX_CLASSES = 4
CLASS_PATIENCE = 2  # numbers of classes in a row without a gain: three groups of people may need three classes
BIN_PERIODS = (0, 3, 2)  # none of the members has bins, every third, every second
DEFAULT_BIN_PERIOD = 3  # if there are no held-out sets

Auto = Literal["auto"]


@dataclass(frozen=True, kw_only=True)
class DecaySearch:
    """The trials of the search for a weight decay, and the numbers of training and held-out choice sets."""

    trials: tuple[Trial, ...]
    fitted_sets: int
    held_out_sets: int


@dataclass(frozen=True, kw_only=True)
class InitRecord:
    """Record of the network that a fit started from: the fingerprint of its table, and its number of epochs."""

    fingerprint: str
    epochs: int


@dataclass(frozen=True, kw_only=True)
class NetworkRecord(FitRecord):
    """Record of the fit of a network.

    Parameters
    ----------
    spec
        Number of latent classes, and number of bins of each averaged network.
    epochs
        Number of epochs after which the first network reached its selected weights.
    weight_decay
        Weight decay of all averaged networks.
    refit
        Whether the network was trained again on the training and validation parts together.
    decay_search
        The search for the weight decay, or None if the weight decay was given.
    class_trials
        Trials of different numbers of latent classes. The tuple is empty if the number was given.
    init
        Record of the fitted network that the fit started from, if any.
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
    average: type[AveragedNetwork] = AveragedNetwork,
) -> FittedNetwork:
    """Return a network fitted to a table.

    Parameters
    ----------
    trainer
        Trainer of a single network.
    train, valid
        Training part, and validation part or None.
    classes
        Number of latent classes. If "auto", the number is chosen on held-out sets.
    members
        Number of networks to average. If "auto", :func:`choose_members` chooses up to 6.
    average
        Class of the network that averages several networks.
    """
    run, config, start = trainer.run, trainer.config, trainer.starting_network
    refit_data = joined_parts(train, valid) if config.refit and valid is not None else None
    with open_run_folder(run.run_folder, resume=run.resume):
        # 1. Choose weight decay, epochs and classes by short fits to parts of the table.
        trials = ShortFits.of(trainer, train, valid) if config.weight_decay == "auto" or classes == "auto" else None
        config, decay_search = choose_decay(config, trials)
        if config.epochs == "auto":
            config = replace(config, epochs=trainer.epochs)
        classes, class_trials = choose_classes(classes, config, trials, start)
        # 2. Train one network; with refit, train another one on both parts for as many epochs.
        data, held_out, file = train, () if valid is None else (valid,), CHECKPOINT
        first = last = trainer.train(data, held_out, config, classes=classes, file=file)
        if refit_data is not None:
            log.info("training again on the training and validation parts for %d epochs", first.epochs)
            data, held_out, file = refit_data(), (), REFIT
            last = trainer.train(data, held_out, replace(config, epochs=first.epochs), classes=classes, file=file)
        # 3. Choose the number of averaged networks and their bins.
        n_members = choose_members(members, trainer, train, last, classes)
        encoder = last.encoder
        if start is not None:
            bins = start.spec.bins
        elif n_members == 1:
            bins = (0,)
        else:
            with_knots = encoder.with_knots(data.with_positive_weight())
            bins = choose_bins(n_members, with_knots, trials, decay_search)
            encoder = with_knots if any(bins) else encoder
        # 4. Train the other networks for as many epochs as the last one, and average their probabilities.
        encoders = [encoder.with_bins(count) for count in bins[1:]]
        member_config = replace(config, epochs=len(last.history))
        further = train_members(trainer, last, encoders, data, held_out, member_config, file)
    network = average_networks(encoder, last, further, average)
    record = NetworkRecord(
        spec=NetworkSpec(classes=classes, bins=bins, rank=trainer.rank),
        epochs=first.epochs,
        weight_decay=config.decay,
        refit=refit_data is not None,
        decay_search=decay_search,
        class_trials=class_trials,
        init=None if start is None else InitRecord(fingerprint=start.fingerprint, epochs=start.epochs),
    )
    return FittedNetwork(record=record, history=first.history, encoder=encoder, network=network)


def refit_network(
    trainer: Trainer, train: Sets, fitted: FittedNetwork, *, average: type[AveragedNetwork] = AveragedNetwork
) -> FittedNetwork:
    """Return a network fitted to a resample of the training part of a fitted network.

    The encoder, the weight decay, the number of epochs, of latent classes and of factors, and the bins are those of the
    fitted network. All weights are trained from new starting values. Networks that start from the fitted weights would
    stay close to them, and would differ less than fits to different tables.

    Parameters
    ----------
    trainer
        Trainer of a single network.
    train
        The resample.
    fitted
        The fitted network.
    average
        Class of the network that averages several networks.
    """
    record, encoder = fitted.record, fitted.encoder
    assert isinstance(record, NetworkRecord)
    config = replace(trainer.config, weight_decay=record.weight_decay, epochs=record.epochs)
    trainer = replace(trainer, rank=record.spec.rank)
    first = trainer.train(train, (), config, classes=record.spec.classes, encoder=encoder)
    encoders = [encoder.with_bins(count) for count in record.spec.bins[1:]]
    further = train_members(trainer, first, encoders, train, (), config, CHECKPOINT)
    return replace(fitted, history=first.history, network=average_networks(encoder, first, further, average))


def average_networks(
    encoder: Encoder, first: TrainedNetwork, further: Sequence[TrainedNetwork], average: type[AveragedNetwork]
) -> ChoiceNetwork:
    """Return the network that averages the probabilities of several networks, or the only network."""
    if not further:
        return first.network
    views = [BinnedView(encoder, member.encoder).to(device_of(first.network)) for member in further]
    return average([first.network, *(member.network for member in further)], views)


def joined_parts(train: Sets, valid: Sets) -> Callable[[], Sets]:
    """Return a function that joins the training and validation parts, or raise ConfigError if they cannot be joined."""
    if isinstance(train, ChoiceData) and isinstance(valid, ChoiceData):
        return lambda: train.concat(valid)
    if isinstance(train, ScannedData) and isinstance(valid, ScannedData):
        joined = train.concat(valid)
        return lambda: joined
    raise ConfigError(
        "refit=True needs training and validation data that are either both in memory or both from the same split of a "
        "scanned table."
    )


def build_network(
    build: NetworkBuilder, encoder: Encoder, spec: NetworkSpec, average: type[AveragedNetwork] = AveragedNetwork
) -> ChoiceNetwork:
    """Return a new network with the architecture of a fitted network, into which saved weights can be loaded."""
    encoders = [encoder, *(encoder.with_bins(count) for count in spec.bins[1:])]
    members = [build(member_encoder, spec) for member_encoder in encoders]
    views = [BinnedView(encoder, member_encoder) for member_encoder in encoders[1:]]
    return average(members, views) if views else members[0]


# -- Choices on held-out sets -------------------------------------------------------------------------------------


def choose_decay(config: NetworkConfig, trials: ShortFits | None) -> tuple[NetworkConfig, DecaySearch | None]:
    """Return options with the weight decay and the epochs chosen on held-out sets, and a record of the search."""
    if trials is None or config.weight_decay != "auto":
        return config, None
    # 1. Walk along the ladder of decays.
    curves: dict[int, tuple[float, ...]] = {}  # losses by epoch of each rung

    def final_loss(rung: int) -> float:
        curves[rung] = trials.losses_by_epoch(DECAYS[rung])
        return curves[rung][-1]

    rungs = SMALL_TABLE_RUNGS if trials.fitted_sets < SMALL_TABLE_SETS else len(DECAYS)
    losses = walk_ladder(final_loss, FIRST_RUNGS, rungs)
    decay_trials = tuple(Trial(value=DECAYS[rung], held_out_nll=loss) for rung, loss in losses.items())
    search = DecaySearch(trials=decay_trials, fitted_sets=trials.fitted_sets, held_out_sets=trials.held_out_sets)
    best = min(losses, key=losses.__getitem__)
    if losses[best] >= DIVERGED_LOSS:
        values = ", ".join(f"{trial.value:g}" for trial in decay_trials)
        raise TrainingError(f"training diverged with every weight decay that was tried ({values}): lower lr.")
    # 2. Take the minimum of a parabola near the best rung, and scale the decay to the whole table.
    step = DECAYS[0] / DECAYS[1]
    shift = parabola_minimum(losses, MAX_SHIFT) - best
    decay = trials.share * float(DECAYS[best] * step**-shift)
    # 3. Take fewer epochs if the best trial had its smallest loss long before its end.
    epochs = config.epochs
    if epochs == "auto":
        epochs = shorter_length(curves[best], trials.trainer.epochs, trials.held_out_sets)
    log.info("weight decay %.3g, %d epochs: learnt from %d held-out sets", decay, epochs, trials.held_out_sets)
    return replace(config, weight_decay=decay, epochs=epochs), search


def shorter_length(losses: Sequence[float], epochs: int, held_out_sets: int) -> int:
    """Return the number of epochs of a fit, which is smaller if the losses of a trial rose after an early epoch.

    A rise counts if it exceeds half a standard error of the mean loss. The standard error is computed as if the loss of
    a choice set had a standard deviation of 1.
    """
    least = int(np.argmin(losses))
    rose = losses[-1] - losses[least] > 0.5 / math.sqrt(held_out_sets)
    return max(round(epochs * (least + 1) / len(losses)), 1) if rose else epochs


def choose_classes(
    classes: int | Auto, config: NetworkConfig, trials: ShortFits | None, start: Any
) -> tuple[int, tuple[Trial, ...]]:
    """Return the number of latent classes, chosen on held-out sets if ``classes`` is "auto", and the trials."""
    if classes != "auto":
        return classes, ()
    if start is not None:
        return start.spec.classes, ()
    if trials is None:
        return 1, ()
    decay = config.decay / trials.share
    class_trials = grow_while_better(
        lambda number: trials.choice_losses(decay, classes=number),
        held_out_weights(trials.folds),
        held_out_groups(trials.folds),
        largest=MAX_CLASSES,
        what="classes",
        patience=CLASS_PATIENCE,
    )
    return best_number(class_trials), class_trials


def choose_members(members: int | Auto, trainer: Trainer, train: Sets, first: TrainedNetwork, classes: int) -> int:
    """Return the number of networks to average.

    With "auto", networks are averaged only if the weight decay is learnt, there is a single class, and the table has no
    texts or images, because the cost of encoding these is unknown.
    """
    if members != "auto":
        if members > 1 and classes > 1:
            raise ConfigError("averaged networks need classes=1: classes of different networks do not match.")
        return members
    has_contents = first.encoder.individual.contents or first.encoder.features.contents
    if trainer.config.weight_decay != "auto" or classes > 1 or has_contents:
        return 1
    return automatic_members(train, first.network, replace(trainer.config, epochs=len(first.history)))


def choose_bins(
    members: int, encoder: Encoder, trials: ShortFits | None, search: DecaySearch | None
) -> tuple[int, ...]:
    """Return the number of bins per numeric column for each averaged network, or 0 for a network without bins."""
    if not encoder.has_knots:
        return (0,) * members
    period = DEFAULT_BIN_PERIOD if trials is None or search is None else best_bin_period(trials, search)
    return bins_per_member(members, period)


def best_bin_period(trials: ShortFits, search: DecaySearch) -> int:
    """Return n if the held-out loss is smallest with bins in every n-th member, or 0 if it is smallest without bins."""
    # 1. Fit with the best decay, with and without bins.
    decay = min(search.trials, key=lambda trial: trial.held_out_nll).value
    plain, binned = (trials.choice_losses(decay, bins=bins) for bins in (0, BIN_COUNTS[0]))
    # 2. Compare averages of both probabilities, weighted by the share of members with bins.
    weights = held_out_weights(trials.folds)
    nll = {n: float(np.average(average_nll(plain, binned, n), weights=weights)) for n in BIN_PERIODS}
    words = ", ".join(f"{f'1 of {n}' if n else 'none'} {loss:.4f}" for n, loss in nll.items())
    log.info("held-out NLL by share of averaged networks with bins: %s", words)
    return min(nll, key=nll.__getitem__)


def average_nll(plain: Floats, binned: Floats, period: int) -> Floats:  # 2 x (H,) -> (H,)
    """Return the NLL of averaged networks if every ``period``-th network has bins."""
    if not period:
        return plain
    mean: Floats = -np.logaddexp(np.log1p(-1 / period) - plain, -np.log(period) - binned)
    return mean


# -- Trials on folds ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ShortFits:
    """Short fits to folds of the training part, whose held-out losses are used to choose options.

    Parameters
    ----------
    trainer
        Trainer without progress bars or checkpoints.
    folds
        Training sets and held-out sets of each fold.
    encoders
        The encoder of each fold.
    share
        Share of the training part that the folds were drawn from.
    log
        Log of the losses of the trials, which a resumed run does not repeat.
    """

    trainer: Trainer
    folds: Sequence[Fold]
    encoders: Sequence[Encoder]
    share: float
    log: TrialLog
    _plain_fits: dict[tuple[int, float], TrainedNetwork] = field(default_factory=dict)  # by fold and decay

    @classmethod
    def of(cls, trainer: Trainer, train: Sets, valid: Sets | None) -> ShortFits | None:
        """Return the short fits to a table, or None if it is too small or no feature varies within choice sets."""
        run, train = trainer.run, train.with_positive_weight()
        # 1. Learn one encoder for all folds if missing values, frozen encoders or a starting network require it: a fold
        #    may have no missing value, and frozen encoders are slow.
        is_shared = train.schema.can_have_missing_values or frozen_encoders(trainer.encoders) or run.init is not None
        shared = trainer.learn_encoder(train) if is_shared else None
        # 2. Keep the folds in which a feature varies within choice sets.
        quarters = 4 if trainer.rank is not None and len(train) < MAX_ALL_QUARTERS_SETS else 2
        extra = None if valid is None else valid.with_positive_weight()
        folds = held_out_folds(train, extra, run.seed, quarters=quarters)
        pairs = [(fold, shared or trainer.learn_encoder(fold.train)) for fold in folds]
        pairs = [(f, e) for f, e in pairs if e.encode(f.train, warn=False).varies_within_sets()]
        if not pairs:
            return None
        # 3. Read the losses of an interrupted run.
        folder = run.run_folder
        trial_log = TrialLog.open(None if folder is None else folder / SEARCH, trainer.identity, resume=run.resume)
        folds, encoders = [fold for fold, _ in pairs], [encoder for _, encoder in pairs]
        return cls(trainer.quiet, folds, encoders, searched_share(train), trial_log)

    @property
    def held_out_sets(self) -> int:
        """Number of held-out choice sets in all folds."""
        return sum(len(sets) for fold in self.folds for sets in fold.held_out)

    @property
    def fitted_sets(self) -> int:
        """Mean number of training sets per fold."""
        return sum(len(fold.train) for fold in self.folds) // len(self.folds)

    def losses_by_epoch(self, decay: float) -> tuple[float, ...]:
        """Return the mean held-out loss after each epoch of fits with a given weight decay."""
        curves = [
            self.log.run_once(f"weight decay {decay:g}, fold {k}", partial(self._epoch_losses, k, decay))
            for k in range(len(self.folds))
        ]
        # A fit that diverged has a single loss, which counts in every epoch.
        longest = max(map(len, curves))
        padded = [[*curve, *curve[-1:] * (longest - len(curve))] for curve in curves]
        weights = [sum(float(sets.weights.sum()) for sets in fold.held_out) for fold in self.folds]
        mean = np.average(padded, axis=0, weights=weights)
        log.info("weight decay %g: held-out NLL %.4f", decay, mean[-1])
        return tuple(map(float, mean))

    def choice_losses(self, decay: float, *, classes: int | None = None, bins: int = 0) -> Floats:  # -> (H,)
        """Return the loss of every held-out choice for a given number of classes or bins per numeric column."""
        option = f"{bins} bins" if classes is None else f"{classes} classes"
        n_classes = self._classes if classes is None else classes
        losses = [
            self.log.run_once(
                f"{option}, fold {k}",
                partial(self._fold_losses, k, decay, n_classes, bins),
                if_diverged=sum(map(len, fold.held_out)),
            )
            for k, fold in enumerate(self.folds)
        ]
        return np.concatenate([np.asarray(fold_losses) for fold_losses in losses])

    @property
    def _classes(self) -> int:
        """Default number of latent classes in a trial: 1, or the number of classes of the starting network."""
        start = self.trainer.starting_network
        return 1 if start is None else start.spec.classes

    def _epoch_losses(self, k: int, decay: float) -> list[float]:
        return [entry["valid_loss"] for entry in self._fit_fold(k, decay, self._classes, 0).history]

    def _fold_losses(self, k: int, decay: float, classes: int, bins: int) -> list[float]:
        trained, budget = self._fit_fold(k, decay, classes, bins), self.trainer.config.pair_budget
        return [float(x) for sets in self.folds[k].held_out for x in trained.choice_nll(sets, budget)]

    def _fit_fold(self, k: int, decay: float, classes: int, bins: int) -> TrainedNetwork:
        """Return a network fitted to a fold.

        Fits with the default number of classes and without bins are cached, since fits with bins are compared with
        them.
        """
        is_plain = classes == self._classes and not bins
        if is_plain and (k, decay) in self._plain_fits:
            return self._plain_fits[k, decay]
        fold, encoder, config = self.folds[k], self.encoders[k], self.trainer.config
        if bins:
            encoder = encoder.with_knots(fold.train).with_bins(bins)
        length = max(round(TRIAL_LENGTH * self.trainer.epochs), 1)
        short = replace(config, epochs=length, min_delta="noise", weight_decay=decay)
        trained = self.trainer.train(fold.train, fold.held_out, short, classes=classes, encoder=encoder)
        if is_plain:
            self._plain_fits[k, decay] = trained
        return trained


# -- Averaged networks --------------------------------------------------------------------------------------------


def train_members(
    trainer: Trainer,
    first: TrainedNetwork,
    encoders: Sequence[Encoder],
    data: Sets,
    valid: Sequence[Sets],
    config: NetworkConfig,
    file: str,
) -> list[TrainedNetwork]:
    """Train the second and later averaged networks, each from its own seed.

    Parameters
    ----------
    trainer
        The trainer of the first network.
    first
        The first network, whose architecture and device determine whether the others can be trained in parallel.
    encoders
        The encoder of each network to train.
    data, valid, config
        Arguments of :meth:`Trainer.train`.
    file
        File name of the first network's checkpoint. The names of the other checkpoints are derived from this name.
    """
    run, start, members = trainer.run, trainer.starting_network, len(encoders) + 1
    # Networks train in parallel if their compiled steps release the GIL. A callback forces sequential training.
    releases_gil = compiled_steps.usable_form(first.network, data.largest) is not None
    parallel = releases_gil and run.on_epoch is None and current_group().size == 1
    max_workers, cancelled = threads() if parallel else 1, Event()
    if encoders:
        seconds = sum(entry["seconds"] for entry in first.history) * -(-len(encoders) // max_workers)
        log.info("training %d further networks, to be averaged with the first: about %.0f s", len(encoders), seconds)
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
            checkpoint = network_checkpoint_file(file, k + 1)
            try:
                return member.train(data, valid, config, encoder=encoders[k - 1], file=checkpoint)
            except TrainingError as error:
                raise TrainingError(f"{name}: {error}") from error

        positions = range(1, members)
        results = iterate_in_parallel(train_one, positions, max_workers=max_workers, on_abort=cancelled.set)
        with closing(results):
            for k, member in zip(positions, results, strict=True):
                shown.end(f"network {k + 1} of {members}", describe_epoch(member.history[-1]))
                trained.append(member)
    return trained


def _cancel_if(cancelled: Event, entry: dict[str, Any]) -> None:
    """Raise CancelledError at the end of an epoch if the fit was cancelled.

    The fit can be resumed from its checkpoint.
    """
    if cancelled.is_set():
        raise CancelledError
