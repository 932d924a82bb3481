"""Sampler of the hierarchical logit: part-worths of persons, and the population that they come from.

    b_n ~ N(D z_n, S)        D (K, G): effects of the covariates z_n, the first of which is 1        S (K, K)

Prior of D given S: matrix normal with mean 0, row covariance S and column covariance I / 0.01. Prior of S:

    half-t            S | a ~ IW(nu + K - 1, 2 nu diag(1 / a)), a_k ~ IG(1 / 2, 1 / A^2), nu = 2 (Huang & Wand, 2013):
                      every standard deviation is half-t with scale A, every correlation uniform on (-1, 1)
    inverse-wishart   S ~ IW(K + 3, (K + 3) I)

Part-worths are in units in which the columns of the utility have differences of about 1. One sweep has three steps, for
all chains together:

    1. u_n given D and S      one Metropolis step for every person (``person_posterior.py``)
    2. D and S given u        one trajectory of Hamiltonian Monte Carlo for all parameters of the population. The
                              part-worths b_n move with the population, as u_n keeps its value.
    3. D and S given b        Gibbs step: inverse Wishart and matrix normal

Step 3 alone mixes slowly if persons make few choices, since part-worths then contain little information about the
population beyond its current value. In step 2, u is nearly independent of the population, so the population moves
almost as if the part-worths were integrated out (interweaving: Yu & Meng, 2011). Let phi = (D, logarithm of the
diagonal of L, rest of L), with S = L L', and phi = c + V^(1/2) x. c is the mean of earlier draws, and V the inverse of
their mean Fisher information in the approximate model h_n ~ N(H_n D z_n, H_n + H_n S H_n), so x is approximately
standard normal. A trajectory starts with a standard normal velocity v. Each of its steps of length t turns (x, v) by
the angle t / 2, adds t (gradient of the log-density in x + x) to v, and turns (x, v) by t / 2 again. The turns are
exact for a standard normal density, so t is limited only by what the approximation leaves out (Shahbaba, Lan, Johnson &
Neal, 2014). t is drawn between 0.5 and 1.2 times its typical value, since short steps also move chains out of regions
of high curvature.

The sizes of the steps, H, h, c and V are adapted only during the burn-in. Later draws come from a Markov chain whose
stationary distribution is the posterior.

The weight of a person is the number of persons with the same choices. Shapes: C chains, K part-worths, G covariates, N
persons on P lanes, Q parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.models.logit.person_posterior import (
    PersonChoices,
    PersonPosterior,
    PersonStates,
    Singles,
    lower_triangle,
)

CovariancePrior = Literal["half-t", "inverse-wishart"]

HALF_T_DEGREES = 2  # correlations then have a uniform distribution
HALF_T_SCALE = 5.0  # of a standard deviation, in utility per typical difference of the column
MEAN_PRECISION = 0.01  # prior precision of D, relative to S
_EM_STEPS = 12  # steps of the approximate maximum of the likelihood at which the chains start
_FIRST_SPREAD = 0.7  # standard deviation of every part-worth before these steps
_ADAPTATIONS = (0.1, 0.2, 0.35, 0.55, 0.75)  # shares of the burn-in at which the approximation is renewed
_INFORMATION_DRAWS = 8  # populations whose mean information gives V
_EXPECTATION_DRAWS = 32  # of each person's part-worths, over all chains, for expected derivatives
_PERSON_TARGET, _POPULATION_TARGET = 0.5, 0.8  # acceptance rates
_MIN_STEP, _MAX_POPULATION_STEP = 0.05, 1.3  # the latter is an angle, in radians
_FIRST_POPULATION_STEP = 0.5  # when the approximation has been renewed
_STEP_RANGE = 0.5, 1.2  # of the length of a step, relative to its typical value
_MAX_LEAPS = 8  # steps of a trajectory
_MAX_PUSH = 3.0  # root mean square of a push; it would be larger where the approximation fails
_MAX_LOG_DIAGONAL = 40.0  # of the factor of a covariance: exp() of much larger ones overflows
_TRAJECTORY = 3.6  # length of a trajectory, in radians: 4 or 5 steps at the usual acceptance rate
_MAX_MOVED = 30  # with more part-worths, the information matrix of step 2 takes too long, and step 2 is left out
_PRIOR_INFORMATION = 0.25  # about an entry of the factor of the covariance: proposals stay within about 2
_MIN_CURVATURE = 1e-6  # eigenvalue of an information matrix with a diagonal of 1
_CHECK_EVERY = 25  # sweeps between calls of ``on_progress``


# -- Prior of the population -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PopulationPrior:
    """Prior of the covariance of part-worths, and of their means."""

    kind: CovariancePrior
    K: int

    @property
    def degrees(self) -> int:
        """Degrees of freedom of the inverse Wishart distribution, given the auxiliary variables."""
        return HALF_T_DEGREES + self.K - 1 if self.kind == "half-t" else self.K + 3

    def draw_scale(self, precision: Floats, rng: np.random.Generator) -> Floats:  # (C, K, K) -> (C, K)
        """Return the diagonal of the scale matrix of the inverse Wishart distribution, given the covariance."""
        if self.kind == "inverse-wishart":
            return np.full(precision.shape[:2], float(self.degrees))
        rate = HALF_T_DEGREES * np.diagonal(precision, axis1=1, axis2=2) + HALF_T_SCALE**-2
        scale: Floats = 2 * HALF_T_DEGREES * rng.standard_gamma((HALF_T_DEGREES + self.K) / 2, rate.shape) / rate
        return scale

    def log_density(self, coefficients: Floats, log_diagonal: Floats, precision: Floats) -> Floats:  # -> (C,)
        """Return the log-density of phi, up to a constant. ``log_diagonal`` (C, K) belongs to the factor L of S."""
        K, G = coefficients.shape[1:]
        diagonal = np.diagonal(precision, axis1=1, axis2=2)
        # 1. The covariance, and the Jacobian of S in phi.
        if self.kind == "half-t":
            logs = np.log(HALF_T_DEGREES * diagonal + HALF_T_SCALE**-2)
            density = -(HALF_T_DEGREES + 2 * K) * log_diagonal.sum(1) - (HALF_T_DEGREES + K) / 2 * logs.sum(1)
        else:
            density = -(self.degrees + K + 1) * log_diagonal.sum(1) - self.degrees / 2 * diagonal.sum(1)
        density = density + ((K + 1 - np.arange(K)) * log_diagonal).sum(1)
        # 2. The means given the covariance.
        square = np.einsum("ckg,ckl,clg->c", coefficients, precision, coefficients)
        total: Floats = density - MEAN_PRECISION / 2 * square - G * log_diagonal.sum(1)
        return total

    def slopes(self, coefficients: Floats, precision: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the derivatives in each argument of :meth:`log_density`, with the other arguments fixed.

        Their shapes are (C, K, G), (K,) and (C, K, K).
        """
        K, G = coefficients.shape[1:]
        in_means = -MEAN_PRECISION * precision @ coefficients
        in_precision = -MEAN_PRECISION / 2 * coefficients @ coefficients.swapaxes(1, 2)
        every = np.arange(K)
        if self.kind == "half-t":
            rate = HALF_T_DEGREES * precision[:, every, every] + HALF_T_SCALE**-2
            in_precision[:, every, every] -= (HALF_T_DEGREES + K) / 2 * HALF_T_DEGREES / rate
            in_log_diagonal = K + 1 - np.arange(K) - (HALF_T_DEGREES + 2 * K) - G
        else:
            in_precision[:, every, every] -= self.degrees / 2
            in_log_diagonal = K + 1 - np.arange(K) - (self.degrees + K + 1) - G
        return in_means, in_log_diagonal.astype(np.float64), in_precision


# -- Parameters of the population --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PopulationStates:
    """Parameters of the population in C chains."""

    coefficients: Floats  # (C, K, G)
    covariance: Floats  # (C, K, K)
    precision: Floats  # (C, K, K)
    factor: Floats  # (C, K, K) lower triangular
    log_diagonal: Floats  # (C, K) of the factor

    @classmethod
    def of(cls, coefficients: Floats, covariance: Floats, factor: Floats | None = None) -> PopulationStates:
        """Return the states with the given means and covariance."""
        root: Floats = np.asarray(np.linalg.cholesky(covariance) if factor is None else factor, np.float64)
        inverse: Floats = np.asarray(np.linalg.inv(root), np.float64)
        precision = inverse.swapaxes(1, 2) @ inverse
        return cls(coefficients, covariance, precision, root, np.log(np.diagonal(root, axis1=1, axis2=2)))

    @classmethod
    def of_parameters(cls, phi: Floats, K: int, G: int) -> PopulationStates:  # (C, Q)
        """Return the states with the parameters phi."""
        rows, columns = lower_triangle(K)
        factor = np.zeros((len(phi), K, K))
        factor[:, rows, columns] = phi[:, K * G :]
        every = np.arange(K)
        factor[:, every, every] = np.exp(np.clip(factor[:, every, every], -_MAX_LOG_DIAGONAL, _MAX_LOG_DIAGONAL))
        return cls.of(phi[:, : K * G].reshape(-1, K, G), factor @ factor.swapaxes(1, 2), factor)

    @property
    def parameters(self) -> Floats:  # (C, Q)
        """The parameters phi."""
        C, K = self.log_diagonal.shape
        rows, columns = lower_triangle(K)
        triangle = self.factor[:, rows, columns]
        triangle[:, rows == columns] = self.log_diagonal
        return np.concatenate([self.coefficients.reshape(C, -1), triangle], axis=1)

    def where(self, taken: NDArray[np.bool_], other: PopulationStates) -> PopulationStates:  # (C,)
        """Return the states of ``other`` for the chains that are ``taken``."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return PopulationStates(*(np.where(taken.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in pairs))


# -- State of the chains -----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class ChainState:
    """Present values of all chains, and what the burn-in has adapted."""

    population: PopulationStates
    persons: PersonStates
    posterior: PersonPosterior
    centre: Floats  # (Q,) c
    root: Floats  # (Q, Q) V^(1/2)
    person_steps: Singles  # (P,)
    population_step: float  # typical length of a step of a trajectory, in radians

    @property
    def leaps(self) -> int:
        """Number of steps of a trajectory."""
        return min(max(round(_TRAJECTORY / self.population_step), 1), _MAX_LEAPS)


@dataclass(frozen=True, eq=False)
class HierarchicalDraws:
    """Kept draws of all chains, in the order of the sweeps."""

    coefficients: Floats  # (R, C, K, G)
    covariances: Floats  # (R, C, K, K)
    persons: Singles  # (B, C, N, K) part-worths of some of the sweeps
    accepted: Floats  # (N,) share of accepted steps of each person after the burn-in
    population_accepted: float  # share of accepted steps of the population


@dataclass(frozen=True, kw_only=True)
class SamplerSettings:
    """Number of sweeps and draws."""

    chains: int
    burn_in: int  # sweeps
    kept: int  # draws kept of each chain
    thin: int  # sweeps for each kept draw
    person_draws: int  # draws of the part-worths kept of each chain


@dataclass(frozen=True, eq=False)
class HierarchicalSampler:
    """Sampler of the posterior of part-worths and population."""

    choices: PersonChoices
    z: Floats  # (N, G) covariates, the first of which is 1
    weights: Floats  # (N,) with a sum of N
    prior: PopulationPrior
    settings: SamplerSettings

    @cached_property
    def lanes(self) -> tuple[Floats, Floats]:
        """Covariates (G, P) and weights (P,) by lane, which are 0 for padding."""
        covariates, weights = np.zeros((self.z.shape[1], self.choices.P)), np.zeros(self.choices.P)
        covariates[:, self.choices.lane] = self.z.T
        weights[self.choices.lane] = self.weights
        return covariates, weights

    @cached_property
    def single_lanes(self) -> tuple[Singles, Singles]:
        """Covariates (G, P) and weights (P,) by lane, in float32."""
        covariates, weights = self.lanes
        return covariates.astype(np.float32), weights.astype(np.float32)

    def means(self, coefficients: Floats) -> Singles:  # (..., K, G) -> (..., K, P)
        """Return the mean of the part-worths of each person."""
        return np.ascontiguousarray(coefficients.astype(np.float32) @ self.single_lanes[0])

    # -- start -----------------------------------------------------------------------------------------------------

    def start(self, rng: np.random.Generator, first: Floats) -> ChainState:  # (K,)
        """Return chains that start near the maximum of an approximate likelihood.

        ``first`` contains the first value of the mean of each part-worth.
        """
        K, G, C = self.choices.K, self.z.shape[1], self.settings.chains
        coefficients = np.column_stack([first, np.zeros((K, G - 1))])
        covariance, weights = np.eye(K) * _FIRST_SPREAD**2, self.lanes[1]
        modes = self.means(coefficients)
        for _ in range(_EM_STEPS):
            # 1. Moments of the approximate posteriors.
            mean, precision = self.means(coefficients).astype(np.float64), _inverse(covariance)
            posterior = PersonPosterior.at_modes(self.choices, mean, precision, modes)
            expected, variances = posterior.moments(mean, precision)
            modes = np.ascontiguousarray(expected.T, np.float32)
            # 2. Mean and covariance of the population, as if there were one more person for each part-worth.
            weighted = self.lanes[0] * weights
            gram = weighted @ self.lanes[0].T + MEAN_PRECISION * np.eye(G)
            coefficients = np.linalg.solve(gram, weighted @ expected).T
            residuals = expected - (coefficients @ self.lanes[0]).T
            scatter = np.einsum("p,pkl->kl", weights, variances) + (residuals * weights[:, None]).T @ residuals
            covariance = (scatter + np.eye(K) * _FIRST_SPREAD**2) / (weights.sum() + 1)
        # 3. Chains that are spread as the posterior of the population.
        states = PopulationStates.of(coefficients[None], covariance[None])
        centre = states.parameters[0]
        root = self._root(posterior, states)
        size = min(1.0, 3 / np.sqrt(len(centre)))  # far from the centre, the approximation may fail
        phi = centre + size * rng.standard_normal((C, len(centre))) @ root.T
        population = PopulationStates.of_parameters(phi, K, G)
        u = rng.standard_normal((C, K, self.choices.P), dtype=np.float32)
        persons = posterior.states(u, population.precision, self.means(population.coefficients))
        steps = np.full(self.choices.P, 0.9, np.float32)
        return ChainState(population, persons, posterior, centre, root, steps, _FIRST_POPULATION_STEP)

    def _root(self, posterior: PersonPosterior, population: PopulationStates) -> Floats:  # -> (Q, Q)
        """Return V^(1/2): V^-1 is the mean Fisher information of several populations in the approximate model.

        The information differs between populations by orders of magnitude if a standard deviation may be close to 0.
        The mean is large enough for all of them.
        """
        K, G = population.coefficients.shape[1:]
        if K > _MAX_MOVED:
            return np.zeros((K * G + K * (K + 1) // 2,) * 2)
        each = [
            self._information(posterior, *pair)
            for pair in zip(population.covariance, population.precision, population.factor, strict=True)
        ]
        of_means, of_factor = (np.mean(blocks, axis=0) for blocks in zip(*each, strict=True))
        root = np.zeros((len(of_means) + len(of_factor),) * 2)
        root[: K * G, : K * G] = _root_of_inverse(of_means)
        root[K * G :, K * G :] = _root_of_inverse(of_factor)
        return root

    def _information(
        self, posterior: PersonPosterior, covariance: Floats, precision: Floats, factor: Floats
    ) -> tuple[Floats, Floats]:  # -> (K G, K G), (K (K + 1) / 2, K (K + 1) / 2)
        """Return the Fisher information about D and about the parameters of L, given one population."""
        (on_lanes, weights), K = self.lanes, len(covariance)
        G = len(on_lanes)
        # 1. The information of one person about its mean part-worths: (S + H^-1)^-1 = S^-1 - S^-1 (H + S^-1)^-1 S^-1.
        _, variances = posterior.moments(np.zeros((K, self.choices.P)), precision)
        information = precision - precision @ variances @ precision  # (P, K, K)
        # 2. About D.
        of_means = np.einsum("pkl,gp,hp->kglh", information, on_lanes * weights, on_lanes, optimize=True)
        of_means = of_means.reshape(K * G, K * G)
        of_means += MEAN_PRECISION * np.kron(precision, np.eye(G))
        # 3. About L: tr(I dS I dS) / 2, with dS = dL L' + L dL' for each entry of L.
        rows, columns = lower_triangle(K)
        slopes = np.zeros((len(rows), K, K))
        for q, (i, j) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            slopes[q, i] = factor[:, j] * (factor[i, i] if i == j else 1.0)
        symmetric = (slopes + slopes.swapaxes(1, 2)).reshape(-1, K * K)
        flat = (information * np.sqrt(weights)[:, None, None]).reshape(-1, K * K)
        pairs = (flat.T @ flat).reshape(K, K, K, K).transpose(0, 2, 1, 3).reshape(K * K, K * K)  # of I (x) I
        return of_means, symmetric @ pairs @ symmetric.T / 2 + np.eye(len(rows)) * _PRIOR_INFORMATION

    # -- the three steps of a sweep --------------------------------------------------------------------------------

    def sweep(self, state: ChainState, rng: np.random.Generator, accepted: Singles) -> Floats:  # -> (C,)
        """Run one sweep in place, and return the acceptance probabilities of step 2."""
        posterior, population = state.posterior, state.population
        mean = self.means(population.coefficients)
        posterior.move(state.persons, population.precision, mean, state.person_steps, rng, accepted)
        moved = self._move_population(state, rng) if state.root.any() else np.zeros(len(mean))
        state.population = self._draw_population(state.persons.b, state.population.precision, rng)
        mean = self.means(state.population.coefficients)
        old = state.persons
        state.persons = posterior.states(old.u, state.population.precision, mean, b=old.b, ll=old.ll)
        return moved

    def _move_population(self, state: ChainState, rng: np.random.Generator) -> Floats:
        """Move D and S given u, by Hamiltonian Monte Carlo, and return the acceptance probabilities."""
        old, C = state.population, len(state.population.coefficients)
        K, G = old.coefficients.shape[1:]
        # 1. Present values in units of the approximation, and random velocities.
        first: Floats = np.asarray(np.linalg.solve(state.root, (old.parameters - state.centre).T).T, np.float64)
        velocity = rng.standard_normal(first.shape)
        threshold = -rng.standard_exponential(C)
        angle = state.population_step * rng.uniform(*_STEP_RANGE)
        gain = (velocity**2).sum(1) / 2
        # 2. A trajectory: rotations, which are exact for the approximation, and pushes by what it leaves out. A
        #    trajectory that leaves the range of numbers is rejected.
        position, turn = first, angle / 2
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(state.leaps):
                position, velocity = _rotated(position, velocity, turn)
                population = PopulationStates.of_parameters(state.centre + position @ state.root.T, K, G)
                push = self._slopes(population, state) @ state.root + position
                size = np.sqrt((push**2).mean(1, keepdims=True))
                velocity = velocity + angle * push / np.maximum(size / _MAX_PUSH, 1)
                turn = angle
            position, velocity = _rotated(position, velocity, angle / 2)
            # 3. Accept by the change of the total energy.
            new = PopulationStates.of_parameters(state.centre + position @ state.root.T, K, G)
            persons = state.posterior.states(state.persons.u, new.precision, self.means(new.coefficients))
            gain += self._log_density(new, persons) - self._log_density(old, state.persons)
            gain -= (velocity**2).sum(1) / 2
        taken = gain > threshold
        if taken.any():
            state.population = old.where(taken, new)
            for present, other in zip(state.persons, persons, strict=True):
                np.copyto(present, other, where=taken.reshape(-1, *[1] * (present.ndim - 1)))
        probabilities: Floats = np.nan_to_num(np.exp(np.minimum(gain, 0.0)))
        return probabilities

    def _slopes(self, population: PopulationStates, state: ChainState) -> Floats:  # -> (C, Q)
        """Return the derivatives of the log-density of the population in phi, with u fixed."""
        on_lanes, weights = self.single_lanes
        K, G = population.coefficients.shape[1:]
        mean, precision = self.means(population.coefficients), population.precision
        slopes = state.posterior.slopes(state.persons.u, precision, mean, weights)
        of_means, of_log_diagonal, of_precision = self.prior.slopes(population.coefficients, precision)
        # 1. The means.
        of_means += slopes.mean @ (on_lanes * weights).T
        # 2. The precision to the factor L: dP = -P (dL L' + L dL') P.
        of_precision += slopes.precision
        of_factor = -2 * precision @ (of_precision @ (precision @ population.factor))
        # 3. The diagonal of L to its logarithm.
        every = np.arange(K)
        diagonal = of_factor[:, every, every] * population.factor[:, every, every]
        of_factor[:, every, every] = diagonal + of_log_diagonal - self.lanes[1].sum()
        rows, columns = lower_triangle(K)
        return np.concatenate([of_means.reshape(-1, K * G), of_factor[:, rows, columns]], axis=1)

    def _log_density(self, population: PopulationStates, persons: PersonStates) -> Floats:  # -> (C,)
        """Return the log-density of the population and the choices given u, up to a constant."""
        weights = self.lanes[1]
        by_person = persons.ll + persons.prior - persons.log_determinant
        of_choices = by_person @ weights - weights.sum() * population.log_diagonal.sum(1)
        total: Floats = of_choices + self.prior.log_density(
            population.coefficients, population.log_diagonal, population.precision
        )
        return total

    def _draw_population(self, b: Singles, precision: Floats, rng: np.random.Generator) -> PopulationStates:
        """Draw D and S given the part-worths (C, K, P), with the auxiliary variables given the present precision."""
        (C, K, _), (on_lanes, weights) = b.shape, self.lanes
        G = len(on_lanes)
        # 1. Least squares of part-worths on covariates, with the prior as further observations of 0.
        values = b.astype(np.float64)
        weighted = on_lanes * weights
        gram = weighted @ on_lanes.T + MEAN_PRECISION * np.eye(G)
        products = values @ weighted.T
        means = np.asarray(np.linalg.solve(gram, products.swapaxes(1, 2)), np.float64).swapaxes(1, 2)
        scatter = (values * weights) @ values.swapaxes(1, 2) - means @ products.swapaxes(1, 2)
        # 2. The covariance: inverse Wishart, by Bartlett's decomposition of the precision.
        every = np.arange(K)
        scatter[:, every, every] += self.prior.draw_scale(precision, rng)
        degrees = self.prior.degrees + weights.sum()
        triangle = np.tril(rng.standard_normal((C, K, K)), -1)
        triangle[:, every, every] = np.sqrt(2 * rng.standard_gamma((degrees - every) / 2, (C, K)))
        half = np.linalg.solve(triangle, np.linalg.cholesky(scatter).swapaxes(1, 2))
        covariance = half.swapaxes(1, 2) @ half
        # 3. The means given the covariance.
        new = PopulationStates.of(means, covariance)
        noise = rng.standard_normal((C, K, G)) @ np.linalg.cholesky(np.linalg.inv(gram)).T
        return replace(new, coefficients=means + new.factor @ noise)

    # -- burn-in and draws -----------------------------------------------------------------------------------------

    def burn_in(self, state: ChainState, rng: np.random.Generator, on_progress: Callable[[int], None]) -> None:
        """Run the burn-in, which adapts the steps and the approximation, in place."""
        total = self.settings.burn_in
        ends = {max(int(share * total), 1) for share in _ADAPTATIONS}
        recent: list[PopulationStates] = []
        snapshots: list[Singles] = []
        renewed = 0
        for sweep in range(1, total + 1):
            # 1. A sweep, after which the sizes of the steps follow the acceptance rates.
            accepted = np.zeros(self.choices.P, np.float32)
            moved = self.sweep(state, rng, accepted)
            pace = 2.0 / (sweep - renewed + 10) ** 0.6
            rate = accepted / np.float32(self.settings.chains) - _PERSON_TARGET
            state.person_steps = np.clip(state.person_steps * np.exp(pace * rate), _MIN_STEP, 1).astype(np.float32)
            log_step = np.log(state.population_step) + pace * (float(moved.mean()) - _POPULATION_TARGET)
            state.population_step = float(np.clip(np.exp(log_step), 0.02, _MAX_POPULATION_STEP))
            # 2. Now and then, renew the approximation and the proposals with the draws since the last time.
            recent.append(state.population)
            if sweep % 8 == 0 or sweep in ends:
                snapshots = [*snapshots, state.persons.b.copy()][-max(_EXPECTATION_DRAWS // self.settings.chains, 1) :]
            if sweep in ends:
                self._adapt(state, recent, snapshots)
                recent, renewed = recent[len(recent) // 2 :], sweep
                state.population_step = max(state.population_step, _FIRST_POPULATION_STEP)
            if sweep % _CHECK_EVERY == 0:
                on_progress(sweep)

    def _adapt(self, state: ChainState, recent: list[PopulationStates], snapshots: list[Singles]) -> None:
        draws = [b for snapshot in snapshots for b in snapshot]
        state.posterior = PersonPosterior.expected(self.choices, draws)
        phi = np.concatenate([population.parameters for population in recent])
        state.centre = phi.mean(0)
        spaced = phi[np.linspace(0, len(phi) - 1, _INFORMATION_DRAWS).astype(np.int64)]
        K, G = state.population.coefficients.shape[1:]
        state.root = self._root(state.posterior, PopulationStates.of_parameters(spaced, K, G))
        mean, old = self.means(state.population.coefficients), state.persons
        state.persons = state.posterior.states(old.u, state.population.precision, mean, b=old.b, ll=old.ll)

    def draw(
        self,
        state: ChainState,
        rng: np.random.Generator,
        kept: DrawStore,
        on_progress: Callable[[int], None],
    ) -> HierarchicalDraws:
        """Sample after the burn-in, until ``kept`` is full."""
        settings = self.settings
        sweeps = settings.kept * settings.thin
        while kept.sweeps < sweeps:
            kept.population_accepted += float(self.sweep(state, rng, kept.accepted).mean())
            kept.sweeps += 1
            if kept.sweeps % settings.thin == 0:
                kept.keep(state, kept.sweeps // settings.thin - 1, settings, self.choices.lane)
            if kept.sweeps % _CHECK_EVERY == 0:
                on_progress(settings.burn_in + kept.sweeps)
        lane, steps = self.choices.lane, settings.chains * sweeps
        return HierarchicalDraws(
            kept.coefficients,
            kept.covariances,
            kept.persons,
            kept.accepted[lane].astype(np.float64) / steps,
            kept.population_accepted / sweeps,
        )


@dataclass(eq=False)
class DrawStore:
    """Memory for the kept draws, filled during sampling."""

    coefficients: Floats
    covariances: Floats
    persons: Singles
    accepted: Singles  # (P,) number of accepted steps
    population_accepted: float = 0.0
    sweeps: int = 0

    @classmethod
    def of(cls, sampler: HierarchicalSampler) -> DrawStore:
        """Return memory for the draws of a sampler."""
        s, (N, G), K = sampler.settings, sampler.z.shape, sampler.choices.K
        return cls(
            np.empty((s.kept, s.chains, K, G)),
            np.empty((s.kept, s.chains, K, K)),
            np.empty((s.person_draws, s.chains, N, K), np.float32),
            np.zeros(sampler.choices.P, np.float32),
        )

    def keep(self, state: ChainState, at: int, settings: SamplerSettings, lane: NDArray[Any]) -> None:
        """Store the present values as draw number ``at``, and the part-worths at equal distances."""
        self.coefficients[at], self.covariances[at] = state.population.coefficients, state.population.covariance
        # Draw number p of the part-worths is draw number ceil((p + 1) kept / person_draws) of the population.
        place = (at + 1) * settings.person_draws // settings.kept - 1
        if place > at * settings.person_draws // settings.kept - 1:
            self.persons[place] = state.persons.b[:, :, lane].transpose(0, 2, 1)


def _rotated(position: Floats, velocity: Floats, angle: float) -> tuple[Floats, Floats]:
    """Return position and velocity, rotated by an angle: their motion in a harmonic potential."""
    c, s = math.cos(angle), math.sin(angle)
    return c * position + s * velocity, c * velocity - s * position


def _inverse(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), np.float64)


def _root_of_inverse(information: Floats) -> Floats:  # (Q, Q)
    """Return a root of the inverse; the eigenvalues are floored if rounding has made one of them negative.

    The information is small in directions that the choices say little about, as about a sign that they contradict. The
    Metropolis step corrects a proposal that is not exact.
    """
    try:
        return np.asarray(np.linalg.cholesky(np.linalg.inv(information)), np.float64)
    except np.linalg.LinAlgError:
        # 1. Units in which the diagonal is 1.
        diagonal = np.diag(information)
        size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        values, vectors = np.linalg.eigh(information / np.outer(size, size))
        # 2. The root of the inverse with at least a small curvature in every direction.
        root: Floats = vectors / np.sqrt(np.maximum(values, _MIN_CURVATURE)) / size[:, None]
        return root
