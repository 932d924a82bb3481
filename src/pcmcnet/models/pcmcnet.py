"""PCMC-Net (Lhéritier, 2020): a network computes the rates of a Markov chain over the choice set.

    representation of I and of each S_i  ->  rate of every ordered pair  ->  stationary distribution

The choice probabilities are the stationary distribution of the chain. The rates depend on features, and on labels if
the table has them, so the model also predicts choices of unseen alternatives. If every alternative of a set is copied,
the copies of an alternative share its probability (uniform expansion).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import Batch, ChoiceData, Encoder, ScannedData, Schema, Sets
from pcmcnet.data.scan.cache import Tally
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.layers.factored.factored_rates import MAX_RANK
from pcmcnet.layers.pairwise import Initialisation, Precision, RateForm, require_rate
from pcmcnet.layers.perceptron import Activation
from pcmcnet.models.interface.chain_model import ChainModel, collect_chains
from pcmcnet.models.interface.choice_model import FitRun
from pcmcnet.models.interface.directions import Direction, as_directions, directions_of
from pcmcnet.models.interface.latent_classes import ClassesBy
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.averaged_members import COMPILED_SPEED, NetworkSpec, members_of
from pcmcnet.models.networks.chain_network import AveragedChains, ChainNetwork
from pcmcnet.models.networks.diagram import draw_network
from pcmcnet.models.networks.factored_network import FactoredMixture, FactoredNetwork
from pcmcnet.models.networks.mixture_model import MixtureModel, require_classes_and_members
from pcmcnet.models.networks.network_config import (
    EncoderArguments,
    NetworkConfig,
    Utility,
    as_widths,
    require_monotone_form,
)
from pcmcnet.models.networks.network_slopes import NumericInput, jacobian_by_output, jacobian_by_pairs
from pcmcnet.models.networks.pairwise_network import ChainMixture, PCMCNetwork
from pcmcnet.models.networks.trainer import Trainer
from pcmcnet.storage import write_bytes

log = logging.getLogger("pcmcnet")

# Networks with sign constraints learn more slowly. The trials of weight decays are longer, too, since trials that are
# shorter than half a fit choose too weak a decay. In three-fold cross-validation of the training parts of mode-canada
# (three seeds), swissmetro (two) and electricity (one), the NLL was on average .001 lower than with 1.5 times as many
# epochs in fits and unchanged trials. It was the same as with 1.5 times as many epochs in fits and in trials.
SIGNED_LENGTH = 1.25

# With rank="auto", rates are factored if one pairwise network would train for longer than this nominal time on one
# thread, or if a set has more alternatives than this: its matrix of rates in float64 takes 200 MB.
MAX_PAIRWISE_SECONDS = 600.0
MAX_PAIRWISE_ALTERNATIVES = 5_000
AUTO_RANK = 16
MAX_PAIRS_OF_A_SET = 10**9  # with rank=None: these rates take 8 GB in float64


@dataclass(frozen=True, kw_only=True)
class PCMCNetConfig(NetworkConfig):
    """Options of PCMC-Net: the network, its inputs, then the training loop.

    Parameters
    ----------
    hidden
        Widths of the hidden layers of the rate network.
    activation
        Activation of the hidden layers: "relu", "leaky_relu", "sigmoid", "tanh", "silu" or "gelu".
    dropout
        Dropout probability in the hidden layers and embeddings.
    rate
        Form of the rates as a function of the network's output f: "exp", "softplus" or "relu".
    epsilon
        Constant that is added to all rates.
    utility
        "linear" adds a linear utility of the destination alternative to the log-rates, so that the network learns
        deviations from a multinomial logit and not from the uniform distribution (:mod:`pcmcnet.layers.inner_logit`).
        "none" adds no utility.
    rank
        Number r of factors of the rates, at most 128, or None for a network that scores all pairs. With r factors, the
        rates are sums of r products of a rate of leaving and a weight of entering, and time and memory are linear in
        the number of alternatives (:mod:`pcmcnet.layers.factored`). Rank 1 is a logit. "auto" (default) means None,
        unless scoring all pairs would take too long: then the rank is 16, and the log says so.
    initialisation
        Initialisation of the weights: "safe", which gives all rates a nonzero gradient at the start, or "paper", as
        published.
    precision
        Floating-point type of the products over pairs: "float32" or "bfloat16", which is faster on processors that
        support it and rounds values between layers to about three digits. "auto" means bfloat16 on a GPU if a hidden
        layer has at least 128 units, and float32 otherwise.
    monotone
        Mapping from numeric features to "decreasing" or "increasing", as in {"price": "decreasing"}: the direction in
        which the probability of an alternative changes with the feature's value, whatever the other inputs are
        (:mod:`pcmcnet.models.networks.network_config`). The signs that the table declares are obeyed by default;
        "free" ignores the sign of a feature.
    classes
        Number of latent classes, each with its own chain (:mod:`pcmcnet.models.networks.chain_network`). "auto" uses
        several classes if they significantly improve the prediction of held-out sets.
    by
        Unit that is assigned to a class: each "person" (if the table has a person column), or each choice "set".
    members
        Number of networks that are trained from different seeds and whose probabilities are averaged. The average
        predicts better than a single network. "auto" means 6 networks if the weight decay is learnt. On large tables,
        "auto" means one network and as many others as one CPU thread trains in about five minutes: 6 networks in total
        for up to 500,000 choice sets of four alternatives, and 3 for a million. If the table is on disk or contains
        texts or images, or if there are latent classes, "auto" means 1 network. Some of the networks also use
        piecewise-linear inputs, if this improves the prediction of held-out sets
        (:mod:`pcmcnet.models.networks.averaged_members`).
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "leaky_relu"
    dropout: float = 0.0
    rate: RateForm = "exp"
    epsilon: float = 0.0
    utility: Utility = "linear"
    rank: int | Literal["auto"] | None = "auto"
    initialisation: Initialisation = "safe"
    precision: Precision = "auto"
    monotone: Mapping[str, Direction] = field(default_factory=dict)
    classes: int | Literal["auto"] = 1
    by: ClassesBy = "person"
    members: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "hidden", as_widths(self.hidden))
        require_number("dropout", self.dropout, low=0, high=1, open_high=True)
        require_number("epsilon", self.epsilon, low=0)
        require_word("activation", self.activation, get_args(Activation))
        require_word("utility", self.utility, get_args(Utility))
        require_word("initialisation", self.initialisation, get_args(Initialisation))
        require_word("precision", self.precision, get_args(Precision))
        require_classes_and_members(self.classes, self.by, self.members)
        self._require_rank()
        require_rate(self.rate, self.epsilon)
        object.__setattr__(self, "monotone", as_directions(self.monotone))
        if set(self.monotone.values()) - {"free"}:
            require_monotone_form(self.activation, self.rate, self.utility)

    def _require_rank(self) -> None:
        """Raise ConfigError unless the rank is valid and agrees with the form of the rates."""
        if self.rank is None or self.rank == "auto":
            return
        is_whole = isinstance(self.rank, int) and not isinstance(self.rank, bool)
        if not is_whole or not 1 <= self.rank <= MAX_RANK:
            raise ConfigError(f"rank must be a whole number from 1 to {MAX_RANK}, 'auto' or None, got {self.rank!r}.")
        if not self.can_be_factored:
            raise ConfigError(
                f"rank={self.rank} needs rate='exp', epsilon=0 and initialisation='safe', got rate={self.rate!r}, "
                f"epsilon={self.epsilon} and initialisation={self.initialisation!r}: use rank=None for other rates."
            )

    @property
    def can_be_factored(self) -> bool:
        """Whether the form of the rates allows factors."""
        return self.rate == "exp" and self.epsilon == 0 and self.initialisation == "safe"


@dataclass(frozen=True, kw_only=True)
class PCMCNetArguments(PCMCNetConfig, EncoderArguments):
    """Constructor arguments of PCMC-Net: the options and ``encoders``."""


class PCMCNet(MixtureModel, ChainModel):
    """PCMC-Net: a pairwise choice Markov chain whose rates are computed by a neural network.

    Examples
    --------
    >>> PCMCNet(hidden=(16, 16), epochs=20).config.hidden
    (16, 16)
    """

    name = "pcmcnet"
    config_class = PCMCNetConfig
    obeys_signs = True
    corrects_samples = "all"
    config: PCMCNetConfig
    average_class = AveragedChains

    @takes(PCMCNetArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    @classmethod
    def paper(cls, hidden: Sequence[int] = (16, 16, 16), **options: Any) -> PCMCNet:
        """Return the model with the settings of the paper's experiments.

        Rates are max(0, f) + 0.5, with the published initialisation, Adam at a constant learning rate of 0.001, one
        choice set per step, 100 epochs and no dropout. If most rates start without a gradient, as in about half of
        the fits, the output bias is raised. The airline experiment uses ``hidden=(512, 512), batch_size=16,
        dropout=0.5, epochs=66``.

        Parameters
        ----------
        hidden
            Widths of the hidden layers (default (16, 16, 16)).
        options
            Options that differ from the paper's settings.
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

    # -- fit --------------------------------------------------------------------------------------------------

    def _trainer(self, train: Sets, valid: Sets | None, run: FitRun) -> Trainer:
        trainer = super()._trainer(train, valid, run)
        start = trainer.starting_network
        return replace(trainer, rank=self._rank_for(train) if start is None else start.spec.rank)

    def _rank_for(self, train: Sets) -> int | None:
        """Return the number of factors for a table, or None if the network scores all pairs."""
        config = self.config
        if config.rank is None or not config.can_be_factored:
            _require_few_pairs(train.largest, can_be_factored=config.can_be_factored)
            return None
        if config.rank != "auto":
            return config.rank
        if isinstance(train, ChoiceData) and train.expansion is not None:
            log.info("rank %d: the rates are factored, because the alternatives are a sample of large sets", AUTO_RANK)
            return AUTO_RANK
        widths = (max(config.hidden, default=1), *config.hidden, 1)
        pairs = (train.tally if isinstance(train, ScannedData) else Tally.of(train)).pairs
        seconds = config.passes * pairs * sum(a * b for a, b in pairwise(widths)) / COMPILED_SPEED[0]
        if seconds <= MAX_PAIRWISE_SECONDS and train.largest <= MAX_PAIRWISE_ALTERNATIVES:
            return None
        log.info(
            "rank %d: the rates are factored, because %.3g pairs of alternatives would take too long. Set rank=None "
            "for a network that scores all pairs",
            AUTO_RANK,
            pairs,
        )
        return AUTO_RANK

    def _build(self, encoder: Encoder, spec: NetworkSpec) -> ChainNetwork:
        if not encoder.features:
            raise InputError(
                "PCMCNet needs features or labels of alternatives: declare features, or declare an alternative column "
                "with labels that occur in several sets and keep labels=True."
            )
        if directions_of(self.config.monotone, encoder.schema):
            require_monotone_form(self.config.activation, self.config.rate, self.config.utility)
        arguments = encoder, self.config, self.encoders
        if spec.rank is None:
            is_single = spec.classes == 1
            return PCMCNetwork(*arguments) if is_single else ChainMixture(*arguments, classes=spec.classes)
        if spec.classes == 1:
            return FactoredNetwork(*arguments, rank=spec.rank)
        return FactoredMixture(*arguments, classes=spec.classes, rank=spec.rank)

    def _fit_length(self, schema: Schema) -> float:
        return SIGNED_LENGTH if directions_of(self.config.monotone, schema) else 1.0

    def _more_facts(self) -> dict[str, str]:
        rank, facts = self.spec_.rank, super()._more_facts()
        if rank is not None:
            note = " (chosen for the size of the table)" if self.config.rank == "auto" else ""
            facts["rates"] = f"factored, rank {rank}{note}"
        return facts

    # -- the chain --------------------------------------------------------------------------------------------

    @property
    def _chains(self) -> list[ChainNetwork]:
        """The averaged networks, each with its own chain."""
        return [member for member in members_of(self.network_) if isinstance(member, ChainNetwork)]

    @property
    def network_(self) -> ChainNetwork | AveragedChains:
        """The trained network: one, or the average of several."""
        network = super().network_
        assert isinstance(network, ChainNetwork | AveragedChains)
        return network

    @property
    def n_chains(self) -> int:
        """Number of chains per choice set: one for each latent class."""
        return self.n_classes_

    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        yield from self._predict_batches(data, self.network_.chains)

    def fixed_chains(self, data: ChoiceData) -> tuple[Floats, list[Floats]]:
        """Return chains whose rates do not depend on the rest of the set: one for each averaged network or class."""
        network, members = self.network_, self.spec_.members
        if isinstance(network, ChainNetwork):
            return super().fixed_chains(data)
        shares = np.full((len(data), members), 1 / members)
        return shares, collect_chains(data, self._predict_batches(data, network.member_chains), members)

    def _factors(self, data: ChoiceData, member: int, of_class: int) -> Iterator[tuple[Ints, Tensor]]:
        """Yield positions (B,) of sets, and log u and log v (B, 2, J, r) of one averaged network and one class.

        Both are counted from 0. The rates of the network must have factors.
        """
        network = self._chains[member]
        assert isinstance(network, FactoredNetwork)

        def log_factors(batch: Batch) -> Tensor:
            inputs = batch if isinstance(self.network_, ChainNetwork) else self.network_.chain_inputs(batch)[member][1]
            if not isinstance(network, FactoredMixture):
                return torch.stack(network.log_factors(inputs), 1)
            factors = torch.stack(network.class_factors(inputs)[:2], 1)  # (B K, 2, J, r)
            return factors[of_class :: network.classes]  # the classes of a set are adjacent

        yield from self._predict_batches(data, log_factors)

    def _jacobian(self, batch: Batch, at: NumericInput) -> Tensor:
        network = self.network_
        is_signed = bool(directions_of(self.config.monotone, self.schema))
        # The derivative by pairs needs one chain, and a representation and tastes that are linear in the number. Tastes
        # of monotone features are cut off at a coefficient of 0, so they are not linear.
        is_mixture = isinstance(network, ChainMixture)
        if not isinstance(network, PCMCNetwork) or is_mixture or (at.individual and is_signed):
            return jacobian_by_output(network, batch, at)
        side = network.individual if at.individual else network.alternative
        return jacobian_by_output(network, batch, at) if at.k in side.curved else jacobian_by_pairs(network, batch, at)

    # -- drawing and export -----------------------------------------------------------------------------------

    def diagram(self, path: str | os.PathLike[str] | None = None) -> str:
        """Draw the fitted network as SVG: columns, representation, pairs, rate layers and parameter counts.

        Parameters
        ----------
        path
            File to write, with the extension .svg. If None (default), no file is written.

        Returns
        -------
        str
            The text of the SVG file.

        Raises
        ------
        InputError
            If the path does not end in .svg or cannot be written.
        """
        self.require_fitted()
        if path is not None and not (isinstance(path, str | os.PathLike) and Path(path).suffix.lower() == ".svg"):
            raise InputError(f"expected a file name that ends in .svg, got {path!r}.")
        text = draw_network(self.encoder_, self._chains, self.config)
        if path is not None:
            write_bytes(Path(path), text.encode())
        return text

    def export(self, path: str | Path) -> Path:
        """Export the fitted network to ONNX or ``torch.export``, with a JSON file that describes its inputs.

        See :mod:`pcmcnet.models.networks.export` for the inputs and the output.

        Parameters
        ----------
        path
            File to write: .onnx for any ONNX runtime, or .pt2 for ``torch.export.load``. The description of the inputs
            has the same name with the extension .encoder.json.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ConfigError
            If the model has content columns such as texts or images, or a package for ONNX is not installed.
        InputError
            If the extension is not .onnx or .pt2.
        """
        from pcmcnet.models.networks.export import export_network

        return export_network(self.network_, self.encoder_, path)


def _require_few_pairs(largest: int, *, can_be_factored: bool) -> None:
    """Raise ConfigError if the rates of all pairs of the largest set take too much memory."""
    if largest**2 > MAX_PAIRS_OF_A_SET:
        form = "" if can_be_factored else ", with rate='exp', epsilon=0 and initialisation='safe'"
        raise ConfigError(
            f"a choice set with {largest:,} alternatives has {largest**2:.2g} pairs, whose rates take "
            f"{8e-9 * largest**2:.0f} GB: use rank={AUTO_RANK}{form}, or sample the alternatives with "
            f"data.sample_alternatives(100)."
        )
