"""Part-worths of persons given the population, for the sampler of the hierarchical logit.

Person n has K part-worths b and chooses by a logit. Given the population, b is normal with mean m_n and precision P, so
its posterior density is proportional to

    exp(ll_n(b) - (b - m_n)' P (b - m_n) / 2)        ll_n(b) = - sum_t log(1 + sum_j exp(z_tj . c(b)))

where z_tj is the difference between an alternative that was not chosen and the chosen one. The coefficient c_k(b) is
b_k, or s exp(b_k) if its sign s is constrained. The log-likelihood of a person is close to quadratic where the
posterior has its mass:

    ll_n(b) ~ h_n . b - b' H_n b / 2 + constant                                            (H_n + P) = R_n R_n'

The approximate posterior is normal with precision H_n + P, so u = R_n' b - R_n^-1 (h_n + P m_n) is approximately
standard normal, whatever the population. The sampler works with u. A Metropolis step proposes sqrt(1 - s^2) u + s v,
with v standard normal. This leaves the standard normal distribution invariant (Neal, 1999), so the step is accepted by
the ratio of the posterior to its approximation. H_n and h_n are expected values over draws of b, which minimises the
Kullback-Leibler divergence of the approximation (Opper & Archambeau, 2009). For a constrained coefficient, the second
derivative of exp(b_k) is left out, so H_n has no negative eigenvalue.

All persons and chains are computed together, in float32 and with the persons last: u and b (C, K, P), z by tiles of
``LANES`` persons with the same numbers of choice sets and alternatives. Persons with fewer are padded. The compiled
library (``hierarchical_steps.c``) and numpy compute the same up to rounding.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.compiled import load_library
from pcmcnet.errors import TrainingError

LIBRARY_FILE = Path(__file__).with_name("libhierarchical.so")
VERSION = 2  # of the C interface; must equal the version in the C code
LANES = 16  # persons in a tile, as in the C code
_ABSENT = np.float32(-1e30)  # utility of an alternative that pads a choice set
_MAX_UTILITY = np.float32(80)  # difference of utilities, as in the C code: exp() of a larger one overflows in float32
_MAX_LOGARITHM = np.float32(30)  # of a coefficient of constrained sign, as in the C code
_MIN_PIVOT = np.float32(1e-20)  # of a factor, as in the C code: rounding may make a pivot negative
_MAX_NEWTON_MOVE = 2.0  # largest change of a part-worth in a Newton step
_NEWTON_STEPS = 3  # the caller repeats them with better values of the population

Singles = NDArray[np.float32]


@cache
def compiled_library() -> Any:
    """Return the compiled library, or None if it is missing or unusable."""
    library = load_library(
        LIBRARY_FILE,
        version_function="pcmcnet_hierarchical_version",
        version=VERSION,
        fallback="part-worths are sampled in numpy",
    )
    if library is not None:
        library.pcmcnet_part_worths.restype = library.pcmcnet_move_persons.restype = ctypes.c_int64
    return library


@cache
def lower_triangle(K: int) -> tuple[Ints, Ints]:
    """Return the rows and columns of the lower triangle of a (K, K) matrix."""
    return np.tril_indices(K)


class _GroupStructure(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("K", "C", "P", "begin", "tiles", "sets", "widest")] + [
        (name, ctypes.c_void_p) for name in ("rows", "z", "signs", "hessian", "linear")
    ]


# -- Choices of persons, in tiles --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TileGroup:
    """Tiles of persons who have, after padding, the same numbers of choice sets and alternatives."""

    begin: int  # first lane
    rows: Ints  # (T,) alternatives that were not chosen, by choice set
    z: Singles  # (tiles, sum of rows, K + 1, LANES): utility of padding, then differences

    @property
    def lanes(self) -> slice:
        """Lanes of the persons in arrays over all persons."""
        return slice(self.begin, self.begin + len(self.z) * LANES)

    def by_person(self) -> tuple[Singles, Singles]:
        """Return the differences (p, M, K), and the utilities of padding (p, M), with the persons first."""
        z = self.z.transpose(0, 3, 1, 2).reshape(len(self.z) * LANES, *self.z.shape[1:3])
        return z[:, :, 1:], z[:, :, 0]


@dataclass(frozen=True, eq=False)
class PersonChoices:
    """The choices of N persons, on P lanes."""

    K: int
    P: int
    lane: Ints  # (N,) lane of each person
    groups: tuple[TileGroup, ...]
    signs: Singles  # (K,) 1 or -1 for a coefficient of constrained sign, else 0

    @classmethod
    def of(cls, z: Floats, offsets: Ints, person: Ints, number: int, signs: Ints) -> PersonChoices:
        """Arrange choices in tiles.

        Parameters
        ----------
        z, offsets
            Differences (M, K) of the alternatives that were not chosen, and first row (T + 1,) of each set.
        person
            Index (T,) of the person of each set.
        number
            Number of persons. Persons without a set have the population as their posterior.
        signs
            (K,) 1 or -1 for a coefficient of constrained sign, else 0.
        """
        # 1. Order the sets by person, the largest first, and the persons by their numbers of rows.
        sizes = np.diff(offsets)
        order = np.lexsort((-sizes, person))
        starts = np.searchsorted(person[order], np.arange(number + 1))
        sets_of = [order[a:b] for a, b in pairwise(starts)]
        ranked = sorted(range(number), key=lambda n: (len(sets_of[n]), *sizes[sets_of[n]].tolist()))
        lane = np.empty(number, np.int64)
        lane[ranked] = np.arange(number)
        # 2. The shape of a tile: the largest number of rows at each position. Neighbours of equal shape form a group.
        tiles = [ranked[at : at + LANES] for at in range(0, number, LANES)]
        shapes = [_shape_of([sizes[sets_of[n]] for n in tile]) for tile in tiles]
        groups, first = [], 0
        for at in range(1, len(tiles) + 1):
            if at == len(tiles) or shapes[at] != shapes[first]:
                persons = [sets_of[n] for tile in tiles[first:at] for n in tile]
                groups.append(_filled_group(first * LANES, np.array(shapes[first], np.int64), persons, z, offsets))
                first = at
        return cls(z.shape[1], len(tiles) * LANES, lane, tuple(groups), signs.astype(np.float32))

    def coefficients(self, b: NDArray[Any]) -> NDArray[Any]:  # (..., K, P)
        """Return the coefficients of part-worths: sign times exp(b) if the sign is constrained.

        exp(30) changes the utility so much that the choice is certain, and a larger exponent would overflow.
        """
        signs = self.signs[:, None]
        return np.where(signs == 0, b, signs * np.exp(np.where(signs == 0, 0, np.minimum(b, _MAX_LOGARITHM))))

    def derivatives(self, b: Singles) -> tuple[Singles, Singles]:  # (K, P) -> (K, P), (P, K, K)
        """Return the gradients of the log-likelihoods, and Hessians of minus the log-likelihoods."""
        gradient, hessian = np.zeros_like(b), np.zeros((self.P, self.K, self.K), np.float32)
        c = self.coefficients(b)
        for group in self.groups:
            # 1. Probabilities of the alternatives that were not chosen, and the mean of z in each set.
            z, absent = group.by_person()
            starts = np.cumsum(group.rows) - group.rows
            if not len(starts):
                continue
            v = np.matmul(z, c.T[group.lanes, :, None])[..., 0] + absent
            e = np.exp(np.minimum(v, _MAX_UTILITY))
            p = e / np.repeat(1 + np.add.reduceat(e, starts, axis=1), group.rows, axis=1)
            weighted = z * p[:, :, None]
            means = np.add.reduceat(weighted, starts, axis=1)
            # 2. Gradient and Hessian in the coefficients.
            gradient[:, group.lanes] = -means.sum(1).T
            hessian[group.lanes] = np.matmul(weighted.transpose(0, 2, 1), z) - np.matmul(
                means.transpose(0, 2, 1), means
            )
        # 3. The chain rule for constrained signs.
        slopes = np.where(self.signs[:, None] == 0, np.float32(1), c)
        return gradient * slopes, hessian * slopes.T[:, :, None] * slopes.T[:, None, :]


def _shape_of(sizes: list[Ints]) -> tuple[int, ...]:
    """Return the largest number of rows at each position over several persons."""
    shape = np.zeros(max(map(len, sizes)), np.int64)
    for own in sizes:
        shape[: len(own)] = np.maximum(shape[: len(own)], own)
    return tuple(shape.tolist())


def _filled_group(begin: int, rows: Ints, persons: list[Ints], z: Floats, offsets: Ints) -> TileGroup:
    """Return the group of some persons, each with the indices of its sets."""
    starts, K = np.cumsum(rows) - rows, z.shape[1]
    tiles = -(-len(persons) // LANES)
    values = np.zeros((tiles * LANES, int(rows.sum()), K + 1), np.float32)
    values[:, :, 0] = _ABSENT
    for k, sets in enumerate(persons):
        for start, s in zip(starts.tolist(), sets.tolist(), strict=False):
            own = z[offsets[s] : offsets[s + 1]]
            values[k, start : start + len(own), 0] = 0
            values[k, start : start + len(own), 1:] = own
    by_tile = values.reshape(tiles, LANES, *values.shape[1:]).transpose(0, 2, 3, 1)
    return TileGroup(begin, rows, np.ascontiguousarray(by_tile))


# -- Normal approximation and Metropolis steps -------------------------------------------------------------------------


class PersonStates(NamedTuple):
    """Part-worths of all persons in C chains, with their densities."""

    u: Singles  # (C, K, P)
    b: Singles  # (C, K, P)
    ll: Singles  # (C, P) log-likelihoods
    prior: Singles  # (C, P) -(b - m)' P (b - m) / 2
    log_determinant: Singles  # (C, P) of R

    @classmethod
    def empty(cls, chains: int, K: int, P: int) -> PersonStates:
        """Return arrays that are not initialised."""
        pair = (np.empty((chains, K, P), np.float32) for _ in range(2))
        return cls(*pair, *(np.empty((chains, P), np.float32) for _ in range(3)))


class PopulationSlopes(NamedTuple):
    """Derivatives of the persons' log-densities in the population of C chains, with u fixed."""

    mean: Singles  # (C, K, P) in the mean of each person
    precision: Floats  # (C, K, K) weighted sums over the persons, symmetric


@dataclass(frozen=True, eq=False)
class PersonPosterior:
    """Choices of persons with the quadratic approximation of their log-likelihoods."""

    choices: PersonChoices
    linear: Singles  # (K, P) h
    hessian: Singles  # (P, K, K) H
    packed: Singles = field(init=False)  # (K (K + 1) / 2, P) lower triangles of H
    _by_chains: dict[int, list[Any]] = field(init=False, default_factory=dict)  # arguments of the library

    def __post_init__(self) -> None:
        lower = lower_triangle(self.choices.K)
        object.__setattr__(self, "packed", np.ascontiguousarray(self.hessian[:, lower[0], lower[1]].T))

    @classmethod
    def at_modes(cls, choices: PersonChoices, mean: Floats, precision: Floats, start: Singles) -> PersonPosterior:
        """Expand the log-likelihoods at the posterior modes, found by Newton's method from ``start`` (K, P).

        ``mean`` (K, P) and ``precision`` (K, K) describe the population.
        """
        b = start
        for _ in range(_NEWTON_STEPS):
            gradient, hessian = choices.derivatives(b)
            step = np.linalg.solve(hessian + precision, (gradient - precision @ (b - mean)).T[..., None])[..., 0].T
            b = (b + np.clip(step, -_MAX_NEWTON_MOVE, _MAX_NEWTON_MOVE)).astype(np.float32)
        return cls.expected(choices, [b])

    @classmethod
    def expected(cls, choices: PersonChoices, draws: list[Singles]) -> PersonPosterior:
        """Return the approximation with expected derivatives over draws (K, P) of the part-worths."""
        derivatives = [choices.derivatives(b) for b in draws]
        gradient = np.mean([g for g, _ in derivatives], axis=0)
        hessian = np.mean([h for _, h in derivatives], axis=0)
        linear = gradient + np.einsum("pkl,lp->kp", hessian, np.mean(draws, axis=0))
        return cls(choices, np.ascontiguousarray(linear, np.float32), np.ascontiguousarray(hessian, np.float32))

    def moments(self, mean: Floats, precision: Floats) -> tuple[Floats, Floats]:  # -> (P, K), (P, K, K)
        """Return means and covariance matrices of the approximate posteriors, given one population."""
        covariance: Floats = np.asarray(np.linalg.inv(self.hessian.astype(np.float64) + precision), np.float64)
        linear = self.linear.T + mean.T @ precision
        return np.einsum("pkl,pl->pk", covariance, linear), covariance

    def states(
        self, u: Singles, precision: Floats, mean: Singles, *, b: Singles | None = None, ll: Singles | None = None
    ) -> PersonStates:  # (C, K, P), (C, K, K), (C, K, P)
        """Return the part-worths of given u, or the u of the part-worths ``b`` with log-likelihoods ``ll``."""
        new = PersonStates.empty(len(precision), self.choices.K, self.choices.P)
        new.u[:] = u
        if b is not None and ll is not None:
            new.b[:] = b
            new.ll[:] = ll
        arguments = (np.ascontiguousarray(precision, np.float32), mean, new.u, new.b)
        library = compiled_library()
        if library is None:
            self._numpy_states(new, arguments[0], mean, keeps_b=b is not None)
            return new
        outputs = [_address(array) for array in (*arguments, new.ll, new.prior, new.log_determinant)]
        for group in self._structures(len(precision)):
            keeps_b = ctypes.c_int64(b is not None)
            _require_memory(library.pcmcnet_part_worths(group, keeps_b, *outputs, None, None, None))
        return new

    def slopes(
        self, u: Singles, precision: Floats, mean: Singles, weights: Singles
    ) -> PopulationSlopes:  # (C, K, P), (C, K, K), (C, K, P), (P,)
        """Return the derivatives of ll + prior - log_determinant with u fixed."""
        C, K, P = u.shape
        new, single = PersonStates.empty(C, K, P), np.ascontiguousarray(precision, np.float32)
        library = compiled_library()
        if library is None:
            new.u[:] = u
            self._numpy_states(new, single, mean, keeps_b=False)
            return self._numpy_slopes(new, single, mean, weights)
        in_mean, lower = np.empty((C, K, P), np.float32), np.zeros((C, K * (K + 1) // 2, LANES), np.float32)
        arrays = (single, mean, u, new.b, new.ll, new.prior, new.log_determinant, weights, in_mean, lower)
        addresses = [_address(array) for array in arrays]
        for group in self._structures(C):
            _require_memory(library.pcmcnet_part_worths(group, ctypes.c_int64(0), *addresses))
        # The library returns lower triangles, one for each lane of a tile.
        in_precision, (rows, columns) = np.empty((C, K, K)), lower_triangle(K)
        in_precision[:, rows, columns] = in_precision[:, columns, rows] = lower.sum(axis=2, dtype=np.float64)
        return PopulationSlopes(in_mean, in_precision)

    def move(
        self,
        states: PersonStates,
        precision: Floats,
        mean: Singles,
        steps: Singles,
        rng: np.random.Generator,
        accepted: Singles,
    ) -> None:
        """Move every person by one Metropolis step, in place, and count accepted steps in ``accepted`` (P,).

        ``steps`` (P,) contains the sizes of the steps, from 0 to 1.
        """
        v = rng.standard_normal(states.u.shape, dtype=np.float32)
        threshold = np.negative(rng.standard_exponential(states.ll.shape, dtype=np.float32))
        library = compiled_library()
        if library is None:
            v = np.sqrt(1 - steps**2) * states.u + steps * v
            new = self.states(v, precision, mean)
            gain = new.ll + new.prior - states.ll - states.prior + ((v**2).sum(1) - (states.u**2).sum(1)) / 2
            taken = gain > threshold
            for old, proposed in zip(states[:4], new[:4], strict=True):
                np.copyto(old, proposed, where=taken[:, None] if old.ndim == 3 else taken)
            accepted += taken.sum(0)
            return
        arrays = (np.ascontiguousarray(precision, np.float32), mean, steps, v, threshold, *states[:4], accepted)
        for group in self._structures(len(precision)):
            _require_memory(library.pcmcnet_move_persons(group, *map(_address, arrays)))

    def _structures(self, chains: int) -> list[Any]:
        """Return the arguments that describe each group of tiles."""
        if chains not in self._by_chains:
            self._by_chains[chains] = [ctypes.byref(self._structure(group, chains)) for group in self.choices.groups]
        return self._by_chains[chains]

    def _structure(self, group: TileGroup, chains: int) -> _GroupStructure:
        choices, widest = self.choices, max(group.rows.tolist(), default=0)
        numbers = (choices.K, chains, choices.P, group.begin, len(group.z), len(group.rows), widest)
        arrays = (group.rows, group.z, choices.signs, self.packed, self.linear)
        return _GroupStructure(*numbers, *(array.ctypes.data for array in arrays))

    def _numpy_states(self, new: PersonStates, precision: Singles, mean: Singles, *, keeps_b: bool) -> None:
        """Fill in the states as the compiled library does."""
        # 1. The normal approximation given the population: R and w = R^-1 (h + P m).
        factor = _factor(self.hessian + precision[:, None])  # (C, P, K, K)
        linear = (self.linear + precision @ mean).transpose(0, 2, 1)[..., None]
        w = _solve_lower(factor, linear)
        new.log_determinant[:] = np.log(np.diagonal(factor, axis1=2, axis2=3)).sum(2)
        # 2. u = R' b - w, or b = R'^-1 (w + u).
        if keeps_b:
            new.u[:] = (factor.swapaxes(2, 3) @ new.b.transpose(0, 2, 1)[..., None] - w)[..., 0].transpose(0, 2, 1)
        else:
            reversed_factor = factor.swapaxes(2, 3)[..., ::-1, ::-1]  # R' is upper triangular: solve from its end
            b = _solve_lower(reversed_factor, (w + new.u.transpose(0, 2, 1)[..., None])[..., ::-1, :])[..., ::-1, :]
            new.b[:] = b[..., 0].transpose(0, 2, 1)
            self._numpy_log_likelihoods(new.b, new.ll)
        # 3. The density of the population.
        deviations = new.b - mean
        new.prior[:] = -0.5 * np.einsum("ckp,ckp->cp", deviations, precision @ deviations)

    def _numpy_slopes(
        self, states: PersonStates, precision: Singles, mean: Singles, weights: Singles
    ) -> PopulationSlopes:
        """Return the derivatives as the compiled library does: see ``add_slopes`` in the C code."""
        # 1. W = R^-1, w, and the derivatives of the log-likelihoods in b.
        factor = _factor(self.hessian + precision[:, None])  # (C, P, K, K)
        W = _solve_lower(factor, np.broadcast_to(np.eye(self.choices.K, dtype=np.float32), factor.shape))
        w = W @ (self.linear + precision @ mean).transpose(0, 2, 1)[..., None]
        t = np.stack([self.choices.derivatives(b)[0] for b in states.b])
        # 2. v = W (t - precision d), s = W' v.
        d = states.b - mean
        v = W @ (t - precision @ d).transpose(0, 2, 1)[..., None]
        s = W.swapaxes(2, 3) @ v
        in_mean = precision @ (s[..., 0].transpose(0, 2, 1) + d)
        # 3. Terms of the precision, made symmetric.
        inner = np.tril(states.u.transpose(0, 2, 1)[..., None] * v.swapaxes(2, 3))
        diagonal = np.arange(self.choices.K)
        inner[..., diagonal, diagonal] = (inner[..., diagonal, diagonal] + 1) / 2
        shifted = mean.transpose(0, 2, 1)[..., None] - W.swapaxes(2, 3) @ w
        deviations = d.transpose(0, 2, 1)[..., None]
        terms = s @ shifted.swapaxes(2, 3) - W.swapaxes(2, 3) @ inner @ W - deviations @ deviations.swapaxes(2, 3) / 2
        sums = np.einsum("p,cpkl->ckl", weights.astype(np.float64), terms)
        return PopulationSlopes(in_mean.astype(np.float32), (sums + sums.swapaxes(1, 2)) / 2)

    def _numpy_log_likelihoods(self, b: Singles, out: Singles) -> None:  # (C, K, P), (C, P)
        c = self.choices.coefficients(b)
        for group in self.choices.groups:
            z, absent = group.by_person()
            starts = np.cumsum(group.rows) - group.rows
            if not len(starts):
                out[:, group.lanes] = 0
                continue
            v = np.matmul(z, c[:, :, group.lanes].transpose(2, 1, 0)) + absent[..., None]  # (p, M, C)
            totals = np.add.reduceat(np.exp(np.minimum(v, _MAX_UTILITY)), starts, axis=1)
            out[:, group.lanes] = -np.log1p(totals).sum(1).T


def _factor(matrices: Singles) -> Singles:  # (..., K, K)
    """Return the Cholesky factors R of R R'; pivots that rounding makes negative are replaced, as in the C code."""
    try:
        return np.asarray(np.linalg.cholesky(matrices), np.float32)
    except np.linalg.LinAlgError:  # of any of the matrices
        factor = np.zeros_like(matrices)
    for j in range(matrices.shape[-1]):
        # 1. The pivot: the Metropolis step corrects an approximation that is not exact.
        row = factor[..., j, :j]
        pivot = matrices[..., j, j] - (row**2).sum(-1)
        factor[..., j, j] = np.sqrt(np.where(pivot > _MIN_PIVOT, pivot, _MIN_PIVOT))
        # 2. The column below it.
        below = matrices[..., j + 1 :, j] - (factor[..., j + 1 :, :j] @ row[..., None])[..., 0]
        factor[..., j + 1 :, j] = below / factor[..., j, j][..., None]
    return factor


def _address(array: NDArray[Any]) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def _require_memory(failed: int) -> None:
    if failed:
        raise TrainingError("not enough memory for the part-worths of all persons: use fewer chains or columns.")


def _solve_lower(factor: Singles, right: Singles) -> Singles:  # (..., K, K), (..., K, N) -> (..., K, N)
    """Solve factor x = right for lower triangular matrices by substitution.

    If a proposed population leaves the range of numbers, so does x, and the proposal is rejected. NumPy's solver would
    raise an error.
    """
    x = np.empty_like(right)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for i in range(right.shape[-2]):
            rest = right[..., i, :] - (factor[..., i, None, :i] @ x[..., :i, :])[..., 0, :]
            x[..., i, :] = rest / factor[..., i, i, None]
    return x
