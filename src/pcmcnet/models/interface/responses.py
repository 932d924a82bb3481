"""Responses of choice probabilities to the values of one column, and their averages over choice sets.

Within a set, r_ij is the response of alternative i to the value of alternative j: an elasticity, or another derivative.
Over sets responses are averaged by sample enumeration, each alternative counting with its mass m_i, such as w_S p_i, in
every set that offers it. Where the alternative that changes is not on offer, or has no value, nothing responds: r = 0.

    own     sum m_i r_ii / sum m_i                          by group of i
    cross   sum m_i r_ij / sum m_i                          by the groups of i and of j, whose values change together
    other   sum m_i r_ij / sum m_i over pairs with i != j   by group of j: of its rivals, in the sets that offer it

With m = w p and labels as groups, cross is what finite differences of the predicted shares give, d log share_i / d log
x_j, and own is its diagonal.

Responses lie over the ordered pairs (i, j) of each set, as ``ragged.ordered_pairs`` lists them: (sum n^2,).
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.ragged import ordered_pairs


def own_responses(values: Floats, offsets: Ints) -> Floats:  # (sum n^2,) -> (N,)
    """Return the response of each alternative to its own value."""
    i, j = ordered_pairs(offsets)
    own: Floats = values[i == j]
    return own


def other_means(values: Floats, mass: Floats, offsets: Ints, codes: Ints, groups: int) -> Floats:  # -> (G,)
    """Average the responses of the rivals by group of the alternative whose value changes."""
    i, j = ordered_pairs(offsets)
    return weighted_mean_by(values, np.where(i != j, mass[i], 0.0), codes[j], groups)


def cross_means(values: Floats, mass: Floats, offsets: Ints, codes: Ints, groups: int) -> Floats:  # -> (G, G)
    """Average by group of the alternative that responds and of those that change, which do so together."""
    i, j = ordered_pairs(offsets)
    total = np.bincount(codes[i] * groups + codes[j], mass[i] * values, groups**2).reshape(groups, groups)
    weight = np.bincount(codes, mass, groups)[:, None]
    means: Floats = total / np.where(weight > 0, weight, 1.0)
    return means


def weighted_mean_by(values: Floats, weights: Floats, codes: Ints, groups: int) -> Floats:  # -> (groups,)
    """Return the weighted mean of each group; 0 where nothing has a weight."""
    total = np.bincount(codes, weights, groups)
    means: Floats = np.bincount(codes, weights * values, groups) / np.where(total > 0, total, 1.0)
    return means


def step_sizes(values: Floats) -> Floats:
    """Return what the relative step of a difference is relative to: |x|, and the mean of it where x is 0 or missing."""
    size = np.abs(np.nan_to_num(values))
    sizes: Floats = np.where(size > 0, size, float(size.mean()) or 1.0)
    return sizes
