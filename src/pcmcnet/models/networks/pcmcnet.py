"""PCMC-Net (Lhéritier, 2020): choice probabilities as the stationary law of a chain whose rates a network gives.

    representation of I and of each S_i  ->  rate of every ordered pair  ->  stationary distribution

The rates depend on features, and on labels where there are any, so alternatives never seen before are no matter; and
where all alternatives are copied, the copies of each share its probability (uniform expansion).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import Batch, ChoiceData, EncodedSets, Encoder, ScannedData, Sets
from pcmcnet.data.batches import plan_batches
from pcmcnet.data.ragged import stretches
from pcmcnet.errors import ConfigError, InputError, TrainingError
from pcmcnet.layers.threads import side_by_side, threads
from pcmcnet.models.interface.chain_model import ChainModel, chains_of
from pcmcnet.models.interface.fit_settings import FitSettings
from pcmcnet.models.interface.latent_classes import LatentClasses
from pcmcnet.models.interface.options import takes
from pcmcnet.models.interface.own_encoders import Encoders
from pcmcnet.models.items.class_trials import ClassTrial, best_number
from pcmcnet.models.networks import item_start, logit_start
from pcmcnet.models.networks.chain_mixture import ChainMixture
from pcmcnet.models.networks.chain_network import PCMCNetwork
from pcmcnet.models.networks.class_search import search_classes
from pcmcnet.models.networks.curve_members import MEMBERS, UNTOLD, CurveView, pieces_kept, pieces_of, turn_of_curves
from pcmcnet.models.networks.decay_search import Pair, Search
from pcmcnet.models.networks.diagram import draw_network
from pcmcnet.models.networks.held_out_trials import Trials
from pcmcnet.models.networks.network_slopes import Input, jacobian_by_output, jacobian_by_pairs
from pcmcnet.models.networks.neural_model import NeuralModel, Trained, log, require_differences
from pcmcnet.models.networks.pcmcnet_config import PCMCNetConfig
from pcmcnet.progress import Steps, describe_epoch, show_steps
from pcmcnet.storage.files import write_bytes
from pcmcnet.training import TrainConfig, compiled_steps
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.device import device_of
from pcmcnet.training.device_batches import batches_on, encode_on
from pcmcnet.training.prediction import predict

SMALL_TABLE, SMALL_TABLE_PAIRS = 12_000, 3e6  # choice sets, and ordered pairs of alternatives in them


@dataclass(frozen=True, kw_only=True, slots=True)
class PCMCNetArguments(PCMCNetConfig):
    """What the constructor takes: the options, and what no option can hold."""

    encoders: Encoders | None = None


class PCMCNet(NeuralModel, LatentClasses, ChainModel):
    """Pairwise choice Markov chain with rates from a neural network.

    Options are those of :class:`PCMCNetConfig`; an unknown one is refused. ``encoders`` names modules of one's own for
    columns of contents: see :class:`NeuralModel`.

    Examples
    --------
    >>> PCMCNet(hidden=(16, 16), epochs=20).config.hidden
    (16, 16)
    """

    name = "pcmcnet"
    config_class = PCMCNetConfig
    config: PCMCNetConfig
    _classes = 1  # of the network that is built next
    _learns_classes = False  # whether their number is learnt from the table
    _pieces: tuple[int, ...] = (0,)  # of curves, of each of the networks that are averaged
    _turn_of_curves: Callable[[], int]  # the n of "every n-th of them sees some"

    @takes(PCMCNetArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @classmethod
    def paper(cls, hidden: Sequence[int] = (16, 16, 16), **options: Any) -> PCMCNet:
        """Return the model with the paper's own settings for its experiments.

        Rates max(0, f) + 0.5, the published initialisation, Adam at a constant rate of 0.001, one choice set per
        step, 100 epochs, no dropout; a start with most rates dead, about half of them, gets a higher output bias. The
        airline experiment differs by ``hidden=(512, 512), batch_size=16,
        dropout=0.5, epochs=66``.
        """
        settings: dict[str, Any] = {
            "activation": "leaky_relu",
            "dropout": 0.0,
            "rate": "relu",
            "epsilon": 0.5,
            "utility": "none",
            "initialisation": "paper",
            "precision": "float32",
            "labels": False,
            "tails": "keep",
            "epochs": 100,
            "batch_size": 1,
            "lr": 0.001,
            "schedule": "constant",
            "warmup": 0.0,
            "weight_decay": 0.0,
            "clip": 0.0,
            "patience": 5,
            "min_delta": 0.01,
        }
        return cls(**{**settings, "hidden": hidden, **options})

    def _more_facts(self) -> dict[str, str]:
        facts = {}
        if self.config.classes != 1:
            facts["classes"] = f"{self.n_classes_}" + (", each a chain of its own" if self.n_classes_ > 1 else "")
        if trials := self.training_.get("class_trials"):
            gains = (f"{t['classes']}: {t['gain']:+.4f} ± {t['standard_error']:.4f}" for t in trials[1:])
            facts["classes"] += f"; gain of held-out sets in NLL by {', by '.join(gains)}"
        if self._members > 1:
            curved = sum(pieces > 0 for pieces in self._pieces)
            seen = f"; {curved} of them see numbers by curves, too" if curved else ""
            facts["networks"] = f"{self._members}, from different starts, whose probabilities are averaged{seen}"
        return facts

    def diagram(self, path: str | os.PathLike[str] | None = None) -> str:
        """Draw the fitted network: columns, representation, pairs, rate layers, law, and the parameters of each.

        Parameters
        ----------
        path
            Where to write the drawing as well, a file name that ends in .svg.

        Returns
        -------
        str
            The drawing, as the text of an SVG file.

        Raises
        ------
        InputError
            When the path is not that of an SVG file that can be written.
        """
        _ = self.schema
        if path is not None and not (isinstance(path, str | os.PathLike) and Path(path).suffix.lower() == ".svg"):
            raise InputError(f"expected a file name that ends in .svg, got {path!r}.")
        assert isinstance(self.network_, PCMCNetwork)
        text = draw_network(self.encoder_, self.network_, self.config)
        if path is not None:
            write_bytes(Path(path), text.encode())
        return text

    def export(self, path: str | Path) -> Path:
        """Write the fitted network as a graph for other programs: see :mod:`pcmcnet.models.saving.export`.

        Parameters
        ----------
        path
            A file name that ends in .onnx, for any ONNX runtime, or in .pt2, for ``torch.export.load``. How columns
            become its inputs is written beside it, to the same name with the ending .encoder.json.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ConfigError
            When the model reads columns such as texts or pictures, or a package that writes the file is missing.
        """
        from pcmcnet.models.saving.export import export_network

        _ = self.schema
        assert isinstance(self.network_, PCMCNetwork)
        return export_network(self.network_, self.encoder_, path)

    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        assert isinstance(self.network_, PCMCNetwork)
        yield from self._answers(data, self.network_.chains)

    def _answers(self, data: ChoiceData, answer: Callable[[Batch], Tensor]) -> Iterator[tuple[Ints, Tensor]]:
        """Yield positions (B,) of sets, and what the network answers (B, ...)."""
        assert isinstance(self.network_, PCMCNetwork)
        encoded = encode_on(device_of(self.network_), self.encoder_, data)
        for sets, _, found in predict(self.network_, encoded, pair_budget=self.config.pair_budget, answer=answer):
            yield sets, found

    def fixed_chains(self, data: ChoiceData) -> tuple[Floats, list[Floats]]:
        """As in any chain model; networks that are put together have a chain each."""
        if self._members == 1:
            return super().fixed_chains(data)
        assert isinstance(self.network_, PCMCNetwork)
        shares = np.full((len(data), self._members), 1 / self._members)
        return shares, chains_of(data, self._answers(data, self.network_.member_chains), self._members)

    @property
    def _members(self) -> int:
        """Number of networks whose probabilities are averaged."""
        return len(self._pieces)

    @property
    def n_classes_(self) -> int:
        """Number of classes of people, each with a chain of its own."""
        _ = self.schema
        return self._classes

    @property
    def n_chains(self) -> int:
        """As many as classes."""
        return self.n_classes_

    def _log_membership(self, sets: ChoiceData) -> Floats:
        found = np.zeros((len(sets), self.n_classes_))
        if isinstance(self.network_, ChainMixture):
            for at, log_m in self._answers(sets, self.network_.log_membership):
                found[at] = log_m.double().cpu().numpy()
        return found

    def _class_log_p(self, data: ChoiceData) -> Floats:
        network = self.network_
        if not isinstance(network, ChainMixture):
            return self._log_proba(data)[:, None]
        found = np.empty((len(data.rows), self.n_classes_))
        for at, p in self._answers(data, lambda batch: network.classwise(batch)[1]):
            sizes = data.sizes[at]
            real = np.arange(p.shape[2]) < sizes[:, None]  # (B, J)
            with np.errstate(divide="ignore"):
                found[stretches(data.offsets[at], sizes)] = np.log(p.double().cpu().numpy().swapaxes(1, 2)[real])
        return found

    def _fit(self, train: Sets, valid: Sets | None, settings: FitSettings) -> None:
        given, init = self.config.classes, settings.init
        self._classes = 1 if init is None else int(init.training.get("classes", 1))  # one chain teaches the decay
        self._learns_classes = given == "auto" and init is None
        apart = isinstance(train, ScannedData) or current_group().size > 1
        if given != 1 and self.config.by == "person" and train.schema.person is not None and apart:
            raise ConfigError(
                "classes of persons need all sets of a person at once, in one process: read the table into memory and "
                "fit it in one process, or fit with by='set'."
            )
        self._class_trials: list[ClassTrial] = []
        self._pieces = (0,)
        self._averages = self.config.weight_decay == "auto" and not apart and _is_small(train)
        try:
            super()._fit(train, valid, settings)
        finally:
            self.__dict__.pop("_turn_of_curves", None)  # it holds the table
        if self._members > 1:
            self.training_ = {**self.training_, "members": self._members, "pieces": list(self._pieces)}
        if given != 1:
            tried = {"class_trials": [trial.to_dict() for trial in self._class_trials]} if self._class_trials else {}
            self.training_ = {**self.training_, "classes": self._classes, **tried}

    def _add_members(
        self, run: Callable[[FitSettings, int, Encoder], Trained], part: Sets, settings: FitSettings
    ) -> None:
        first, encoder, start = self.network_, self.encoder_, settings.init
        assert isinstance(first, PCMCNetwork)
        if start is None:
            members = self._wanted_members(first)
            curves = encoder.with_knots(part.counted()) if members > 1 and not self.config.monotone else encoder
            pieces = pieces_of(members, self._turn_of_curves() if curves.has_knots else 0)
            encoder = curves if any(pieces) else encoder
        else:
            pieces = pieces_kept(start.training)
        at_once, ended = threads() if _go_side_by_side(first, settings) else 1, Event()
        with show_steps(len(pieces) - 1, show=settings.progress and len(pieces) > 1) as steps:
            heard = steps if at_once == 1 else Steps()  # what is shown is told by this thread alone
            listener = settings.on_epoch if at_once == 1 else partial(_give_up, ended)

            def trained(number: int) -> Trained:
                seed = int(np.random.default_rng([settings.seed, number - 1]).integers(2**31))
                given = None if start is None else start.other(number - 1)
                told = heard.epochs(listener, network=number)
                as_told = replace(settings, seed=seed, init=given, progress=False, on_epoch=told, tells=False)
                heard.begin(f"network {number} of {len(pieces)}")
                try:
                    return run(as_told, number, encoder.with_pieces(pieces[number - 1]))
                except TrainingError as error:
                    raise TrainingError(f"network {number} of {len(pieces)}: {error}") from error

            numbers = range(2, len(pieces) + 1)
            one_by_one = (trained(number) for number in numbers)
            together = side_by_side(trained, numbers, at_once=at_once, give_up=ended.set)
            with closing(one_by_one if at_once == 1 else together) as found:
                for number, done in zip(numbers, found, strict=True):
                    steps.end(f"network {number} of {len(pieces)}", describe_epoch(done.outcome.history[-1]))
                    assert isinstance(done.network, PCMCNetwork)
                    first.add(done.network, CurveView(encoder, done.encoder))
        self.network_, self.encoder_, self._pieces = first, encoder, pieces

    def _wanted_members(self, network: PCMCNetwork) -> int:
        """Return how many networks to put together: as given, or by rule."""
        if self.config.members != "auto":
            return self.config.members
        return MEMBERS if self._averages and network.compiled_form is not None else 1

    @property
    def _searches(self) -> bool:
        return super()._searches or self._learns_classes

    def _choose_form(self, trials: Trials | None, search: Search | None, config: TrainConfig) -> None:
        self._turn_of_curves = lambda: UNTOLD
        if trials is not None and search is not None:
            self._turn_of_curves = partial(turn_of_curves, trials, search.best.decay, self._choice_nll)
        if trials is None or not self._learns_classes:
            self._classes = self._classes if self.config.classes == "auto" else self.config.classes
            return

        def losses(pair: Pair, classes: int) -> list[float]:
            self._classes = classes
            trials.run(pair, config.decay / trials.share)
            return [float(x) for data in pair[1] for x in self._choice_nll(data)]

        self._class_trials = search_classes(trials.pairs, losses, trials.kept)
        self._classes = best_number(self._class_trials)

    def _choice_nll(self, data: ChoiceData) -> Floats:
        """(S,) NLL of the choices by the network as it is."""
        losses: Floats = -self._log_proba(data)[data.offsets[:-1] + data.require_chosen("a trial")]
        return losses

    def _restore(self, files: Mapping[str, bytes]) -> None:
        self._classes, self._pieces = int(self.training_.get("classes", 1)), pieces_kept(self.training_)
        super()._restore(files)

    def _build(self, encoder: Encoder) -> PCMCNetwork:
        if not encoder.features:
            raise InputError(
                "PCMC-Net tells alternatives apart by their features and labels: declare a feature, or "
                "alternative, with labels that return in several sets, and leave labels=True."
            )
        if self._classes == 1:
            network = PCMCNetwork(encoder, self.config, self.encoders)
            for pieces in self._pieces[1:]:
                own = encoder.with_pieces(pieces)
                network.add(PCMCNetwork(own, self.config, self.encoders), CurveView(encoder, own))
            return network
        return ChainMixture(encoder, self.config, self.encoders, classes=self._classes)

    def _jacobian(self, batch: Batch, at: Input) -> Tensor:
        assert isinstance(self.network_, PCMCNetwork)
        side = self.network_.individual if at.individual else self.network_.alternative
        cut = at.individual and bool(self.config.monotone)  # tastes that end at a coefficient of 0
        # The pairs' own way takes representation and taste to be linear in the number, and one chain.
        if at.k in side.curved or cut or self.n_classes_ > 1 or self._members > 1:
            return jacobian_by_output(self.network_, batch, at)
        return jacobian_by_pairs(self.network_, batch, at)

    @torch.no_grad()
    def _prepare(self, network: nn.Module, data: EncodedSets) -> None:
        assert isinstance(network, PCMCNetwork)
        require_differences(data)
        if self.config.rate == "relu":
            plan = plan_batches(data.sizes, batch_size=1024, pair_budget=self.config.pair_budget)
            largest = plan[-1:]  # a set of one has no pair
            (batch,) = batches_on(device_of(network), data, largest)
            network.eval()  # dropout would make the check a matter of chance
            if network.revive(batch):
                log.info("most rates had no gradient at the start; the output bias was raised")
        elif self.config.rate == "exp" and self.config.epsilon == 0:
            # A shift of all scores is one of the time scale, which the law ignores: the gradient is 0, and Adam would
            # follow its rounding errors.
            network.rates.output.bias.requires_grad_(False)

    def _begin(self, network: nn.Module, config: TrainConfig, sample: Callable[[int], EncodedSets]) -> None:
        assert isinstance(network, PCMCNetwork)
        if network.items is not None:
            item_start.start_as_items(network.items, sample(item_start.SETS), config.decay)
        elif network.utility is not None and config.decay >= logit_start.FROM_DECAY:
            logit_start.start_as_logit(network.utility, sample(logit_start.SETS))


def _go_side_by_side(network: PCMCNetwork, settings: FitSettings) -> bool:
    """Tell networks whose steps leave Python to other threads. Who listens to epochs hears one after the other."""
    compiled = network.compiled_form is not None and compiled_steps.library() is not None
    return compiled and device_of(network).type == "cpu" and settings.on_epoch is None and current_group().size == 1


def _give_up(ended: Event, entry: dict[str, Any]) -> None:
    """End a training after an epoch, once nobody waits for it; its state is kept as that of one not finished."""
    if ended.is_set():
        raise CancelledError


def _is_small(train: Sets) -> bool:
    """Tell a table of which several networks are soon trained."""
    return len(train) <= SMALL_TABLE and isinstance(train, ChoiceData) and (train.sizes**2.0).sum() <= SMALL_TABLE_PAIRS
