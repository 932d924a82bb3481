"""A small chain with context effects: a logit whose rates also depend on comparisons of two alternatives.

The rate of leaving alternative i for j is

    log q_ij = b . x_j + sum_m g_m h_m(i, j).

With g = 0 the chain is the logit with the coefficients b. The terms h_m compare profiles; with v the value of a level
from 0 (worst) to 1 (best):

    dominance   1 if j dominates i, else 0: a dominated alternative sends its choices to the one that dominates it
    dominated   1 if another alternative of the task dominates j, else 0: dominated alternatives are (dis)liked
    gain[a]     max(v_a(j) - v_a(i), 0)^2 for attribute a: large advantages count more than proportionally

The term "dominated" comes with "dominance", as one more unknown. Without it, an aversion to dominated alternatives
would pass for attraction. With it, the evidence comes from the shares of the other alternatives.

To first order, the stationary distribution p of such a chain differs from the logit by (from d p Q = -p dQ, where the
logit has Q = W (1 p' - I))

    d log p_k / d g_m = sum_i p_i (h_m(i, k) - h_m(k, i)).

So only the antisymmetric part of h matters, and a part of the form f(k) - f(i) is a change of the utility. The
information about g is therefore what remains if b is estimated, too: the Schur complement. ``dominance`` is the
attraction effect: a decoy c raises log P(a) - log P(b) by g p_c, to first order, if a dominates c and b does not.

At any g, p and its gradient follow from Q + E, with E a matrix of ones, which is nonsingular (Q is irreducible):

    p = 1' (Q + E)^-1,    dp = -(p dQ) (Q + E)^-1.

Shapes: levels (N, J, K); terms h (N, J, J, G); log-rates (..., J, J) -> p (..., J), dp / p (..., J, P).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.designs.attributes import Directions, ProfileSpace
from pcmcnet.designs.information import Scores, logit_scores, softmax
from pcmcnet.errors import ConfigError, did_you_mean

DOMINANCE, GAIN, DOMINATED = "dominance", "gain", "dominated"
MIN_LOG_RATE = -25.0  # relative to the largest rate of a task, so that Q + E is far from singular
MIN_PROBABILITY = 1e-12  # smaller ones are rounding errors of the inverse
MIN_GAIN_LEVELS = 3  # with two levels, a squared gain is proportional to the gain, which is a change of the utility


@dataclass(frozen=True, eq=False)
class ContextTerms:
    """Terms of the log-rates, by name: "dominated", "dominance", or "gain[price]" for an attribute.

    ``values`` (G,) are the values at which a design is optimised.
    """

    space: ProfileSpace
    directions: Directions
    names: tuple[str, ...]
    values: Floats

    @property
    def n_nuisance(self) -> int:
        """Number of leading terms that are nuisance parameters: 1 if there is the term "dominated", else 0."""
        return int(DOMINATED in self.names)

    def __call__(self, levels: Ints) -> Floats:  # (N, J, K) -> (N, J or J + 1, J or J + 1, G)
        """Return the terms h(i, j) of each ordered pair of alternatives. Those of the alternative "none" are 0."""
        n, J = levels.shape[0], levels.shape[1]
        size = J + int(self.space.none)
        terms = np.zeros((n, size, size, len(self.names)))
        for m, name in enumerate(self.names):
            if name == DOMINATED:
                terms[:, :, :J, m] = np.expand_dims(self.directions.dominates(levels).any(axis=-2), 1)
            elif name == DOMINANCE:
                terms[:, :J, :J, m] = self.directions.dominates(levels).swapaxes(-1, -2)
            else:
                k = self.space.position(name.removeprefix(f"{GAIN}[").removesuffix("]"), "effects")
                values = self.directions.values[k]
                assert values is not None
                v = values[levels[..., k]]
                terms[:, :J, :J, m] = np.maximum(v[:, None, :] - v[:, :, None], 0) ** 2
        return terms


def context_terms(
    space: ProfileSpace, directions: Directions, effects: Sequence[str] | Mapping[str, float]
) -> ContextTerms:
    """Return the terms of context effects; "gain" stands for the gains in all attributes that allow them.

    The term "dominated" is added to "dominance", as the first one.

    Raises
    ------
    ConfigError
        If an effect is unknown, or if an attribute has no direction.
    """
    candidates = [
        f"{GAIN}[{attribute.name}]"
        for k, attribute in enumerate(space.attributes)
        if len(attribute.levels) >= MIN_GAIN_LEVELS and directions.values[k] is not None
    ]
    known = [DOMINANCE, *([DOMINATED] if DOMINANCE in effects else []), *candidates]
    if not directions.positions:
        raise ConfigError(
            "context effects need the direction of an attribute: pass signs, as in signs={'price': '-'}, or a prior."
        )
    given = effects if isinstance(effects, Mapping) else dict.fromkeys(effects, 0.0)
    values: dict[str, float] = {DOMINATED: 0.0} if DOMINANCE in given else {}
    for effect, value in given.items():
        require_number(f"effect {effect!r}", value)
        if effect == GAIN:
            values |= dict.fromkeys(candidates, value)
        elif effect in known:
            values[effect] = value
        else:
            raise ConfigError(
                f"unknown context effect {effect!r}.{did_you_mean(effect, [*known, GAIN])} A gain needs an attribute "
                f"with a direction and at least {MIN_GAIN_LEVELS} levels."
            )
    if not values:
        raise ConfigError(
            f"effects: expected at least one context effect, got none: {GAIN!r} needs an attribute with a direction "
            f"and at least {MIN_GAIN_LEVELS} levels. Pass effects=['{DOMINANCE}']."
        )
    return ContextTerms(space, directions, tuple(values), np.array(list(values.values()), dtype=np.float64))


def chain_probabilities(
    x: Floats, terms: Floats, coefficients: Floats, effects: Floats
) -> tuple[Floats, Floats]:  # (T, J, P), (T, J, J, G), (R, P), (R, G) -> (R, T, J), (R, T, J, P + G)
    """Return the choice probabilities of chains, and the gradients of their logarithms."""
    # 1. Rates in units of the largest one of each task: the distribution does not depend on their scale.
    log_rates = (x @ coefficients.T).transpose(2, 0, 1)[:, :, None, :] + np.moveaxis(terms @ effects.T, -1, 0)
    J = x.shape[1]
    apart = ~np.eye(J, dtype=np.bool_)
    top = np.where(apart, log_rates, -np.inf).max(axis=(-1, -2), keepdims=True)
    q = np.exp(np.maximum(log_rates - top, MIN_LOG_RATE)) * apart  # (R, T, J, J)
    # 2. The stationary distribution, by the inverse of Q + E.
    inverse = np.linalg.inv(q - q.sum(axis=-1)[..., None] * np.eye(J) + 1)
    p = np.maximum(inverse.sum(axis=-2), MIN_PROBABILITY)
    # 3. Its gradient: (p dQ)_k is the change of the flow into k less the change of the flow out of k.
    flow = p[..., :, None] * q  # (R, T, J, J): from i to j
    by_coefficient = flow.sum(axis=-2)[..., None] * x - flow @ x
    by_effect = np.einsum("rtik,tikg->rtkg", flow, terms) - np.einsum("rtkj,tkjg->rtkg", flow, terms)
    change = np.concatenate([by_coefficient, by_effect], axis=-1)
    gradient = -(inverse.swapaxes(-1, -2) @ change) / p[..., None]
    return p, gradient


@dataclass(frozen=True, eq=False)
class ContextScores:
    """Scores of the chain for each draw (R, P) of its coefficients: of a logit if the context effects are 0."""

    terms: ContextTerms
    draws: Floats
    coefficient_scales: Floats

    @property
    def scales(self) -> Floats:
        """Units of the parameters, (P + G,). Those of context effects are 1."""
        return np.concatenate([self.coefficient_scales, np.ones(len(self.terms.names))])

    def __call__(self, levels: Ints) -> Scores:
        """Return the scores of tasks."""
        x = self.terms.space.encode(levels) / self.coefficient_scales
        if self.terms.values.any():
            effects = np.broadcast_to(self.terms.values, (len(self.draws), len(self.terms.values)))
            chain, gradients = chain_probabilities(x, self.terms(levels), self.draws * self.coefficient_scales, effects)
            exact: Scores = (np.sqrt(chain)[..., None] * gradients).swapaxes(0, 1)
            return exact
        p = softmax((x @ (self.draws * self.coefficient_scales).T).swapaxes(1, 2))  # (N, R, J)
        h = self.terms(levels)
        departure = np.einsum("nri,nikg->nrkg", p, h - h.swapaxes(1, 2))
        return np.concatenate([logit_scores(x, p), np.sqrt(p)[..., None] * departure], axis=-1)
