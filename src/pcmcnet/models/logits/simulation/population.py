"""Probabilities of a mixed logit for people who are not known: means over draws that all choice sets share.

P(i | S) = mean_r exp(v_ir) / sum_j exp(v_jr), with v_ir the utility in draw r. Every set has the same draws, so that
sets that are alike have the same probabilities, whoever chooses and whatever else is in the table. All in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.layers.threads import in_threads
from pcmcnet.models.logits.simulation.blocks import Block, blocks
from pcmcnet.models.logits.simulation.coefficients import Mixing
from pcmcnet.models.logits.simulation.draws import Draws

_NUMBERS = 2**17  # utilities at a time


@dataclass(frozen=True)
class Population:
    """The coefficients of people, in draws that stand for all of them."""

    mixing: Mixing
    x: Floats  # (P,) parameters
    draws: Draws

    def coefficients(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return the coefficients of all columns in the utility, for individuals with these numbers."""
        return self.mixing.in_utility(self.worths(h))

    def worths(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return the same as they are estimated: in willingness-to-pay space, the cost's and the others' worths."""
        mixing = self.mixing
        locations = torch.from_numpy(mixing.locations(self.x, h))
        triangle, standard = torch.from_numpy(mixing.triangle(self.x)), mixing.standard(self.draws.common()).double()
        random = mixing.sample(locations, triangle, standard.expand(len(h), -1, -1)).value
        return mixing.whole(self.x, random)

    def log_probabilities(self, x: Floats, offsets: Ints, h: Floats) -> Floats:  # (N, K), (S + 1,), (S, G) -> (N,)
        """Return the log-probability of every alternative."""

        def ask(utilities: Tensor) -> Tensor:  # (N, m, R) -> (N, m)
            return utilities.log_softmax(1).logsumexp(2).sub_(math.log(utilities.shape[2]))

        return self._by_row(x, offsets, h, ask)

    def log_probabilities_by_draw(self, x: Floats, offsets: Ints, h: Floats) -> Floats:  # -> (N, R)
        """Return the log-probability of every alternative in each draw."""
        return self._by_row(x, offsets, h, lambda utilities: utilities.log_softmax(1))

    def _by_row(
        self, x: Floats, offsets: Ints, h: Floats, ask: Callable[[Tensor], Tensor]
    ) -> Floats:  # -> (N,) or (N, R)
        """Ask for something of every alternative; answers of empty places are left out."""
        parts = self._by_block(x, offsets, h, ask)
        out = np.empty((len(x), *parts[0][1].shape[2:]))
        for block, found in parts:
            kept = np.ones(len(block.set_of_row), np.bool_)
            kept[block.empty_rows.numpy()] = False
            out[block.rows] = found.reshape(-1, *found.shape[2:])[kept]
        return out

    def log_sums(self, x: Floats, offsets: Ints, h: Floats) -> Floats:  # (N, K), (S + 1,), (S, G) -> (S, R)
        """Return the expected largest utility of each set in each draw."""
        out = np.empty((len(offsets) - 1, self.draws.number))
        for block, found in self._by_block(x, offsets, h, lambda utilities: utilities.logsumexp(1)):
            out[block.persons] = found
        return out

    def _by_block(
        self, x: Floats, offsets: Ints, h: Floats, ask: Callable[[Tensor], Tensor]
    ) -> list[tuple[Block, Floats]]:
        """Ask for something of utilities (sets, alternatives, draws), -inf where a set has no more alternatives."""
        shared = None if h.shape[1] else self.coefficients(np.zeros((1, 0)))[0]

        def answer(block: Block) -> tuple[Block, Floats]:
            if shared is not None:
                utilities = (block.z.reshape(-1, block.z.shape[2]) @ shared).view(*block.z.shape[:2], -1)
            else:
                utilities = torch.bmm(block.z, self.coefficients(h[block.persons]))
            utilities.view(-1, utilities.shape[2]).index_fill_(0, block.empty_rows, -torch.inf)
            return block, ask(utilities).numpy()

        every = np.arange(len(offsets) - 1)
        most = max(_NUMBERS // self.draws.number, 1)
        return in_threads(answer, list(blocks(x, offsets, every, most, torch.device("cpu"))))
