"""Resamples of a table for the Bayesian bootstrap (Rubin, 1981).

A resample keeps every choice set and multiplies its weight by a random number. All sets of a group, such as a person,
get the same number g, because their choices depend on each other:

    g_k = G e_k / (e_1 + ... + e_G),        e_k independent, exponentially distributed, for the groups k = 1, ..., G.

The mean of the numbers is 1 and their variance is (G - 1) / (G + 1), as in a bootstrap that draws G groups with
replacement. However, no group has the weight 0. So every level of a category is still chosen in a resample, and an
estimate that exists for the table exists for the resample.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats
from pcmcnet.data.choice_data import ChoiceData


def resample(data: ChoiceData, source: np.random.SeedSequence, by: str | ArrayLike | None = None) -> ChoiceData:
    """Return the table with random weights, which are the same for all choice sets of a group.

    Parameters
    ----------
    data
        Choice sets.
    source
        Seed of the resample, such as a child of ``numpy.random.SeedSequence(seed)``. :func:`fit_seed` returns the seed
        of the fit for the same source; it is independent of the random weights.
    by
        Groups of choice sets, as in :meth:`ChoiceData.groups`. Default None: persons if the table declares them,
        rankings if it has ranks, otherwise choice sets.

    Returns
    -------
    ChoiceData
        The same choice sets in the same order, with other weights.
    """
    groups = np.unique(data.groups(by), return_inverse=True)[1]
    return replace(data, weights=data.weights * _group_weights(int(groups.max()) + 1, source)[groups])


def fit_seed(source: np.random.SeedSequence) -> int:
    """Return the seed of the fit to a resample."""
    return int(source.generate_state(1, np.uint64)[0] >> 1)


def _group_weights(groups: int, source: np.random.SeedSequence) -> Floats:  # -> (groups,)
    """Return random weights with mean 1."""
    # The key of the first child, without counting it as spawned: the same source gives the same weights again.
    child = np.random.SeedSequence(source.entropy, spawn_key=(*source.spawn_key, 0), pool_size=source.pool_size)
    draws = np.random.default_rng(child).exponential(size=groups)
    weights: Floats = draws / draws.mean()
    return weights
