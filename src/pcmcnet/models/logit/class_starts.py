"""Starting points of a mixture of mixed logits with several latent classes.

The first start is near the latent class logit, whose classes get small spreads. The second divides the mixed logit with
one class: the locations of the classes differ by about a spread, and the spreads are smaller. The others are random
points around these two.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import TrainingError
from pcmcnet.models.logit.latent_class_likelihood import ClassSearch, MixtureData
from pcmcnet.models.logit.mixed_likelihood import SimulatedSearch
from pcmcnet.models.logit.mixing_classes import MixingClasses
from pcmcnet.models.logit.parameter_bounds import Parameters

log = logging.getLogger("pcmcnet")

_PRIOR = 0.1  # precision of the prior of the latent class logit, which keeps its coefficients moderate
_CLASS_STARTS, _EM_STEPS = 5, 50  # of the latent class logit
_MOVE, _SHRINK = 0.8, 0.7  # to divide a class: moves of locations, in spreads; factor of spreads


@dataclass(frozen=True, kw_only=True)
class ClassStarts:
    """Starting points, computed from the latent class logit and from the mixed logit with one class."""

    classes: MixingClasses
    within: Parameters
    scale: Floats  # (P,) change of each parameter that changes a utility by about 1
    size: Floats  # (K,) change of the coefficient of each column that changes a utility by about 1
    named: Sequence[bool]  # (P,) parameters with a starting value in the options
    data: MixtureData  # of the latent class logit
    one_class: SimulatedSearch  # of the mixed logit with one class

    def points(self, number: int, seed: int) -> Floats:  # -> (A, P)
        """Return the starting points."""
        rng = np.random.default_rng(seed)
        candidates = [self._near_latent_classes(seed), self._divided(rng) if number > 1 else None]
        centres = [centre for centre in candidates if centre is not None] or [self.within.start]
        points = list(centres)
        for k in range(number - len(points)):
            noise = rng.standard_normal(len(self.scale))
            points.append(self.classes.inside_shares(around(centres[k % len(centres)], noise, self.scale)))
        return self.within.clip(np.where(self.named, self.within.start, np.stack(points)))

    def _near_latent_classes(self, seed: int) -> Floats | None:
        """Return the latent class logit with small spreads, or None if it has no maximum."""
        search = ClassSearch(
            problem=self.data,
            few=self.data,
            prior=_PRIOR,
            starts=_CLASS_STARTS,
            em_steps=_EM_STEPS,
            max_iter=self.one_class.max_iter,
            seed=seed,
            within=lambda _: self._latent_class_parameters(),
            ordered=False,
        )
        try:
            b, g = search.of(self.classes.number).by_share()
        except TrainingError as error:
            log.info("no start near the latent class logit: %s", error)
            return None
        mixing = self.classes.distributions[0]
        return self.classes.start(np.stack([mixing.start(row, self.size) for row in b]), g)

    def _latent_class_parameters(self) -> Parameters:
        """Return the coefficients and membership coefficients, with constraints that apply to a latent class logit.

        The location of a nonlinear distribution is not a coefficient, and in WTP space only zeros are coefficients.
        """
        classes, within, mixing = self.classes, self.within, self.classes.distributions[0]
        width, tail = len(classes.class_names), classes.number * len(classes.class_names)
        locations = [c * width + k for c in range(classes.number) for k in range(mixing.located)]
        at = np.array([*locations, *range(tail, len(within.names))], np.int64)
        low, high = within.low[at].copy(), within.high[at].copy()
        equal_to = at if within.same_as is None else within.same_as[at].copy()
        nonlinear = {r.column for r in mixing.random if not r.distribution.is_linear}
        for k, p in enumerate(locations):
            is_zero = low[k] == high[k] == 0
            if p % width in nonlinear or (mixing.cost is not None and not is_zero):
                low[k], high[k], equal_to[k] = -np.inf, np.inf, p
        _, first, group = np.unique(equal_to, return_index=True, return_inverse=True)
        same_as = None if len(first) == len(at) else first[group]
        names = tuple(within.names[k] for k in at)
        return Parameters(names, np.full(len(at), np.nan), low, high, same_as)

    def _divided(self, rng: np.random.Generator) -> Floats | None:
        """Return the mixed logit with one class, divided at random, or None if it has no maximum."""
        try:
            one = self.one_class.rough_maximum(self.one_class.within.start)
        except TrainingError as error:
            log.info("no start near the mixed logit with one class: %s", error)
            return None
        # 1. Move the locations of the classes apart: random coefficients by spreads, others by their scales.
        mixing, C = self.classes.distributions[0], self.classes.number
        theta = np.tile(one[: len(mixing.names)], (C, 1))
        moves = 0.5 * self.scale[: mixing.located]
        spreads = np.abs(np.diag(mixing.triangle(theta[0])))
        for d, r in enumerate(mixing.random):
            if r.column < mixing.located and r.distribution.has_spread:
                moves[r.column] = _MOVE * max(spreads[d], 0.5 * self.scale[r.column])
        signs = rng.standard_normal((C, mixing.located))
        theta[:, : mixing.located] += (signs - signs.mean(axis=0)) * moves
        # 2. Their spreads become smaller, since the classes differ; the shares of zeros do not change.
        theta[:, mixing.spreads] *= _SHRINK
        x = self.classes.start(theta)
        for c in range(C):
            end = (c + 1) * len(self.classes.class_names)
            x[end - len(self.classes.inflated) : end] = one[len(mixing.names) :]
        return self.classes.inside_shares(x)


def around(centre: Floats, noise: Floats, scale: Floats) -> Floats:  # (P,), (..., P), (P,) -> (..., P)
    """Return points around a centre, given standard normal noise."""
    return np.asarray(centre + noise * np.maximum(0.5 * np.abs(centre), 0.5 * scale))


def column_scales(columns: Floats) -> Floats:  # (N, G) -> (G,)
    """Return the standard deviations of the covariates of class shares, or 1 for dummies and constants."""
    deviation = columns.std(axis=0)
    is_dummy = ((columns == 0) | (columns == 1)).all(axis=0)
    return np.where(is_dummy | (deviation == 0), 1.0, deviation)
