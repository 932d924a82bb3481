"""Responses of choice probabilities to the values of one column, and their averages over choice sets.

Within a set, r_ij is the response of alternative i to the value of alternative j: an elasticity, or another derivative.
Over sets responses are averaged by sample enumeration, each alternative counting with its mass m_i, such as w_S p_i:

    own     sum m_i r_ii / sum m_i                                    by group of i
    other   sum m_i r_ij / sum m_i,  i != j                           by group of j, whose value changes
    cross   sum m_i r_ij / sum m_i of the sets that have both groups  by the groups of i and of j

Responses lie over the ordered pairs (i, j) of each set, as ``ragged.ordered_pairs`` lists them: (sum n^2,).
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data.ragged import ordered_pairs


def own_responses(values: Floats, offsets: Ints) -> Floats:  # (sum n^2,) -> (N,)
    """Return the response of each alternative to its own value."""
    i, j = ordered_pairs(offsets)
    own: Floats = values[i == j]
    return own


def other_means(values: Floats, mass: Floats, offsets: Ints, codes: Ints, groups: int, known: Bools) -> Floats:
    """Average the responses of the rivals by group of the alternative whose value changes, where it has one: (G,)."""
    i, j = ordered_pairs(offsets)
    return weighted_mean_by(values, np.where((i != j) & known[j], mass[i], 0.0), codes[j], groups)


def cross_means(values: Floats, mass: Floats, offsets: Ints, codes: Ints, groups: int, known: Bools) -> Floats:
    """Average by group of the alternative that responds and of those that change, which do so together: (G, G)."""
    i, j = ordered_pairs(offsets)
    S, G = len(offsets) - 1, groups
    total = np.bincount(codes[i] * G + codes[j], mass[i] * values, G * G).reshape(G, G)
    cells = np.repeat(np.arange(S), np.diff(offsets)) * G + codes
    of = np.bincount(cells, mass, S * G).reshape(S, G)
    when = np.bincount(cells, known, S * G).reshape(S, G) > 0
    weight = of.T @ when
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
