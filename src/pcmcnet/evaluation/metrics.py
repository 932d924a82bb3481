"""Log-probabilities and choices -> one value per choice set.

Alternatives of all S sets lie in flat arrays (N,), set after set; ``offsets`` (S + 1,) says where each set
begins and ``chosen`` (S,) which of its alternatives was chosen. No set is empty. Every function returns (S,):

    nll    -log p(chosen)
    top    1 where the chosen alternative is among the n most probable ones, with random ties in expectation
    brier  sum over i of (p_i - y_i)^2, with y the indicator of the choice: 0 at best, 2 at worst
    kl     sum over i of t_i log(t_i / p_i), with t the known probabilities; a term with t_i = 0 is 0

Log-probabilities come in because they are exact where a probability underflows; -inf is probability 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.ragged import sum_by_set

# Alternatives with equal features have equal probabilities, but in float32 their log p come out up to 8e-6
# apart (measured: two equal alternatives in sets of 3 to 100, log-rates with a spread of 1 to 20). Without a
# tolerance, rounding would break such ties by place in the set, which may well be correlated with the choice.
# Different alternatives that a model tells apart by less than one part in 100,000 are next to never met.
TIE = 1e-5


class Standing(NamedTuple):
    """Where the chosen alternative of each set stands: (S,) and (S,)."""

    better: Ints  # alternatives that are more probable
    tied: Ints  # alternatives that are as probable, the chosen one included


def nll(log_p: Floats, offsets: Ints, chosen: Ints) -> Floats:
    """Return the negative log-likelihood of each choice; inf where the choice has probability 0."""
    loss: Floats = 0.0 - log_p[offsets[:-1] + chosen]  # 0.0 - x, since -x turns a sure choice into -0.0
    return loss


def brier(log_p: Floats, offsets: Ints, chosen: Ints) -> Floats:
    """Return the squared distance between the probabilities and the indicator of the choice."""
    miss = np.exp(log_p)
    miss[offsets[:-1] + chosen] -= 1.0
    return sum_by_set(miss**2, offsets)


def kl(true: Floats, log_p: Floats, offsets: Ints) -> Floats:
    """Return the Kullback-Leibler divergence of the prediction from the truth.

    Examples
    --------
    >>> true, predicted = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.5, 0.25])
    >>> kl(true, np.log(predicted), np.array([0, 3])) / np.log(2)  # 1/2 log 2 + 1/2 log 1 + 0
    array([0.5])
    """
    log_true = np.log(true, where=true > 0, out=np.zeros_like(true))
    gap = np.subtract(log_true, log_p, where=true > 0, out=np.zeros_like(true))  # 0 log(0 / 0) is left out
    return sum_by_set(true * gap, offsets)


def standing(log_p: Floats, offsets: Ints, chosen: Ints, *, tie: float = TIE) -> Standing:
    """Count the alternatives above and level with the choice; a gap in log p up to ``tie`` is a tie."""
    own = np.repeat(log_p[offsets[:-1] + chosen], np.diff(offsets))  # (N,)
    above = log_p > own + tie
    level = (log_p >= own - tie) & ~above  # also right where own is -inf: level with all that are -inf
    return Standing(sum_by_set(above.astype(np.int64), offsets), sum_by_set(level.astype(np.int64), offsets))


def top(log_p: Floats, offsets: Ints, chosen: Ints, n: int, *, tie: float = TIE) -> Floats:
    """Return the probability that the choice is among the first n when ties are broken at random.

    With a alternatives better and t tied, the place of the choice is uniform on a, ..., a + t - 1. This is
    the expectation of the accuracy with random tie-breaks: the same number without its noise.

    Examples
    --------
    >>> log_p = np.log([0.4, 0.2, 0.2, 0.2])
    >>> [top(log_p, np.array([0, 4]), np.array([1]), n).item() for n in (1, 2, 4)]  # a = 1, t = 3
    [0.0, 0.333..., 1.0]
    """
    better, tied = standing(log_p, offsets, chosen, tie=tie)
    return np.clip((n - better) / tied, 0.0, 1.0)


def places(log_p: Floats, offsets: Ints, chosen: Ints, rng: np.random.Generator, *, tie: float = TIE) -> Ints:
    """Return the place of each choice, 0 for the first, with ties broken at random.

    ``places(...) < n`` says which are within the top n; one draw serves every n, so top 5 contains top 1.
    """
    better, tied = standing(log_p, offsets, chosen, tie=tie)
    return better + rng.integers(0, tied)


def uniform_log_p(offsets: Ints) -> Floats:
    """Return the log-probabilities (N,) of the model that tells no alternatives apart."""
    sizes = np.diff(offsets)
    return np.repeat(-np.log(sizes), sizes)
