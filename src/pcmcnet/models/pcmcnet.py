"""PCMC-Net (Lhéritier, 2020): probabilities are the stationary distribution of a chain with rates from a network.

    representation of I and of each S_i  ->  rate of every ordered pair  ->  stationary distribution

The rates depend on features, and on labels if the table has them, so alternatives never seen before are predicted, too.
If all alternatives are copied, the copies of each share its probability (uniform expansion).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import Batch, ChoiceData, Encoder
from pcmcnet.errors import InputError
from pcmcnet.layers.pairwise import Initialisation, Precision, RateForm, require_rate
from pcmcnet.layers.perceptron import Activation
from pcmcnet.models.interface.chain_model import ChainModel, chains_of
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.latent_classes import ClassesBy
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.averaging import members_of
from pcmcnet.models.networks.chain_network import AveragedChains, ChainMixture, PCMCNetwork
from pcmcnet.models.networks.diagram import draw_network
from pcmcnet.models.networks.mixture_model import MixtureModel, require_classes_and_members
from pcmcnet.models.networks.network_config import (
    Direction,
    NetworkConfig,
    Utility,
    as_directions,
    as_widths,
    require_monotone_form,
)
from pcmcnet.models.networks.network_slopes import NumericInput, jacobian_by_output, jacobian_by_pairs
from pcmcnet.storage import write_bytes


@dataclass(frozen=True, kw_only=True)
class PCMCNetConfig(NetworkConfig):
    """Options of PCMC-Net: the network's, then those of the training loop.

    Parameters
    ----------
    hidden
        Widths of the hidden layers of the transition rate network.
    activation
        Of the hidden layers: relu, leaky_relu, sigmoid, tanh, silu or gelu.
    dropout
        Of the hidden layers and of the embeddings.
    rate, epsilon
        Form of the rates (exp, softplus or relu) and their additive constant.
    utility
        "linear" adds a linear utility of the alternative entered to the log-rates, so that the network deviates from a
        multinomial logit and not from the uniform distribution (:mod:`pcmcnet.layers.inner_logit`); "none" does not.
    initialisation
        "safe", which cannot start dead, or "paper".
    precision
        Number type of the products over pairs: "float32", or "bfloat16", which is faster on processors made for it and
        rounds what is between the layers to about three digits; "auto" is bfloat16 on a GPU for hidden layers of at
        least 128 units, and float32 elsewhere.
    monotone
        Features that are numbers, each with "decreasing" or "increasing": how the probability of an alternative moves
        with its own value, whatever the other inputs are (:mod:`pcmcnet.models.networks.network_config`).
    classes
        Number of latent classes of people, each with its own chain (:mod:`pcmcnet.models.networks.chain_network`);
        "auto" takes more than one where held-out sets are then predicted better, beyond noise.
    by
        Who is of a class: the "person", where the table declares persons, or the choice "set".
    members
        Networks trained from different starts, whose probabilities are averaged: together they predict better than
        one of them alone. "auto" is 6 for small networks (those that compiled steps can train) and up to 12,000 sets in
        memory, where the weight decay is learnt too, and 1 elsewhere. Some of them see numbers by bins as well, if
        held-out sets are then predicted better (:mod:`pcmcnet.models.networks.averaging`); none with ``monotone``.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "leaky_relu"
    dropout: float = 0.0
    rate: RateForm = "exp"
    epsilon: float = 0.0
    utility: Utility = "linear"
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
        require_rate(self.rate, self.epsilon)
        object.__setattr__(self, "monotone", as_directions(self.monotone))
        if self.monotone:
            require_monotone_form(self.activation, self.rate, self.utility)


@dataclass(frozen=True, kw_only=True)
class PCMCNetArguments(PCMCNetConfig):
    """What the constructor takes: the options, and what no option can hold."""

    encoders: Encoders | None = None


class PCMCNet(MixtureModel, ChainModel):
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
    average_class = AveragedChains

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

    # -- fit --------------------------------------------------------------------------------------------------

    def _build(self, encoder: Encoder, classes: int) -> PCMCNetwork:
        if not encoder.features:
            raise InputError(
                "PCMC-Net tells alternatives apart by their features and labels: declare a feature, or "
                "alternative, with labels that return in several sets, and leave labels=True."
            )
        if classes == 1:
            return PCMCNetwork(encoder, self.config, self.encoders)
        return ChainMixture(encoder, self.config, self.encoders, classes=classes)

    @property
    def _may_have_bins(self) -> bool:
        return not self.config.monotone

    # -- the chain --------------------------------------------------------------------------------------------

    @property
    def _chains(self) -> list[PCMCNetwork]:
        """The averaged networks, each with its own chain."""
        return [member for member in members_of(self.network_) if isinstance(member, PCMCNetwork)]

    @property
    def network_(self) -> PCMCNetwork | AveragedChains:
        """The trained network: one, or the average of several."""
        network = super().network_
        assert isinstance(network, PCMCNetwork | AveragedChains)
        return network

    @property
    def n_chains(self) -> int:
        """Number of chains of a choice set: one for each class."""
        return self.n_classes_

    def _rates(self, data: ChoiceData) -> Iterator[tuple[Ints, Tensor]]:
        yield from self._predict_batches(data, self.network_.chains)

    def fixed_chains(self, data: ChoiceData) -> tuple[Floats, list[Floats]]:
        """Return chains whose rates do not depend on the rest of the set; each averaged network has its own."""
        network, members = self.network_, self.spec_.members
        if isinstance(network, PCMCNetwork):
            return super().fixed_chains(data)
        shares = np.full((len(data), members), 1 / members)
        return shares, chains_of(data, self._predict_batches(data, network.member_chains), members)

    def _jacobian(self, batch: Batch, at: NumericInput) -> Tensor:
        network = self.network_
        # The derivative by pairs needs one chain, and representation and taste that are linear in the number. Tastes
        # of monotone features are not: they end at a coefficient of 0.
        if isinstance(network, AveragedChains | ChainMixture) or (at.individual and self.config.monotone):
            return jacobian_by_output(network, batch, at)
        side = network.individual if at.individual else network.alternative
        return jacobian_by_output(network, batch, at) if at.k in side.curved else jacobian_by_pairs(network, batch, at)

    # -- drawing and export -----------------------------------------------------------------------------------

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
        self.require_fitted()
        if path is not None and not (isinstance(path, str | os.PathLike) and Path(path).suffix.lower() == ".svg"):
            raise InputError(f"expected a file name that ends in .svg, got {path!r}.")
        text = draw_network(self.encoder_, self._chains, self.config)
        if path is not None:
            write_bytes(Path(path), text.encode())
        return text

    def export(self, path: str | Path) -> Path:
        """Write the fitted network as a graph for other programs: see :mod:`pcmcnet.models.networks.export`.

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
        from pcmcnet.models.networks.export import export_network

        return export_network(self.network_, self.encoder_, path)
