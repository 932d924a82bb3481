"""The expected margin of price lists, sum_i P(i | x) (x_i - c_i), its gradient, and the way up from many starts.

    d margin / d x_j = P_j + sum_i (x_i - c_i) P_i  d log P_i / d x_j

For a chain the derivatives of the probabilities are those of its stationary distribution; models without derivatives of
their own are asked about prices nearby. L-BFGS-B climbs from the best of many random price lists, then Newton's steps
settle the prices that are at no bound. There may be several maxima.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Numeric
from pcmcnet.evaluation.predictions import gives_of, predicted_log_p
from pcmcnet.insight.slopes import slopes
from pcmcnet.insight.what_if import compose
from pcmcnet.models import ChoiceModel

_RANDOM = 64  # price lists that are asked about at once, of which the best are climbed from
_STEP = 1e-3  # of differences, relative to prices: errors of the fourth power, and of rounding, are near 1e-13
_NEWTON = 4  # last steps, which square the error


class Margin(NamedTuple):
    """The expected margin as a function of prices."""

    model: ChoiceModel
    sets: ChoiceData  # one set
    column: str
    cost: Floats  # (n,)
    moves: Bools  # (n,) alternatives whose price may change

    def at(self, prices: Floats) -> tuple[Floats, Floats]:  # (B, n) -> (B, n), (B, n)
        """Return probabilities and margins of price lists."""
        p = np.exp(predicted_log_p(self.model, self._priced(prices))).reshape(prices.shape)
        return p, np.where(self.moves, prices - self.cost, 0.0)

    def expected(self, prices: Floats) -> Floats:  # (B, n) -> (B,)
        """Return the expected margin of price lists."""
        total: Floats = np.multiply(*self.at(prices)).sum(axis=1)
        return total

    def gradient(self, prices: Floats) -> Floats:  # (B, n) -> (B, n)
        """Return the derivatives of the expected margins in the prices."""
        B, n = prices.shape
        own = self.model._slopes(self._priced(prices), self.column)
        if own is None and gives_of(self.model) == "probabilities":
            return np.where(self.moves, self._differences(prices), 0.0)
        own = slopes(self.model, self._priced(prices), self.column) if own is None else own
        response = own.reshape(B, n, n)  # d log p_i / d x_j
        p, margins = self.at(prices)
        found: Floats = p * self.moves + np.einsum("bi,bij->bj", p * margins, response)
        return np.where(self.moves, found, 0.0)

    def demand_slopes(self, prices: Floats) -> Floats:  # (n,) -> (n, n)
        """Return the derivatives of the probabilities (rows) in the prices (columns)."""
        p, _ = self.at(prices[None])
        response = slopes(self.model, self._priced(prices[None]), self.column).reshape(len(prices), len(prices))
        return np.where(self.moves, p[0][:, None] * response, 0.0)

    def _differences(self, prices: Floats) -> Floats:  # (B, n) -> (B, n)
        """Differentiate margins by four more price lists for each price, with an error of the fourth order."""
        B, n = prices.shape
        step = _STEP * np.maximum(np.abs(prices), 1.0)  # (B, n)
        ways = np.array([1.0, -1.0, 2.0, -2.0])[:, None, None, None] * (step[:, :, None] * np.eye(n))  # (4, B, n, n)
        up, down, far_up, far_down = self.expected((prices[:, None] + ways).reshape(-1, n)).reshape(4, B, n)
        found: Floats = (8 * (up - down) - (far_up - far_down)) / (12 * step)
        return found

    def own_responses(self, prices: Floats) -> Floats:  # (n,) -> (n,)
        """Return the derivative of each log-probability in its own price."""
        response = slopes(self.model, self._priced(prices[None]), self.column)
        return np.diag(response.reshape(len(prices), len(prices)))

    def _priced(self, prices: Floats) -> ChoiceData:
        """Return a set for each price list, in float64: logits are exact to more digits than a float32 has."""
        everyone = [np.arange(prices.shape[1])] * len(prices)
        sets = compose(self.sets, everyone, np.zeros(len(prices), np.int64))
        return replace(sets, features={**sets.features, self.column: Numeric(prices.ravel())})  # type: ignore[arg-type]


def best_prices(
    margin: Margin, before: Floats, low: Floats, high: Floats, starts: int, rng: np.random.Generator
) -> Floats:
    """Follow the gradient from the best of many price lists; return the best prices found."""
    from scipy.optimize import minimize

    lists = price_lists(margin, before, low, high, rng)
    first = lists[np.argsort(-margin.expected(lists))[:starts]]
    ends = []
    for prices in np.vstack([lists[:1], first]):
        found = minimize(
            lambda x: (-margin.expected(x[None])[0], -margin.gradient(x[None])[0]),
            prices,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(np.where(margin.moves, low, before), np.where(margin.moves, high, before), strict=True)),
        )
        ends.append(found.x)
    best = np.array(ends)[margin.expected(np.array(ends)).argmax()]
    return _polish(margin, best, low, high)


def price_lists(margin: Margin, before: Floats, low: Floats, high: Floats, rng: np.random.Generator) -> Floats:
    """Return price lists to begin from: the present one, within its bounds, and random ones."""
    lists = np.vstack([np.clip(before, low, high), rng.uniform(low, high, (_RANDOM, len(before)))])
    return np.where(margin.moves, lists, before)


def _polish(margin: Margin, prices: Floats, low: Floats, high: Floats) -> Floats:
    """Take Newton's steps on prices within their bounds, while the gradient shrinks."""
    free = np.flatnonzero(margin.moves & (prices > low) & (prices < high))
    slope = margin.gradient(prices[None])[0]
    for _ in range(_NEWTON if len(free) else 0):
        step = 1e-4 * np.maximum(np.abs(prices[free]), 1e-3)
        ends = np.tile(prices, (2 * len(free), 1))
        ends[np.arange(2 * len(free)), np.tile(free, 2)] += np.concatenate([step, -step])
        ahead, behind = margin.gradient(ends)[:, free].reshape(2, len(free), len(free))
        curvature = (ahead - behind) / (2 * step)[:, None]
        try:
            there = prices.copy()
            there[free] -= np.linalg.solve((curvature + curvature.T) / 2, slope[free])
        except np.linalg.LinAlgError:
            return prices
        if not ((there >= low) & (there <= high))[free].all():
            return prices
        new = margin.gradient(there[None])[0]
        if np.abs(new[free]).max() >= np.abs(slope[free]).max():
            return prices
        prices, slope = there, new
    return prices
