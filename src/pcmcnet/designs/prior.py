"""Prior knowledge of the coefficients of a design: values, normal distributions, or a fitted model.

    values           {"price": -0.5, "brand[B]": 0.3}; coefficients that are not named are 0
    distributions    {"price": (-0.5, 0.2)}: mean and standard deviation
    a fitted MNL     its estimates and their covariance
    another model    its probabilities of each candidate task, and their derivatives: see ``model_scores.py``

A normal distribution is represented by R points of a scrambled Sobol sequence, transformed by the inverse of the normal
distribution function and the Cholesky factor of the covariance. The estimates of a fitted logit refer to its own
reference levels. With t the matrix that maps its coefficients to part-worths relative to the first level of each
attribute (dummy coding) or to the mean of its levels (effects coding), the mean is t b and the covariance t C t'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from pcmcnet.arrays import Floats
from pcmcnet.designs.attributes import NONE, DesignAttribute, ProfileSpace
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models import MNL, ChoiceModel

_MIN_UNIFORM = 1e-6  # points of the Sobol sequence are kept away from 0 and 1


@dataclass(frozen=True, kw_only=True, eq=False)
class CoefficientPrior:
    """Normal prior of the coefficients. ``model`` is the fitted model whose probabilities are used, if any."""

    names: tuple[str, ...]
    mean: Floats  # (P,)
    covariance: Floats  # (P, P)
    model: ChoiceModel | None = None

    @property
    def is_certain(self) -> bool:
        """True if every standard deviation is 0."""
        return not self.covariance.any()

    def draws(self, number: int, seed: int) -> Floats:  # -> (R, P)
        """Return points that represent the distribution; a single point if it has no spread."""
        if self.is_certain:
            return self.mean[None]
        uncertain = np.flatnonzero(np.diag(self.covariance) > 0)
        engine = qmc.Sobol(len(uncertain), scramble=True, rng=np.random.default_rng(seed))
        uniform = engine.random_base2(math.ceil(math.log2(number)))[:number]
        normal = ndtri(np.clip(uniform, _MIN_UNIFORM, 1 - _MIN_UNIFORM))
        # an eigenvalue root also serves a covariance that is singular after the change of reference levels
        values, vectors = np.linalg.eigh(self.covariance[np.ix_(uncertain, uncertain)])
        draws = np.repeat(self.mean[None], number, axis=0)
        draws[:, uncertain] += normal @ (vectors * np.sqrt(np.maximum(values, 0))).T
        return draws


def coefficient_prior(space: ProfileSpace, prior: Any) -> CoefficientPrior:
    """Return the prior of the coefficients of a design.

    Raises
    ------
    InputError
        If a name is unknown, a value is not a number, or a fitted model does not describe the attributes.
    """
    names, n = space.names, len(space.names)
    if prior is None:
        return CoefficientPrior(names=names, mean=np.zeros(n), covariance=np.zeros((n, n)))
    if isinstance(prior, Mapping):
        return _prior_of_values(names, prior)
    if isinstance(prior, MNL):
        return _prior_of_logit(space, prior)
    if isinstance(prior, ChoiceModel):
        if prior.fitted_ is None:
            raise InputError(f"prior: {type(prior).__name__} is not fitted. Fit it first, or pass values.")
        return CoefficientPrior(names=names, mean=np.zeros(n), covariance=np.zeros((n, n)), model=prior)
    raise InputError(
        f"prior: expected a mapping from coefficients to values or (mean, standard deviation), or a fitted model; got "
        f"a {type(prior).__name__}."
    )


def _prior_of_values(names: tuple[str, ...], prior: Mapping[str, Any]) -> CoefficientPrior:
    mean, deviations = np.zeros(len(names)), np.zeros(len(names))
    for name, value in prior.items():
        if name not in names:
            raise InputError(f"prior: unknown coefficient {name!r}." + did_you_mean(name, names))
        pair = value if isinstance(value, tuple | list) else (value, 0.0)
        try:
            number, deviation = (float(part) for part in pair)
        except (TypeError, ValueError):
            number = deviation = math.nan
        if not (math.isfinite(number) and 0 <= deviation < math.inf):
            raise InputError(
                f"prior, coefficient {name!r}: expected a number, or a mean and a standard deviation of at least 0; "
                f"got {value!r}."
            )
        mean[names.index(name)], deviations[names.index(name)] = number, deviation
    return CoefficientPrior(names=names, mean=mean, covariance=np.diag(deviations**2))


def _prior_of_logit(space: ProfileSpace, model: MNL) -> CoefficientPrior:
    """Return the estimates of a logit and their covariance, relative to the reference levels of the design."""
    estimates = model.estimates_
    transform = np.zeros((len(space.names), len(estimates.names)))
    row = 0
    for attribute in space.attributes:
        n = len(attribute.names)
        transform[row : row + n] = _from_estimates(space, attribute, estimates.names)
        row += n
    if space.none:
        name = next((name for name in (NONE, f"constant[{NONE}]") if name in estimates.names), None)
        if name is None:
            raise InputError(
                f"prior: the fitted logit has no constant of {NONE!r}: read its table with outside={NONE!r}, or design "
                "without none=True."
            )
        transform[row, estimates.names.index(name)] = 1
    return CoefficientPrior(
        names=space.names,
        mean=transform @ estimates.values,
        covariance=transform @ estimates.covariance() @ transform.T,
    )


def _from_estimates(space: ProfileSpace, attribute: DesignAttribute, names: tuple[str, ...]) -> Floats:
    """Return the matrix that maps the estimates of a logit to the coefficients of an attribute."""
    if not attribute.is_categorical:
        if attribute.name not in names:
            raise InputError(
                f"prior: the fitted logit has no coefficient of the attribute {attribute.name!r}. Its coefficients are "
                f"{', '.join(names)}. Fit it with the formula '.', or pass values."
            )
        return np.eye(len(names))[[names.index(attribute.name)]]
    # part-worths (L, names) of all levels; the reference level of the fit has part-worth 0
    worth = np.zeros((len(attribute.levels), len(names)))
    missing = []
    for number, level in enumerate(attribute.levels):
        if (name := f"{attribute.name}[{level}]") in names:
            worth[number, names.index(name)] = 1
        else:
            missing.append(str(level))
    if len(missing) > 1:
        raise InputError(
            f"prior: the fitted logit has no coefficient of levels {', '.join(missing)} of the attribute "
            f"{attribute.name!r}; only its reference level may be missing. Fit it with min_chosen=0, or pass values."
        )
    base = worth[0] if space.coding == "dummy" else worth.mean(axis=0)
    relative: Floats = (worth - base)[1:]
    return relative
