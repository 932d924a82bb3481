"""Linear context logits (Tomlinson & Benson, 2021): coefficients that move with the mean features of the set.

    u_i = (c + V I + A m) . x_i        m = mean over j in S of x_j
    p   = softmax(u)

x_i are the features of i: numbers, standardised, and a 0 or 1 for each category. A_pq says by how much the coefficient
of feature p rises where the mean of feature q in the set is higher by 1. With A = 0 it is a multinomial logit. u is
linear in the weights (c, V, A), so that the log-likelihood is concave, unless a column is embedded or encoded.
Shapes: I (B, D0), x (B, J, D), m (B, D), A (D, D) -> u (B, J). The decomposed form, DLCL, stands below.
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
from pcmcnet.models.networks.network_config import NetworkConfig, Utility
from pcmcnet.models.networks.set_network import SetModel, SetNetwork, log_softmax_of_sets, set_means
from pcmcnet.reports.formats import Summary

# -- Columns -> vectors without weights: a 0 or 1 for each category, numbers as they are -------------------------------
# A utility that is linear in its coefficients is then linear in all weights, and each entry has the name of a column.
# Categories of a column with more than `MANY` of them keep an embedding, and contents such as texts their encoder:
# these have weights, and entries that only have a number.

MANY = 50


class Indicators(nn.Module):
    """A category's number -> 1 in its place; 0 everywhere for one never seen."""

    table: Tensor

    def __init__(self, categories: int) -> None:
        super().__init__()
        table = torch.cat([torch.zeros(1, categories), torch.eye(categories)])
        self.register_buffer("table", table, persistent=False)

    def forward(self, index: Tensor) -> Tensor:
        """(...) -> (..., categories)."""
        return F.embedding(index, self.table)


def plain_columns(side: SideEncoder, own: Encoders | None = None) -> Representation:
    """Return the representation of one side's columns, with indicators in the place of embeddings."""
    found = build_representation(side, own=own)
    for k, (categories, width) in enumerate(side.embeddings):
        if categories <= MANY:
            found.embeddings[k] = Indicators(categories)
            found.width += categories - width
    return found


def entry_names(side: SideEncoder, representation: Representation) -> list[str]:
    """Name the entries of a representation: ``price``, ``mode=car``, or ``title[3]`` where an entry has no name."""
    names: list[str] = []
    for code, (categories, width) in zip(side.categorical, side.embeddings, strict=True):
        if categories <= MANY:
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


SHOWN = 20  # effects in a summary


class ContextEffect(NamedTuple):
    """By how much a coefficient moves with the mean of a feature in the set."""

    coefficient: str
    mean_of: str
    effect: float


@dataclass(frozen=True, kw_only=True)
class LCLConfig(NetworkConfig):
    """Options of the linear context logits: those of all networks, and of the training loop."""

    dropout: ClassVar[float] = 0.0
    utility: ClassVar[Utility] = "linear"


@dataclass(frozen=True, kw_only=True)
class LCLArguments(LCLConfig):
    """What the constructor takes: the options, and what no option can hold."""

    encoders: Encoders | None = None


class ContextLogit(SetNetwork):
    """Networks of plain columns around a linear utility: c and V of the formula."""

    def represent_side(self, side: SideEncoder, config: Any, own: Encoders | None) -> Representation:
        """Return plain columns."""
        return plain_columns(side, own)


class LCLNetwork(ContextLogit):
    """Batch -> log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: LCLConfig, own: Encoders | None = None) -> None:
        super().__init__(encoder, config, own)
        self.context = nn.Parameter(torch.zeros(self.alternative.width, self.alternative.width))  # A

    def scores(self, who: Tensor, what: Tensor, mask: Tensor) -> Tensor:
        """(B, D0), (B, J, D), (B, J) -> (B, J)."""
        moved = set_means(what, mask) @ self.context.mT  # (B, D)
        return (what @ moved.unsqueeze(-1)).squeeze(-1)


class LCL(SetModel):
    """Linear context logit: the mean features of a set move the coefficients of a logit.

    Options are those of :class:`LCLConfig`; an unknown one is refused.

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
        """Return the entries of A with their names, the largest first: features in units of the network's inputs.

        Numbers are in standard deviations, and categories 0 or 1.
        """
        assert isinstance(self.network_, LCLNetwork)
        names = entry_names(self.encoder_.features, self.network_.alternative)
        found = self.network_.context.detach().cpu().tolist()
        rows = zip(names, found, strict=True)
        effects = [ContextEffect(of, by, value) for of, row in rows for by, value in zip(names, row, strict=True)]
        return sorted(effects, key=lambda effect: -abs(effect.effect))

    def summary(self) -> Summary:
        """Show the largest context effects, and how training went."""
        plain, effects = super().summary(), self.context_effects()
        told = f"the {SHOWN} largest of {len(effects):,}" if len(effects) > SHOWN else f"all {len(effects)}"
        facts = {**plain.facts, "effects": f"{told}; numbers in standard deviations, categories 0 or 1"}
        rows = tuple((e.coefficient, e.mean_of, f"{e.effect:+.4f}") for e in effects[:SHOWN])
        return Summary(plain.title, facts, ("coefficient of", "moves with the set's mean of", "by"), rows)


# -- Dlcl --------------------------------------------------------------------------------------------------------------
# Decomposed linear context logit (Tomlinson & Benson, 2021): a mixture of one context effect per feature.
#
#     u_ki = (c + V I + b_k + a_k m_k) . x_i      m_k = mean over j in S of the feature x_jk
#     p_i  = sum over k of w_k softmax(u_k)_i      w = softmax(d + W I)
#
# Each of the D components belongs to one feature k of the alternatives, whose mean over the set moves the coefficients
# by a_k. b_k and a_k are the paper's intercepts B_k and slopes A_k; what components have in common, c, and the tastes V
# and shares W of individuals are added. Held firmly, the mixture is a multinomial logit. Features are those of the
# linear context logit (`pcmcnet.models.lcl`). A mixture's log-likelihood is not concave. Shapes: I (B, D0), x (B, J,
# D), m (B, D), a, b (D, D) -> u (B, D, J) -> log p (B, J).


class DLCLNetwork(ContextLogit):
    """Batch -> log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: LCLConfig, own: Encoders | None = None) -> None:
        super().__init__(encoder, config, own)
        width, who = self.alternative.width, self.individual.width
        self.intercepts = nn.Parameter(torch.randn(width, width) / math.sqrt(10 * width))  # b_k, which have to differ
        self.slopes = nn.Parameter(torch.zeros(width, width))  # a_k
        self.shares = nn.Parameter(torch.zeros(width))  # d
        self.shares_of = nn.Parameter(torch.zeros(width, who)) if who else None  # W

    def scores(self, who: Tensor, what: Tensor, mask: Tensor) -> Tensor:
        """(B, D0), (B, J, D), (B, J) -> (B, D, J): what each component adds."""
        means = set_means(what, mask).unsqueeze(-1)  # (B, D, 1)
        return (self.intercepts + means * self.slopes) @ what.mT

    def log_shares(self, who: Tensor) -> Tensor:
        """(B, D0) -> (B, D)."""
        shares = self.shares.expand(len(who), -1) if self.shares_of is None else self.shares + who @ self.shares_of.mT
        return shares.nan_to_num().log_softmax(-1)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        who, what = self.represent(batch)
        assert self.utility is not None
        utilities = self.scores(who, what, batch.mask) + self.utility(batch, who, what).unsqueeze(1)  # (B, D, J)
        each = log_softmax_of_sets(utilities, batch.mask.unsqueeze(1))
        each = each.masked_fill(~batch.mask.unsqueeze(1), 0.0)  # sums of -inf have no gradient
        mixed = (self.log_shares(who).unsqueeze(-1) + each).logsumexp(1)
        return log_softmax_of_sets(mixed, batch.mask, exact=not self.training)  # sums that are 1 but for rounding


class DLCL(SetModel):
    """Decomposed linear context logit: a mixture of logits, each moved by the mean of one feature in the set.

    Options are those of :class:`LCLConfig`; an unknown one is refused.

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
        """Show the share of each component with its largest context effect, and how training went."""
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
        facts = {**plain.facts, "effects": "the largest of each component; numbers in standard deviations"}
        return Summary(plain.title, facts, ("mean of", "share", "moves the coefficient of", "by"), rows)
