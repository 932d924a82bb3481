"""A mixture of K chains: people are of one of K unknown classes, each with its own rates.

    p(S) = sum_k m_k(I) pi_k(S),    m(I) = softmax(a + A I),    pi_k the stationary distribution of class k

The class is one more thing that the rate network is told of the individual: a mark, 1 at the place of the class. So all
classes share representations and layers, and one call computes the rates of all. A class also has a utility of its own,
added to the one of all: the logits inside form a latent class logit, and classes are drawn towards each other by the
prior of what they add. These additions start at random, since equal classes would stay equal.

Where classes are those of persons, the choices of a person count together,

    P(i_1, i_2, ... | I) = sum_k m_k(I) prod_s pi_k(i_s in S_s),

and a batch holds all sets of a person. Columns of the individual that vary between the sets of a person enter by the
mean of their a + A I. Shapes: B sets, K classes, J alternatives.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pcmcnet.data import Batch, Encoder
from pcmcnet.layers import log_probabilities, solve_chain
from pcmcnet.layers.inner_logit import LinearUtility
from pcmcnet.models.interface.own_encoders import Encoders
from pcmcnet.models.networks.chain_network import PCMCNetwork
from pcmcnet.models.networks.monotone_features import signs_of_numbers
from pcmcnet.models.networks.pcmcnet_config import PCMCNetConfig

APART = 0.3  # standard deviation of what the utilities of classes start with


class ChainMixture(PCMCNetwork):
    """Batch -> log-probabilities (B, J) of a mixture of chains."""

    def __init__(self, encoder: Encoder, config: PCMCNetConfig, own: Encoders | None = None, *, classes: int) -> None:
        super().__init__(encoder, config, own, marks=classes)
        self.classes, self.batches_by_person = classes, config.by == "person"
        signs = signs_of_numbers(config.monotone, encoder)
        added = 0 if self.utility is None else classes
        self.additions = nn.ModuleList(self.new_utility(encoder.features, signs) for _ in range(added))
        self.share = nn.Parameter(torch.zeros(classes))
        width = self.individual.width
        self.leaning = nn.Parameter(torch.zeros(classes, width)) if width else None
        self._set_apart()

    @torch.no_grad()
    def _set_apart(self) -> None:
        for part in self._additions:
            for weights in part.plain_weights:
                weights.normal_(0.0, APART)
            part.project_()

    @property
    def _additions(self) -> list[LinearUtility]:
        return [part for part in self.additions if isinstance(part, LinearUtility)]

    @property
    def utilities(self) -> list[LinearUtility]:
        """The utility of all classes, where there is one, and what each class adds to it."""
        return [*super().utilities, *self._additions]

    @property
    def of_shares(self) -> list[nn.Parameter]:
        """Weights of the shares of classes."""
        return [self.share] if self.leaning is None else [self.share, self.leaning]

    def leanings(self, individual: Tensor) -> Tensor:
        """Return a + A I, of which the shares of the classes are the softmax: (B, D0) -> (B, K)."""
        if self.leaning is None:
            return self.share.expand(individual.shape[0], -1)
        return self.share + individual @ self.leaning.mT

    def log_membership(self, batch: Batch) -> Tensor:
        """Return the logarithms of the shares of the classes before any choice, (B, K)."""
        return self.leanings(self.represent(batch)[0]).log_softmax(-1)

    def of_classes(self, x: Tensor) -> Tensor:
        """Repeat what is known of a set for each class: (B, ...) -> (B K, ...)."""
        return x.unsqueeze(1).expand(-1, self.classes, *x.shape[1:]).flatten(0, 1)

    def marked(self, individual: Tensor) -> Tensor:
        """Mark individuals with the class: (B, D0) -> (B K, D0 + K)."""
        marks = torch.eye(self.classes, dtype=individual.dtype, device=individual.device)
        marks = marks.expand(individual.shape[0], -1, -1).flatten(0, 1)
        return torch.cat([self.of_classes(individual), marks], -1)

    def chains(self, batch: Batch) -> Tensor:
        """Return the rates of the chains of all classes, (B, K, J, J)."""
        return self._chains(batch, *self.represent(batch))

    def _chains(self, batch: Batch, individual: Tensor, alternatives: Tensor) -> Tensor:
        utility = None
        if self.utility is not None:
            added = [part(batch, individual, alternatives) for part in self._additions]
            utility = (self.utility(batch, individual, alternatives).unsqueeze(1) + torch.stack(added, 1)).flatten(0, 1)
        known = self.marked(individual), self.of_classes(alternatives), utility
        rates = self.rates_between(*known, self.of_classes(batch.mask), self.of_classes(batch.categorical))
        return rates.view(-1, self.classes, *rates.shape[1:])

    def classwise(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the leanings (B, K) and the probabilities of the alternatives in each class, (B, K, J)."""
        individual, alternatives = self.represent(batch)
        rates = self._chains(batch, individual, alternatives).flatten(0, 1)
        p = solve_chain(rates, self.of_classes(batch.mask))
        return self.leanings(individual), p.view(-1, self.classes, p.shape[1])

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        leanings, p = self.classwise(batch)
        return log_probabilities((leanings.softmax(-1).unsqueeze(-1) * p).sum(1), batch.mask)

    def set_losses(self, batch: Batch) -> Tensor:
        """Return the loss of each set (B,): its NLL, or an equal share of that of all choices of its person."""
        if not self.batches_by_person or batch.person is None:
            return super().set_losses(batch)
        leanings, p = self.classwise(batch)
        chosen = p.gather(2, batch.chosen.view(-1, 1, 1).expand(-1, self.classes, 1)).squeeze(2)  # (B, K)
        return joint_losses(leanings, chosen.clamp(min=torch.finfo(p.dtype).tiny).log(), batch.person)

    def revive(self, batch: Batch) -> bool:
        """Undo a dead start: see :meth:`PairwiseRates.revive`."""
        individual, alternatives = self.represent(batch)
        return self.rates.revive(self.marked(individual), self.of_classes(alternatives), self.of_classes(batch.mask))


def joint_losses(leanings: Tensor, log_p: Tensor, person: Tensor) -> Tensor:  # (B, K), (B, K), (B,) -> (B,)
    """Return minus the log-likelihood of each person's choices together, in even parts for the person's sets.

    The sets of a person follow each other. ``log_p`` is of the choice of each set, in each class.
    """
    changes = person[1:] != person[:-1]
    number = torch.cat([changes.new_zeros(1), changes]).cumsum(0)  # persons from 0; of B places some stay empty

    def summed(values: Tensor) -> Tensor:
        return torch.zeros_like(values).index_add(0, number, values)

    sets = summed(torch.ones_like(log_p[:, :1])).clamp(min=1)  # (B, 1)
    joint = ((summed(leanings) / sets).log_softmax(-1) + summed(log_p)).logsumexp(-1, keepdim=True)
    return -(joint / sets)[number].squeeze(1)
