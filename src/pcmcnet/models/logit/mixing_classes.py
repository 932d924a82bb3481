"""Mixtures of mixing distributions: latent classes with random coefficients, and coefficients with a mass at 0.

A person with covariates h belongs to class c with the share

    pi_c = exp(g_c . h) / sum_d exp(g_d . h)        g_1 = 0

and each class has its own mixing distribution (``random_coefficients.py``), with parameters theta_c. A zero-inflated
coefficient k of class c is 0 for a share q_ck of its people, independently of the other coefficients. A member m of the
mixture is a class with a set Z of coefficients that are 0. It has the share

    pi_c prod_{k in Z} q_ck prod_{k not in Z} (1 - q_ck)

The sum over members is exact, so the likelihood is smooth in the shares; only the likelihood within a member is
simulated. With one class and no zero-inflated coefficient, this is the mixed logit.

Parameters (P,): theta_1, q_1, theta_2, q_2, ..., then g_2, g_3, ...

Shapes: N persons or choice sets, G covariates of the class shares (the first of them 1), C classes, Z zero-inflated
coefficients, M = C 2^Z members, R draws of each member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.errors import ConfigError
from pcmcnet.models.logit.draws import CoefficientDraws, PersonDraws, Population
from pcmcnet.models.logit.latent_class_likelihood import covariance, log_shares
from pcmcnet.models.logit.parameter_bounds import Bounds
from pcmcnet.models.logit.random_coefficients import MixingDistribution

MAX_ZERO_INFLATED = 4  # the number of members doubles with each zero-inflated coefficient
_MIN_SHARE = 1e-8  # smallest share in a logarithm, which is then finite
START_SHARE = 0.2  # share of people with a coefficient of 0 at the start
_START_SHARES = 0.05, 0.8  # range of these shares in random starts
SHARE_BOUNDS: Bounds = (0.0, 1.0)


class MixtureMember(NamedTuple):
    """A class with some coefficients that are 0."""

    number: int  # of the class, from 0
    is_zero: tuple[bool, ...]  # (Z,)
    mixing: MixingDistribution
    parameters: Ints  # indices of theta_c


@dataclass(frozen=True)
class MixingClasses:
    """The mixing distributions of the latent classes, with the names of all parameters."""

    distributions: tuple[MixingDistribution, ...]  # (C,), which differ at most in their mirrored draws
    covariates: tuple[str, ...] = ("constant",)  # (G,) names of the covariates of the class shares

    def __post_init__(self) -> None:
        if len(self.inflated) > MAX_ZERO_INFLATED:
            raise ConfigError(
                f"random: expected at most {MAX_ZERO_INFLATED} zero-inflated coefficients, got {len(self.inflated)}."
            )

    @property
    def number(self) -> int:
        """Number C of classes."""
        return len(self.distributions)

    @cached_property
    def inflated(self) -> tuple[int, ...]:
        """Indices (Z,) of the random coefficients that are 0 for a share of the people."""
        return tuple(d for d, r in enumerate(self.distributions[0].random) if r.distribution.zero_inflated)

    @property
    def is_mixture(self) -> bool:
        """Whether the mixture has several members."""
        return self.number > 1 or bool(self.inflated)

    @cached_property
    def zero_names(self) -> tuple[str, ...]:
        """Names (Z,) of the shares of people whose coefficient is 0, within a class."""
        mixing = self.distributions[0]
        return tuple(f"zero[{mixing.labels[mixing.random[d].column]}]" for d in self.inflated)

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """Names of the parameters of one class, without its number."""
        return (*self.distributions[0].names, *self.zero_names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names (P,) of all parameters."""
        if self.number == 1:
            return self.class_names
        numbers = range(1, self.number + 1)
        of_classes = [f"class {c}: {name}" for c in numbers for name in self.class_names]
        return (*of_classes, *(f"membership {c}: {name}" for c in numbers[1:] for name in self.covariates))

    @cached_property
    def columns_of_class(self) -> Ints:
        """Column of the utility of each parameter of a class."""
        mixing = self.distributions[0]
        return np.concatenate([mixing.column, [mixing.random[d].column for d in self.inflated]]).astype(np.int64)

    @cached_property
    def members(self) -> tuple[MixtureMember, ...]:
        """All members (M,), ordered by class."""
        members, width = [], len(self.class_names)
        for c, mixing in enumerate(self.distributions):
            parameters = np.arange(c * width, c * width + len(mixing.names))
            for is_zero in product((False, True), repeat=len(self.inflated)):
                zeros = tuple(d for d, zero in zip(self.inflated, is_zero, strict=True) if zero)
                members.append(MixtureMember(c, is_zero, replace(mixing, zeros=zeros), parameters))
        return tuple(members)

    def theta(self, x: Floats, number: int = 0) -> Floats:  # (P,) -> (P0,)
        """Return the parameters of the mixing distribution of a class."""
        first = number * len(self.class_names)
        return x[first : first + len(self.distributions[0].names)]

    def zero_shares(self, x: Floats) -> Floats:  # (P,) -> (C, Z)
        """Return the shares q of people whose coefficient is 0."""
        by_class = x[: self.number * len(self.class_names)].reshape(self.number, -1)
        return np.asarray(by_class[:, len(self.distributions[0].names) :])

    def membership(self, x: Floats) -> Floats:  # (P,) -> (C, G)
        """Return the membership coefficients, which are 0 for the first class."""
        G = len(self.covariates)
        g = x[self.number * len(self.class_names) :].reshape(self.number - 1, G)
        return np.concatenate([np.zeros((1, G)), g])

    def log_class_shares(self, x: Floats, h: Floats) -> Floats:  # (P,), (N, G) -> (N, C)
        """Return the logarithms of the class shares pi."""
        return log_shares(h, self.membership(x))

    def log_member_shares(self, x: Floats, h: Floats) -> Floats:  # (P,), (N, G) -> (N, M)
        """Return the logarithms of the shares of the members."""
        q = self.zero_shares(x).clip(_MIN_SHARE, 1 - _MIN_SHARE)
        of_zeros = [np.where(m.is_zero, np.log(q[m.number]), np.log1p(-q[m.number])).sum() for m in self.members]
        of_class = self.log_class_shares(x, h)[:, [m.number for m in self.members]]
        return np.asarray(of_class + np.array(of_zeros))

    def share_scores(self, x: Floats, h: Floats) -> Iterator[Floats]:  # (P,), (N, G) -> M x (N, P)
        """Yield the derivatives of the logarithm of each member's share.

        With D a dummy variable of the class, d log pi_c / d g_d = (D_cd - pi_d) h, and d log q / d q = 1 / q.
        """
        q, pi = self.zero_shares(x).clip(_MIN_SHARE, 1 - _MIN_SHARE), np.exp(self.log_class_shares(x, h))
        width, tail = len(self.class_names), self.number * len(self.class_names)
        for member in self.members:
            c, out = member.number, np.zeros((len(h), len(x)))
            ends = (c + 1) * width
            out[:, ends - len(self.inflated) : ends] = np.where(member.is_zero, 1 / q[c], -1 / (1 - q[c]))
            of_class = (np.arange(1, self.number) == c) - pi[:, 1:]
            out[:, tail:] = (of_class[:, :, None] * h[:, None, :]).reshape(len(h), -1)
            yield out

    def share_curvature(self, x: Floats, h: Floats, r: Floats, weights: Floats) -> Floats:  # ..., (N, M), (N,)
        """Return the sum over persons and members of w r_m times the Hessian (P, P) of the log of the share."""
        q, pi = self.zero_shares(x).clip(_MIN_SHARE, 1 - _MIN_SHARE), np.exp(self.log_class_shares(x, h))
        width, tail, mass = len(self.class_names), self.number * len(self.class_names), weights @ r
        out = np.zeros((len(x), len(x)))
        for m, member in enumerate(self.members):
            ends = (member.number + 1) * width
            at, share = np.arange(ends - len(self.inflated), ends), q[member.number]
            out[at, at] -= mass[m] * np.where(member.is_zero, share**-2.0, (1 - share) ** -2.0)
        out[tail:, tail:] = -covariance([h] * (self.number - 1), pi[:, 1:], weights)
        return out

    def start(self, theta: Floats, g: Floats | None = None) -> Floats:  # (C, P0), (C, G) -> (P,)
        """Return all parameters from the mixing distributions and g. Without g, the class shares are equal."""
        of_classes = np.hstack([theta, np.full((self.number, len(self.inflated)), START_SHARE)]).ravel()
        g = np.zeros((self.number, len(self.covariates))) if g is None else g
        return np.concatenate([of_classes, (g[1:] - g[:1]).ravel()])

    def inside_shares(self, x: Floats) -> Floats:  # (..., P) -> (..., P)
        """Return parameters with the shares of zeros moved away from 0 and 1, where the likelihood is flat."""
        out, width, end = x.copy(), len(self.class_names), len(self.class_names)
        for ends in range(end, self.number * width + 1, width):
            at = slice(ends - len(self.inflated), ends)
            out[..., at] = out[..., at].clip(*_START_SHARES)
        return out

    def scale(self, theta: Floats, covariates: Floats) -> Floats:  # (P0,), (G,) -> (P,)
        """Return the change in each parameter that changes a utility by about 1.

        ``theta`` contains this change for the parameters of the mixing distribution of a class. ``covariates`` contains
        the scales of the covariates.
        """
        of_class = np.concatenate([theta, np.ones(len(self.inflated))])
        return np.concatenate([np.tile(of_class, self.number), np.tile(1 / covariates, self.number - 1)])

    def one_class(self) -> MixingClasses:
        """Return the same distribution with a single class."""
        return MixingClasses(self.distributions[:1])

    def order(self, x: Floats, h: Floats, weights: Floats, *, is_named: bool) -> list[int]:  # (P,), (N, G), (N,)
        """Return the classes in the order of their shares, or as they are if options name one of them."""
        if is_named:
            return list(range(self.number))
        shares = weights @ np.exp(self.log_class_shares(x, h))
        return [int(c) for c in np.argsort(-shares, kind="stable")]

    def normalise(self, x: Floats, order: Sequence[int]) -> tuple[MixingClasses, Floats]:
        """Return the classes in the given order and with positive spreads, with the matrix A (P, P) of x' = A x.

        Mirrored draws make the spreads positive.
        """
        # 1. Permute the classes, and mirror the draws of each. A flipped sign is a factor of -1.
        width, tail, G = len(self.class_names), self.number * len(self.class_names), len(self.covariates)
        matrix, distributions = np.zeros((len(x), len(x))), []
        for to, c in enumerate(order):
            theta = self.theta(x, c)
            mixing, mirrored = self.distributions[c].mirrored(theta)
            signs = np.ones(width)
            signs[: len(theta)] = np.where(mirrored == theta, 1.0, -1.0)
            matrix[to * width : (to + 1) * width, c * width : (c + 1) * width] = np.diag(signs)
            distributions.append(mixing)
        # 2. Membership coefficients are differences from those of the class that is now the first.
        for to, c in enumerate(order[1:]):
            rows = slice(tail + to * G, tail + (to + 1) * G)
            for number, sign in ((c, 1.0), (order[0], -1.0)):
                if number > 0:
                    matrix[rows, tail + (number - 1) * G : tail + number * G] += sign * np.eye(G)
        return replace(self, distributions=tuple(distributions)), matrix


# -- Population --------------------------------------------------------------------------------------------------------
# The draws of all members, one after the other. Those of member m have the weight of the member divided by R. The
# covariates of an individual are those of the means, then those of the class shares without the constant.


@dataclass(frozen=True)
class MixturePopulation(CoefficientDraws):
    """The distribution of coefficients over people in a mixture of mixed logits, represented by weighted draws."""

    mixing: MixingClasses
    x: Floats  # (P,) parameters
    draws: PersonDraws

    @property
    def number(self) -> int:
        """Number of draws of all members together."""
        return self.draws.number * len(self.mixing.members)

    def _populations(self) -> list[Population]:
        """Return the population of each member."""
        return [Population(m.mixing, self.x[m.parameters], self.draws) for m in self.mixing.members]

    def coefficients(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, M R)
        """Return the coefficients of the utility's columns, for individuals with covariates h."""
        return torch.cat([population.coefficients(h) for population in self._populations()], dim=2)

    def in_wtp_space(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, M R)
        """Return the coefficients or, in WTP space, the cost coefficient and the willingness to pay."""
        return torch.cat([population.in_wtp_space(h) for population in self._populations()], dim=2)

    def weights(self, h: Floats) -> Floats:  # (N, G) -> (N, M R)
        """Return the weights of the draws, for individuals with covariates h."""
        shares = np.exp(self.mixing.log_member_shares(self.x, with_constant(h, len(self.mixing.covariates))))
        return np.repeat(shares / self.draws.number, self.draws.number, axis=1)

    def sample(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return draws of the coefficients with equal weights."""
        return self._equally_weighted(self.coefficients(h), h)

    def sample_in_wtp_space(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return draws with equal weights, in WTP space if there is a cost."""
        return self._equally_weighted(self.in_wtp_space(h), h)

    def _equally_weighted(self, values: Tensor, h: Floats) -> Tensor:  # (N, K, M R) -> (N, K, R)
        """Return the first draws of each member, in numbers proportional to its share."""
        R, weights = self.draws.number, self.weights(h)
        ends = np.rint(np.cumsum(weights.reshape(len(h), -1, R).sum(2), axis=1) * R).astype(np.int64)
        ends[:, -1] = R
        counts = np.diff(ends, axis=1, prepend=0)
        is_kept = np.arange(R) < counts[:, :, None]  # (N, M, R)
        draws = [values[n][:, torch.from_numpy(keep.ravel())] for n, keep in enumerate(is_kept)]
        return torch.stack(draws)


def with_constant(h: Floats, width: int) -> Floats:  # (N, G') -> (N, G)
    """Return a constant, then the last ``width`` - 1 columns, which are the covariates of the class shares."""
    return np.hstack([np.ones((len(h), 1)), h[:, h.shape[1] - width + 1 :]])
