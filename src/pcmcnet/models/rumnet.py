"""RUMnet (Aouad & Désir, 2022): a random utility model in which networks compute the utility and its random part.

    e_k(S_i), k = 1..K      samples of the unobserved features of an alternative, as functions of the observed ones
    n_l(I),   l = 1..K      samples of the unobserved features of the individual
    u_i^kl = linear utility of i for I  +  f(S_i, e_k(S_i), I, n_l(I))
    p_i    = mean over k and l of  exp(u_i^kl) / sum_j exp(u_j^kl)

For each of the K^2 pairs of samples, the utility of i depends only on i and I, so the choice follows a logit. The
probabilities p are a mixture of these logits. The model is therefore a random utility model for any weights: adding an
alternative never raises the probability of another one (regularity), and every random utility model can be
approximated. The first layer of f is linear in its four inputs, so each input is multiplied by its weights only once,
not once per pair. Shapes: I (B, D0), S (B, J, D) -> u (B, J, K, K).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.data import Batch, ChoiceData, Encoder
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.layers.inner_logit import MAX_UTILITY
from pcmcnet.layers.perceptron import ACTIVATIONS, Dropout, Perceptron
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.network_config import EncoderArguments
from pcmcnet.models.networks.set_network import SetModel, SetNetwork, SetNetworkConfig


@dataclass(frozen=True, kw_only=True)
class RUMnetConfig(SetNetworkConfig):
    """Options of RUMnet: the network, then the training loop.

    Parameters
    ----------
    samples
        Number K of samples of the unobserved features, both of an alternative and of an individual. The model mixes K^2
        logits.
    noise
        Number of unobserved features in a sample.
    """

    hidden: tuple[int, ...] = (32, 32)
    samples: int = 4
    noise: int = 4
    pair_budget: int = 100_000  # each alternative has a vector for each pair of samples

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("samples", self.samples, whole=True, low=1, high=32)
        require_number("noise", self.noise, whole=True, low=1)
        require_number("the number of hidden layers", len(self.hidden), low=1)


@dataclass(frozen=True, kw_only=True)
class RUMnetArguments(RUMnetConfig, EncoderArguments):
    """Constructor arguments of RUMnet: the options and ``encoders``."""


class RandomUtilities(SetNetwork):
    """Network that maps a batch to log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: RUMnetConfig, encoders: Encoders | None = None) -> None:
        super().__init__(encoder, config, encoders)
        d0, d, width = self.individual.width, self.alternative.width, config.hidden[0]
        drawn = config.samples * config.noise
        self.samples, self.noise = config.samples, config.noise
        self.unseen = self._samples(d, drawn, config)
        self.person = self._samples(d0, drawn, config) if d0 else nn.Parameter(torch.randn(drawn))
        self.read_what = nn.Linear(d, width)
        self.read_who = nn.Linear(d0, width, bias=False) if d0 else None
        self.read_unseen = nn.Linear(config.noise, width, bias=False)
        self.read_person = nn.Linear(config.noise, width, bias=False)
        self.activation, self.dropout = config.activation, Dropout(config.dropout)
        self.rest = Perceptron(
            width, (*config.hidden[1:], 1), activation=config.activation, dropout=config.dropout, start="zero"
        )

    @staticmethod
    def _samples(width: int, out: int, config: RUMnetConfig) -> Perceptron:
        return Perceptron(width, (config.hidden[0], out), activation=config.activation, start="spread")

    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        """Return the scores (B, J, K K) that are added to the utilities for each pair of samples."""
        (B, J, _), K = alternatives.shape, self.samples
        unseen = self.read_unseen(self.unseen(alternatives).view(B, J, K, self.noise))  # (B, J, K, H)
        drawn = self.person(individual) if isinstance(self.person, Perceptron) else self.person.expand(B, -1)
        person = self.read_person(drawn.reshape(B, K, self.noise))  # (B, K, H)
        observed = self.read_what(alternatives)  # (B, J, H)
        if self.read_who is not None:
            observed = observed + self.read_who(individual).unsqueeze(1)
        first = observed[:, :, None, None] + unseen.unsqueeze(3) + person[:, None, None]  # (B, J, K, K, H)
        out: Tensor = self.rest(self.dropout(ACTIVATIONS[self.activation].apply(first))).flatten(2)
        return out

    def logits(self, batch: Batch) -> Tensor:
        """Return the log-probabilities of each logit (B, J, K K), with -inf for padding."""
        individual, alternatives = self.represent(batch)
        u = self.scores(individual, alternatives, batch.mask)
        if self.utility is not None:
            u = u + self.utility(batch, individual, alternatives).unsqueeze(-1)
        u = u.nan_to_num(0.0, MAX_UTILITY, -MAX_UTILITY)  # products of inputs near the largest float overflow
        return u.masked_fill(~batch.mask.unsqueeze(-1), -math.inf).log_softmax(1)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        logits = self.logits(batch)
        real = batch.mask.unsqueeze(-1)  # a log-sum of -inf has a NaN gradient
        mixed = logits.masked_fill(~real, 0.0).logsumexp(-1) - math.log(logits.shape[-1])
        return mixed.masked_fill(~batch.mask, -math.inf)


class RUMnet(SetModel):
    """RUMnet: a random utility model that mixes logits, with networks for utilities and unobserved features.

    Examples
    --------
    >>> RUMnet(samples=8, epochs=10).config.samples
    8
    """

    name = "rumnet"
    config_class = RUMnetConfig
    config: RUMnetConfig
    network_class = RandomUtilities

    @takes(RUMnetArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def as_logits(self, data: ChoiceData) -> tuple[Floats, Floats]:
        """Return the K^2 logits, all with the same share: see :meth:`ChoiceModel.as_logits`."""
        assert isinstance(self.network_, RandomUtilities)
        count = self.config.samples**2
        out: Floats = np.empty((len(data.rows), count))
        for sets, log_p in self._predict_batches(data, self.network_.logits):
            real = np.arange(log_p.shape[1]) < data.sizes[sets][:, None]  # alternatives, without padding
            out[consecutive_indices(data.offsets[sets], data.sizes[sets])] = log_p.cpu().numpy()[real]
        return np.full((len(data), count), 1 / count), out
