"""ResLogit (Wong & Farooq, 2021): residual layers across the utilities of labelled alternatives.

    V   = linear utilities of the alternatives of a set, as in a logit
    h_0 = V,    h_m = h_{m-1} - [log(1 + exp(T_m h_{m-1})) - log 2],    m = 1..M
    p   = softmax(h_M) over the set

T_m has an entry for each ordered pair of labels: how the utility of one alternative lowers that of another. Only those
in the set count. With T = 0 the residuals are 0 and the model is the logit V; log 2, which the softmax ignores, is
taken off for that. The entries say whom an alternative hurts, and break the independence of irrelevant alternatives. A
label that is not known has entries of its own, which it shares with all of its kind. Shapes: V (B, J), T (M, L, L) ->
h (B, J).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.data import Batch, Encoder
from pcmcnet.errors import InputError
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.network_config import NetworkConfig, Utility
from pcmcnet.models.networks.set_network import SetModel, SetNetwork, log_softmax_of_sets

MOST_LABELS = 200  # 40,000 entries in each layer


@dataclass(frozen=True, kw_only=True)
class ResLogitConfig(NetworkConfig):
    """Options of ResLogit, then those of the training loop.

    Parameters
    ----------
    layers
        Residual layers, each with an entry for every ordered pair of labels.
    """

    dropout: ClassVar[float] = 0.0
    utility: ClassVar[Utility] = "linear"
    layers: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("layers", self.layers, whole=True, low=1, high=100)


@dataclass(frozen=True, kw_only=True)
class ResLogitArguments(ResLogitConfig):
    """What the constructor takes: the options, and what no option can hold."""

    encoders: Encoders | None = None


class ResidualUtilities(SetNetwork):
    """Batch -> log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: ResLogitConfig, own: Encoders | None = None) -> None:
        super().__init__(encoder, config, own)
        self.label, labels = label_column(encoder)
        self.crossing = nn.Parameter(torch.zeros(config.layers, labels + 1, labels + 1))  # the first: never seen

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        assert self.utility is not None
        h = self.utility(batch, *self.represent(batch)).masked_fill(~batch.mask, 0.0)
        label = batch.categorical[..., self.label]
        crossing = self.crossing[:, label.unsqueeze(2), label.unsqueeze(1)]  # (M, B, J, J)
        for layer in crossing:
            residual = F.softplus((layer @ h.unsqueeze(-1)).squeeze(-1)) - math.log(2)
            h = (h - residual).masked_fill(~batch.mask, 0.0)
        return log_softmax_of_sets(h, batch.mask)


def label_column(encoder: Encoder) -> tuple[int, int]:
    """Return which categorical column holds the labels, and how many are known; refuses a table without labels."""
    names = [code.name for code in encoder.features.categorical]
    if encoder.schema.alternative not in names:
        raise InputError(
            "ResLogit has a matrix across labelled alternatives: declare alternative, the column of labels, and leave "
            "labels=True. For alternatives without labels there is RUMnet, or PCMCNet."
        )
    at = names.index(encoder.schema.alternative)
    labels = encoder.features.cardinalities[at]
    if not 2 <= labels <= MOST_LABELS:
        raise InputError(
            f"ResLogit has a matrix across labelled alternatives: expected 2 to {MOST_LABELS} labels that return in "
            f"several sets, got {labels}. For alternatives known by their features there is RUMnet, or PCMCNet."
        )
    return at, labels


class ResLogit(SetModel):
    """A logit with residual layers across the utilities of labelled alternatives.

    Options are those of :class:`ResLogitConfig`; an unknown one is refused. Labels are needed.

    Examples
    --------
    >>> ResLogit(layers=8).config.layers
    8
    """

    name = "reslogit"
    config_class = ResLogitConfig
    config: ResLogitConfig
    network_class = ResidualUtilities

    @takes(ResLogitArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def crossing(self) -> tuple[tuple[str, ...], Floats]:
        """Return the labels (L,) and the sum of all layers (L, L): how a column's utility lowers that of a row."""
        assert isinstance(self.network_, ResidualUtilities)
        labels = self.encoder_.features.categorical[self.network_.label].categories
        found: Floats = self.network_.crossing.detach().sum(0)[1:, 1:].double().cpu().numpy()
        return labels, found
