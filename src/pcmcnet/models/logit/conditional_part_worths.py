"""Part-worths of persons, given their choices and a fitted population. The choices do not change the population.

At each step, each of several chains selects a random draw of D and S. Then every person moves by Metropolis steps
(``person_posterior.py``). So the part-worths are draws from their posterior distribution, averaged over the draws of
the population.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.models.interface.latent_classes import Persons
from pcmcnet.models.logit.fitted_hierarchy import FittedHierarchy, signed_coefficients
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.person_posterior import PersonChoices, PersonPosterior

_CHAINS, _BURN_IN, _DRAWS = 8, 20, 50
_MODE_SEARCHES = 4  # of three Newton steps each
_MOVES_PER_DRAW = 2


def draw_part_worths(
    state: FittedHierarchy, logit: LogitLikelihood, persons: Persons, seed: int
) -> NDArray[np.float32]:  # -> (N, K, draws)
    """Return draws of the part-worths of persons with some choices.

    Parameters
    ----------
    state
        The fitted population.
    logit
        Choices of the persons. Its columns are those with part-worths.
    persons
        The person of each choice set.
    seed
        Seed of the random numbers.
    """
    K, signs = len(state.names), np.array(state.signs, np.int64)
    means, covariances = state.population_draws()
    # 1. The choices, in the units of the table times the spread of the population.
    units = 1 / logit.spread
    shift = np.where(signs == 0, 0.0, np.log(units))
    factors = np.where(signs == 0, units, 1.0)
    choices = PersonChoices.of(logit.z * units, logit.offsets, persons.number[logit.sets], len(persons.first), signs)
    h = np.zeros((means.shape[2], choices.P))
    h[:, choices.lane] = state.covariates.matrix(persons.table).T

    def population(at: Ints) -> tuple[Floats, NDArray[np.float32]]:
        means_at = means[at].copy()
        means_at[:, :, 0] -= shift
        precision = np.linalg.inv(covariances[at] / np.outer(factors, factors))
        return precision, np.ascontiguousarray(means_at / factors[:, None] @ h, np.float32)

    # 2. The normal approximation of each person's posterior.
    rng = np.random.default_rng(seed)
    precision, mean = population(np.linspace(0, len(means) - 1, _CHAINS).astype(np.int64))
    centre, typical = precision.mean(0), mean.mean(0)
    modes = typical
    for _ in range(_MODE_SEARCHES):
        posterior = PersonPosterior.at_modes(choices, typical, centre, modes)
        modes = np.ascontiguousarray(posterior.moments(typical, centre)[0].T, np.float32)
    # 3. At each step, a chain selects a random draw of the population, and every person moves by Metropolis steps.
    u = rng.standard_normal((_CHAINS, K, choices.P), dtype=np.float32)
    sizes, accepted = np.full(choices.P, 0.9, np.float32), np.zeros(choices.P, np.float32)
    draws = np.empty((_DRAWS, _CHAINS, K, choices.P), np.float32)
    for step in range(_BURN_IN + _DRAWS):
        precision, mean = population(rng.integers(len(means), size=_CHAINS))
        states = posterior.states(u, precision, mean)
        for _ in range(_MOVES_PER_DRAW):
            posterior.move(states, precision, mean, sizes, rng, accepted)
        u = states.u
        if step >= _BURN_IN:
            draws[step - _BURN_IN] = states.b
    # 4. Coefficients in the units of the table.
    b = draws[..., choices.lane].transpose(3, 2, 0, 1).reshape(len(persons.first), K, -1)
    return np.ascontiguousarray(signed_coefficients(b, signs) * units[:, None], np.float32)
