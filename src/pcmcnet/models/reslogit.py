"""ResLogit (Wong & Farooq, 2021): residual layers across the utilities of labelled alternatives.

    V   = linear utilities of the alternatives of a set, as in a logit
    h_0 = V,    h_m = h_{m-1} - [log(1 + exp(T_m h_{m-1})) - log 2],    m = 1..M
    p   = softmax(h_M) over the set

T_m has an entry for each ordered pair of labels: how much the utility of one alternative lowers the utility of another.
Only the alternatives in the set have an effect. If T = 0, the residuals are 0 and the model is a logit with the
utilities V. The term log 2 makes these residuals exactly 0 and does not affect the softmax. The entries of T show which
alternatives compete, and relax the independence of irrelevant alternatives (IIA). All unseen labels share one row and
column of T. Shapes: V (B, J), T (M, L, L) -> h (B, J).
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
from pcmcnet.models.networks.network_config import MAX_LAYERS, EncoderArguments, NetworkConfig, Utility
from pcmcnet.models.networks.set_network import SetModel, SetNetwork, log_softmax_of_sets

MAX_LABELS = 200  # 40,000 entries in each layer


@dataclass(frozen=True, kw_only=True)
class ResLogitConfig(NetworkConfig):
    """Options of ResLogit: the network, then the training loop.

    Parameters
    ----------
    layers
        Number of residual layers, each with an entry for every ordered pair of labels.
    """

    dropout: ClassVar[float] = 0.0
    utility: ClassVar[Utility] = "linear"
    layers: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("layers", self.layers, whole=True, low=1, high=MAX_LAYERS)


@dataclass(frozen=True, kw_only=True)
class ResLogitArguments(ResLogitConfig, EncoderArguments):
    """Constructor arguments of ResLogit: the options and ``encoders``."""


class ResidualUtilities(SetNetwork):
    """Network that maps a batch to log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: ResLogitConfig, encoders: Encoders | None = None) -> None:
        super().__init__(encoder, config, encoders)
        self.label, labels = label_column(encoder)
        self.crossing = nn.Parameter(torch.zeros(config.layers, labels + 1, labels + 1))  # index 0: unseen labels

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        assert self.utility is not None
        h = self.utility(batch, *self.represent(batch)).masked_fill(~batch.mask, 0.0)
        label = batch.categorical[..., self.label]
        crossing = self.crossing[:, label.unsqueeze(2), label.unsqueeze(1)]  # (M, B, J, J)
        for layer in crossing:
            residual = F.softplus((layer @ h.unsqueeze(-1)).squeeze(-1)) - math.log(2)
            h = (h - residual).masked_fill(~batch.mask, 0.0)
        return log_softmax_of_sets(h, batch.mask)


def label_column(encoder: Encoder) -> tuple[int, int]:
    """Return the position of the label among the categorical columns, and the number of labels."""
    names = [code.name for code in encoder.features.categorical]
    if encoder.schema.alternative not in names:
        raise InputError(
            "ResLogit needs labelled alternatives: declare an alternative column with labels and keep labels=True. "
            "Use RUMnet or PCMCNet for alternatives without labels."
        )
    position = names.index(encoder.schema.alternative)
    labels = encoder.features.cardinalities[position]
    if not 2 <= labels <= MAX_LABELS:
        raise InputError(
            f"ResLogit needs labelled alternatives: expected 2 to {MAX_LABELS} labels that occur in several sets, got "
            f"{labels}. Use RUMnet or PCMCNet for alternatives that are described by features."
        )
    return position, labels


class ResLogit(SetModel):
    """ResLogit: a logit with residual layers across the utilities of labelled alternatives.

    The table must have labels.

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
        """Return the cross-effects between labels.

        Returns
        -------
        Labels (L,), and cross-effects (L, L) summed over layers: how much the column's utility lowers the row's
        utility.
        """
        assert isinstance(self.network_, ResidualUtilities)
        labels = self.encoder_.features.categorical[self.network_.label].categories
        effects: Floats = self.network_.crossing.detach().sum(0)[1:, 1:].double().cpu().numpy()
        return labels, effects
