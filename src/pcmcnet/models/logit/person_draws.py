"""Predictions for people who have their own draws of the coefficients, such as draws given their earlier choices.

With draws b_nr of the coefficients of person n and weights w_nr, which sum to 1 over the draws,

    P(i | S_t) = sum_r w_nr exp(b_nr . x_i) / sum_j exp(b_nr . x_j)

For draws from the population, the weights of a person with known choices are proportional to their likelihood
(Revelt & Train, 2000). Shapes: N alternatives, S sets, P persons, K columns, R draws.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.models.logit.draws import product_by_set, softmax_by_draw

_UTILITIES_AT_ONCE = 2**21  # utilities of a chunk in all draws, to bound memory


def probabilities_by_draw(
    x: Floats, offsets: Ints, coefficients: Floats, person: Ints
) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yield chunks of choice sets: their indices (s,), their rows (n,), and probabilities (n, R) in each draw.

    Parameters
    ----------
    x, offsets
        Columns (N, K) of all alternatives, and index (S + 1,) of the first row of each set.
    coefficients
        Draws (P, K, R) of the coefficients.
    person
        Index (S,) of the person of each set.
    """
    sizes, R = np.diff(offsets), coefficients.shape[2]
    chunk_of_set = np.cumsum(sizes * R) // _UTILITIES_AT_ONCE
    for sets in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(chunk_of_set)) + 1):
        if not len(sets):
            continue
        rows = consecutive_indices(offsets[sets], sizes[sets])
        ends = np.concatenate([[0], np.cumsum(sizes[sets])])
        persons, place = np.unique(person[sets], return_inverse=True)
        utilities = product_by_set(x[rows], coefficients[persons], np.repeat(place, sizes[sets]))
        yield sets, rows, softmax_by_draw(utilities, ends)


def mean_probabilities(
    x: Floats, offsets: Ints, coefficients: Floats, person: Ints, weights: Floats | None = None
) -> Floats:  # -> (N,)
    """Return the mean over the draws of each person, with weights (P, R) if they are given."""
    out = np.empty(len(x))
    for sets, rows, p in probabilities_by_draw(x, offsets, coefficients, person):
        if weights is None:
            out[rows] = p.mean(axis=1)
        else:
            of_rows = np.repeat(person[sets], np.diff(offsets)[sets])
            out[rows] = np.einsum("nr,nr->n", p, weights[of_rows])
    return out


def posterior_weights(
    x: Floats, offsets: Ints, chosen: Ints, coefficients: Floats, person: Ints, prior: Floats | None = None
) -> Floats:
    """Return the weights (P, R) of draws from the population, given the choices of each person.

    ``prior`` contains the weights (P, R) of the draws before the choices are known. Default: equal weights.
    """
    log_likelihoods = np.zeros((len(coefficients), coefficients.shape[2]))
    if prior is not None:
        log_likelihoods += np.log(np.maximum(prior, 1e-300))
    for sets, _, p in probabilities_by_draw(x, offsets, coefficients, person):
        sizes = np.diff(offsets)[sets]
        picked = np.cumsum(sizes) - sizes + chosen[sets]
        np.add.at(log_likelihoods, person[sets], np.log(np.maximum(p[picked], 1e-300)))
    weights = np.exp(log_likelihoods - log_likelihoods.max(axis=1, keepdims=True))
    total: Floats = weights / weights.sum(axis=1, keepdims=True)
    return total
