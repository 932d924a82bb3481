"""PCMC-Net (Lhéritier, 2020): choice probabilities as the stationary law of a chain whose rates a network gives.

    representation of I and of each S_i  ->  rate of every ordered pair  ->  stationary distribution

The rates depend on features, and on labels where there are any, so alternatives never seen before are no matter, and
copies of an alternative, label and all, share its probability (uniform expansion).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.arrays import Ints
from pcmcnet.data import Batch, ChoiceData, EncodedSets, Encoder
from pcmcnet.data.batches import plan_batches
from pcmcnet.errors import InputError
from pcmcnet.layers import PairwiseRates, log_probabilities, solve_chain
from pcmcnet.layers.inner_logit import LinearUtility
from pcmcnet.layers.monotone_weights import SignedLinear
from pcmcnet.layers.representation import representation_of
from pcmcnet.models.interface.chain_model import ChainModel
from pcmcnet.models.interface.options import takes
from pcmcnet.models.interface.own_encoders import Encoders
from pcmcnet.models.networks import item_start, logit_start
from pcmcnet.models.networks.diagram import draw_network
from pcmcnet.models.networks.monotone_features import signs_of_numbers
from pcmcnet.models.networks.network_slopes import Input, jacobian_by_output, jacobian_by_pairs
from pcmcnet.models.networks.neural_model import NeuralModel, log, require_differences
from pcmcnet.models.networks.pcmcnet_config import PCMCNetConfig
from pcmcnet.models.networks.small_network import small_network
from pcmcnet.runtime.device import device_of
from pcmcnet.runtime.device_batches import batches_on, place
from pcmcnet.runtime.prediction import predict
from pcmcnet.storage.files import write_bytes
from pcmcnet.training import TrainConfig
from pcmcnet.training.compiled_steps import SmallNetwork

DEEPEST = 20.0  # by which a utility can lower a rate that is not an exponential: the chain has to stay irreducible


@dataclass(frozen=True, kw_only=True, slots=True)
class PCMCNetArguments(PCMCNetConfig):
    """What the constructor takes: the options, and what no option can hold."""

    encoders: Encoders | None = None


class PCMCNetwork(nn.Module):
    """Batch -> log-probabilities (B, J)."""

    takes_generators = True
    capturable: bool  # whether nothing in a step waits for the device
    items: Tensor | None  # (n, n) log-rates of pairs of labels to add to, where nothing but labels is known

    def __init__(self, encoder: Encoder, config: PCMCNetConfig, own: Encoders | None = None) -> None:
        super().__init__()
        who, what = encoder.individual, encoder.features
        self.individual = representation_of(who, dropout=config.dropout, own=own)
        self.alternative = representation_of(what, dropout=config.dropout, own=own)
        self.capturable = not (who.contents or what.contents)  # how many contents are distinct is not known beforehand
        signs = signs_of_numbers(config.monotone, encoder)
        others = self.alternative.width - what.n_numeric  # numbers come last in a representation
        self.rates = PairwiseRates(
            self.individual.width,
            self.alternative.width,
            config.hidden,
            activation=config.activation,
            dropout=config.dropout,
            rate=config.rate,
            epsilon=config.epsilon,
            initialisation=config.initialisation,
            precision=config.precision,
            signs=None if signs is None else F.pad(signs, (others, 0)),
        )
        widths = (self.individual.width, self.alternative.width)
        theirs = [name for name, _ in self.alternative.own.values()]
        self.utility = LinearUtility(what, *widths, theirs, signs) if config.utility == "linear" else None
        labels = item_start.labels_alone(encoder) if self.utility is not None and config.rate == "exp" else None
        self.register_buffer("items", None if labels is None else torch.zeros(labels, labels))

    @property
    def with_prior(self) -> list[nn.Parameter]:
        """Weights that have a standard normal prior instead of decay."""
        return [] if self.utility is None else self.utility.plain_weights

    @property
    def small_network(self) -> SmallNetwork | None:
        """The parts that compiled steps train, where they know such a network."""
        return small_network(self)

    @property
    def in_pieces(self) -> bool:
        """Whether a large batch takes little more memory than a small one."""
        return self.rates.in_pieces

    @property
    def signed(self) -> list[SignedLinear | LinearUtility]:
        """Parts whose weights are to keep to signs after each step."""
        return [part for part in self.modules() if isinstance(part, SignedLinear | LinearUtility)]

    def represent(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Represent individuals (B, D0) and alternatives (B, J, D)."""
        individual = self.individual(batch.individual_numeric, batch.individual_categorical, batch.individual_contents)
        return individual, self.alternative(batch.numeric, batch.categorical, batch.contents)

    def chain(self, batch: Batch) -> Tensor:
        """Return the rates (B, J, J)."""
        known = self.represent(batch)
        if self.utility is None:
            rates: Tensor = self.rates(*known, batch.mask)
            return rates
        utility = self.utility(batch, *known)
        scores = self.rates.scores(*known, batch.mask)
        if self.items is not None:
            label = batch.categorical[..., 0]
            scores = scores + self.items[label.unsqueeze(2), label.unsqueeze(1)]
        return self.rates_of_scores(scores, utility, batch.mask)

    def rates_of_scores(self, scores: Tensor, utility: Tensor, mask: Tensor) -> Tensor:
        """Turn scores (B, J, J) and the utilities (B, J) of the alternatives entered into rates."""
        if self.rates.rate == "exp":
            return self.rates.of_scores(scores + utility.unsqueeze(1), mask)
        top = utility.detach().masked_fill(~mask, -math.inf).amax(1, keepdim=True)
        factor = (utility - top).clamp(-DEEPEST, 0.0).exp()
        return self.rates.of_scores(scores, mask) * factor.unsqueeze(1)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        return log_probabilities(solve_chain(self.chain(batch), batch.mask), batch.mask)


class RatesAlone(nn.Module):
    """Batch -> rates (B, J, J) of a network, without the law."""

    def __init__(self, network: PCMCNetwork) -> None:
        super().__init__()
        self.network = network

    @property
    def in_pieces(self) -> bool:
        """As the network's."""
        return self.network.in_pieces

    def forward(self, batch: Batch) -> Tensor:
        """Return the rates."""
        return self.network.chain(batch)


class PCMCNet(NeuralModel, ChainModel):
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
        encoded = place(self.encoder_.encode(data), device_of(self.network_))
        for sets, _, rates in predict(RatesAlone(self.network_), encoded, pair_budget=self.config.pair_budget):
            yield sets, rates

    def _build(self, encoder: Encoder) -> PCMCNetwork:
        if not encoder.features:
            raise InputError(
                "PCMC-Net tells alternatives apart by their features and labels: declare a feature, or "
                "alternative, with labels that return in several sets, and leave labels=True."
            )
        return PCMCNetwork(encoder, self.config, self.encoders)

    def _jacobian(self, batch: Batch, at: Input) -> Tensor:
        assert isinstance(self.network_, PCMCNetwork)
        side = self.network_.individual if at.individual else self.network_.alternative
        cut = at.individual and bool(self.config.monotone)  # tastes that end at a coefficient of 0
        if at.k in side.curved or cut:  # the pairs' own way takes representation and taste to be linear in the number
            return jacobian_by_output(self.network_, batch, at)
        return jacobian_by_pairs(self.network_, batch, at)

    @torch.no_grad()
    def _prepare(self, network: nn.Module, data: EncodedSets) -> None:
        assert isinstance(network, PCMCNetwork)
        require_differences(data)
        plan = plan_batches(data.sizes, batch_size=1024, pair_budget=self.config.pair_budget)
        largest = plan[-1:]  # a set of one has no pair
        (batch,) = batches_on(device_of(network), data, largest)
        network.eval()  # dropout would make the check a matter of chance
        if network.rates.revive(*network.represent(batch), batch.mask):
            log.info("most rates had no gradient at the start; the output bias was raised")
        if self.config.rate == "exp" and self.config.epsilon == 0:
            # A shift of all scores is one of the time scale, which the law ignores: the gradient is 0, and Adam would
            # follow its rounding errors.
            network.rates.output.bias.requires_grad_(False)

    def _begin(self, network: nn.Module, config: TrainConfig, sample: Callable[[int], EncodedSets]) -> None:
        assert isinstance(network, PCMCNetwork)
        if network.items is not None:
            item_start.start_as_items(network.items, sample(item_start.SETS), config.decay)
        elif network.utility is not None and config.decay >= logit_start.FROM_DECAY:
            logit_start.start_as_logit(network.utility, sample(logit_start.SETS))
