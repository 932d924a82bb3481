"""Linear context logits (Tomlinson & Benson, 2021): coefficients that depend on the mean features of the set.

    u_i = (c + V I + A m) . x_i        m = mean over j in S of x_j
    p   = softmax(u)

x_i are the features of i: standardised numeric features, and a 0/1 indicator for each category. If the mean of feature
q in the set rises by 1, the coefficient of feature p rises by A_pq. With A = 0, the model is a multinomial logit. The
utility u is linear in the weights (c, V, A), so the log-likelihood is concave, unless a column is embedded or has a
trained encoder. Shapes: I (B, D0), x (B, J, D), m (B, D), A (D, D) -> u (B, J). This module also contains the
decomposed form, DLCL.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.data import Batch, Encoder
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.layers.representation import Representation, build_representation, encoder_width
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.network_config import EncoderArguments, NetworkConfig, Utility
from pcmcnet.models.networks.set_network import SetModel, SetNetwork, log_softmax_of_sets, set_means
from pcmcnet.reports.formats import Summary

# -- Representation without weights: an indicator for each category, and the numbers -----------------------------------
# A utility that is linear in its coefficients is then linear in all weights, and each entry has the name of a column. A
# column with more than `MAX_INDICATORS` categories has an embedding, and contents such as texts have an encoder. Both
# have weights, and their entries are only numbered.

MAX_INDICATORS = 50  # categories of a column
MAX_SHOWN_EFFECTS = 20  # in a summary


class Indicators(nn.Module):
    """Module that maps a category code to a one-hot vector, or to zeros for an unseen category."""

    table: Tensor

    def __init__(self, categories: int) -> None:
        super().__init__()
        table = torch.cat([torch.zeros(1, categories), torch.eye(categories)])
        self.register_buffer("table", table, persistent=False)

    def forward(self, index: Tensor) -> Tensor:
        """Map category codes (...) to vectors (..., categories)."""
        return F.embedding(index, self.table)


def plain_columns(side: SideEncoder, encoders: Encoders | None = None) -> Representation:
    """Return the representation of the alternatives' or individual's columns, with categories as indicators."""
    representation = build_representation(side, custom=encoders)
    for k, (categories, width) in enumerate(side.embeddings):
        if categories <= MAX_INDICATORS:
            representation.embeddings[k] = Indicators(categories)
            representation.width += categories - width
    return representation


def entry_names(side: SideEncoder, representation: Representation) -> list[str]:
    """Return the names of a representation's entries: ``price``, ``mode=car``, or ``title[3]`` for a numbered entry."""
    names: list[str] = []
    for code, (categories, width) in zip(side.categorical, side.embeddings, strict=True):
        if categories <= MAX_INDICATORS:
            names += [f"{code.name}={category}" for category in code.categories]
        else:
            names += _numbered(code.name, width)
    numbers = [code.name for code in side.numeric]
    numbers += [f"{code.name} missing" for code in side.numeric if code.indicator]
    curved = [name for k, width in representation.curved.items() for name in _numbered(side.numeric[k].name, width)]
    for content, encoder in zip(side.contents, representation.encoders, strict=True):
        names += _numbered(content.name, encoder_width(encoder, content))
    return [*names, *curved, *numbers]


def _numbered(name: str, width: int) -> list[str]:
    return [f"{name}[{k + 1}]" for k in range(width)]


class ContextEffect(NamedTuple):
    """Change in a coefficient when the mean of a feature in the set rises by one unit."""

    coefficient: str
    mean_of: str
    effect: float


@dataclass(frozen=True, kw_only=True)
class LCLConfig(NetworkConfig):
    """Options of the linear context logits: the inputs, then the training loop."""

    dropout: ClassVar[float] = 0.0
    utility: ClassVar[Utility] = "linear"


@dataclass(frozen=True, kw_only=True)
class LCLArguments(LCLConfig, EncoderArguments):
    """Constructor arguments of the linear context logits: the options and ``encoders``."""


class ContextLogit(SetNetwork):
    """Base class of the LCL and DLCL networks: a linear utility with the coefficients c + V I."""

    def represent_side(self, side: SideEncoder, config: Any, encoders: Encoders | None) -> Representation:
        """Return a representation without trainable weights."""
        return plain_columns(side, encoders)


class LCLNetwork(ContextLogit):
    """Network that maps a batch to log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: LCLConfig, encoders: Encoders | None = None) -> None:
        super().__init__(encoder, config, encoders)
        self.context = nn.Parameter(torch.zeros(self.alternative.width, self.alternative.width))  # A

    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        """Return scores (B, J), given individuals (B, D0), alternatives (B, J, D) and a mask (B, J)."""
        coefficients = set_means(alternatives, mask) @ self.context.mT  # (B, D)
        return (alternatives @ coefficients.unsqueeze(-1)).squeeze(-1)


class LCL(SetModel):
    """Linear context logit: a logit whose coefficients depend on the mean features of the choice set.

    Examples
    --------
    >>> LCL(epochs=10).config.epochs
    10
    """

    name = "lcl"
    config_class = LCLConfig
    config: LCLConfig
    network_class = LCLNetwork

    @takes(LCLArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def context_effects(self) -> list[ContextEffect]:
        """Return the entries of A with their names, the largest in absolute value first.

        The units are the units of the network's inputs: standard deviations for numeric features, and 0 or 1 for
        categories.
        """
        assert isinstance(self.network_, LCLNetwork)
        names = entry_names(self.encoder_.features, self.network_.alternative)
        rows = zip(names, self.network_.context.detach().cpu().tolist(), strict=True)
        effects = [ContextEffect(of, by, value) for of, row in rows for by, value in zip(names, row, strict=True)]
        return sorted(effects, key=lambda effect: -abs(effect.effect))

    def summary(self) -> Summary:
        """Return a summary with the largest context effects and details of the training."""
        plain, effects = super().summary(), self.context_effects()
        shown, n = effects[:MAX_SHOWN_EFFECTS], len(effects)
        count = f"all {n}" if n == len(shown) else f"the {len(shown)} largest of {n:,}"
        facts = {**plain.facts, "effects": f"{count}; numeric features in standard deviations, categories as 0 or 1"}
        rows = tuple((e.coefficient, e.mean_of, f"{e.effect:+.4f}") for e in shown)
        return Summary(
            plain.title, facts, ("coefficient of", "per unit of the set mean of", "change"), rows, self.caveats
        )


# -- DLCL --------------------------------------------------------------------------------------------------------------
# Decomposed linear context logit (Tomlinson & Benson, 2021): a mixture with one component per feature.
#
#     u_ki = (c + V I + b_k + a_k m_k) . x_i      m_k = mean over j in S of the feature x_jk
#     p_i  = sum over k of w_k softmax(u_k)_i      w = softmax(d + W I)
#
# Each of the D components belongs to one feature k: its mean over the set changes the coefficients by a_k per unit. b_k
# and a_k are the paper's intercepts B_k and slopes A_k. Added to the paper are the common coefficients c, and the
# tastes V and shares W of individuals. With strong weight decay the mixture is a multinomial logit. Features are those
# of the linear context logit above. The log-likelihood of a mixture is not concave. Shapes: I (B, D0), x (B, J, D), m
# (B, D), a, b (D, D) -> u (B, D, J) -> log p (B, J).


class DLCLNetwork(ContextLogit):
    """Network that maps a batch to log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: LCLConfig, encoders: Encoders | None = None) -> None:
        super().__init__(encoder, config, encoders)
        width, individual_width = self.alternative.width, self.individual.width
        self.intercepts = nn.Parameter(torch.randn(width, width) / math.sqrt(10 * width))  # b_k; equal ones stay equal
        self.slopes = nn.Parameter(torch.zeros(width, width))  # a_k
        self.shares = nn.Parameter(torch.zeros(width))  # d
        self.shares_of = nn.Parameter(torch.zeros(width, individual_width)) if individual_width else None  # W

    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        """Return scores (B, D, J) by component, given individuals (B, D0), alternatives (B, J, D) and a mask (B, J)."""
        means = set_means(alternatives, mask).unsqueeze(-1)  # (B, D, 1)
        return (self.intercepts + means * self.slopes) @ alternatives.mT

    def log_shares(self, individual: Tensor) -> Tensor:
        """Return the log-shares (B, D) of the components, given individuals (B, D0)."""
        if self.shares_of is None:
            logits = self.shares.expand(len(individual), -1)
        else:
            logits = self.shares + individual @ self.shares_of.mT
        return logits.nan_to_num().log_softmax(-1)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        individual, alternatives = self.represent(batch)
        assert self.utility is not None
        common = self.utility(batch, individual, alternatives).unsqueeze(1)  # (B, 1, J)
        utilities = self.scores(individual, alternatives, batch.mask) + common  # (B, D, J)
        each = log_softmax_of_sets(utilities, batch.mask.unsqueeze(1))
        each = each.masked_fill(~batch.mask.unsqueeze(1), 0.0)  # sums of -inf have a NaN gradient
        mixed = (self.log_shares(individual).unsqueeze(-1) + each).logsumexp(1)
        return log_softmax_of_sets(mixed, batch.mask, exact=not self.training)  # corrects rounding of the sum


class DLCL(SetModel):
    """Decomposed linear context logit: a mixture of logits, each with the context effect of one feature.

    Examples
    --------
    >>> DLCL(epochs=10).config.epochs
    10
    """

    name = "dlcl"
    config_class = LCLConfig
    config: LCLConfig
    network_class = DLCLNetwork

    @takes(LCLArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def summary(self) -> Summary:
        """Return a summary with each component's share and largest context effect, and details of the training."""
        plain = super().summary()
        assert isinstance(self.network_, DLCLNetwork)
        names = entry_names(self.encoder_.features, self.network_.alternative)
        shares = self.network_.shares.detach().cpu().softmax(0)
        slopes = self.network_.slopes.detach().cpu()
        largest = slopes.abs().argmax(1)
        rows = tuple(
            (names[k], f"{shares[k]:.3f}", names[largest[k]], f"{slopes[k, largest[k]]:+.4f}")
            for k in shares.argsort(descending=True, stable=True).tolist()
        )
        facts = {**plain.facts, "effects": "the largest of each component; numeric features in standard deviations"}
        return Summary(plain.title, facts, ("mean of", "share", "changes the coefficient of", "by"), rows, self.caveats)
