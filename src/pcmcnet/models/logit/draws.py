"""Simulation of a mixed logit: draws for each person, blocks of persons, and averages over the population."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import consecutive_indices, max_by_set, spread, sum_by_set
from pcmcnet.layers.threads import run_in_threads
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.logit_effects import design_slopes
from pcmcnet.models.logit.random_coefficients import MixingDistribution

# -- Draws of each person ----------------------------------------------------------------------------------------------
# Each person has R draws, which are points of a D-dimensional cube. They depend only on the seed and on a hash of the
# person's id. So they do not depend on the order of persons and rows or on the other persons in the table, a person has
# the same draws in a fold and in the whole table, and draws need not be stored: they can be generated again for any
# block of persons.
#
#     sobol    one scrambled Sobol sequence for all; each person applies its own random digital shift (XOR)
#     halton   one Halton sequence for all; each person applies its own random shift modulo 1
#     mlhs     modified Latin hypercube: R equally spaced points with one random offset, shuffled, in each dimension
#     random   pseudo-random numbers
#
# (Bhat, 2001; Hess, Train & Polak, 2006; Owen, 1997.) Points are 31-bit integers until the last step, so that CPU and
# GPU generate the same draws. With `antithetic` the second half of the draws mirrors the first at the centre of the
# cube. The result t is uniform on (-1, 1); the distributions transform it. Shapes: keys (N,) -> t (N, D, R).

DrawSequence = Literal["sobol", "halton", "mlhs", "random"]

_BITS = 31
_ONES = 2**_BITS - 1
_GOLDEN = -7046029254386353131  # 2^64 / golden ratio as a signed odd integer: the increment of SplitMix64
_MIX = (-4658895280553007687, -7723592293110705685)  # multipliers of SplitMix64
_PREDICTION_KEY = 0  # key of the draws that all predictions share


@dataclass(frozen=True)
class PersonDraws:
    """Generator of the R draws of each person in D dimensions."""

    sequence: DrawSequence
    dimensions: int
    number: int
    seed: int
    antithetic: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def of(self, keys: Ints) -> Tensor:  # (N,) -> (N, D, R)
        """Return the draws t of the persons with the given keys."""
        key = torch.from_numpy(np.asarray(keys, np.int64)).to(self.device)
        points = self._points(_splitmix64(key ^ _splitmix64(torch.tensor(self.seed, device=self.device))))
        if self.antithetic:
            points = torch.cat([points, _ONES - points], dim=-1)
        t: Tensor = (points - 2 ** (_BITS - 1)).to(torch.float32) * 2.0 ** (1 - _BITS)
        return t.clamp_(-1 + 2**-24, 1 - 2**-24)  # quantiles are infinite at -1 and 1

    def common(self) -> Tensor:  # -> (1, D, R)
        """Return the draws for persons without known choices, which are the same in all predictions."""
        return self.of(np.array([_PREDICTION_KEY]))

    def _points(self, key: Tensor) -> Tensor:  # (N,) -> (N, D, R or R / 2) 31-bit integers
        # 1. A random integer per person and dimension: the shift of a shared sequence, or the seed of the person.
        of_dimension = _splitmix64(key[:, None] + _GOLDEN * torch.arange(1, self.dimensions + 1, device=self.device))
        shift: Tensor = (of_dimension & _ONES)[:, :, None]  # (N, D, 1)
        if self.sequence in ("sobol", "halton"):
            shifted: Tensor = self._shared ^ shift.to(torch.int32)
            return shifted if self.sequence == "sobol" else (self._shared.long() + shift).bitwise_and(_ONES)
        # 2. Pseudo-random integers from that seed. A Latin hypercube uses their ranks as a shuffle, and one offset.
        steps = torch.arange(1, self._half + 1, device=self.device)
        noise = _splitmix64(of_dimension[:, :, None] + _GOLDEN * steps).bitwise_and(_ONES)
        if self.sequence == "random":
            return noise
        order = noise.argsort(dim=-1, stable=True)
        return torch.div(order * 2**_BITS + shift, self._half, rounding_mode="floor")

    @property
    def _half(self) -> int:
        return self.number // 2 if self.antithetic else self.number

    @cached_property
    def _shared(self) -> Tensor:  # (D, R or R / 2)
        """The sequence that all persons share, before the shifts."""
        if self.sequence == "sobol":
            engine = SobolEngine(self.dimensions, scramble=True, seed=self.seed)  # type: ignore[no-untyped-call]
            points = engine.draw(self._half, dtype=torch.float64)
        else:
            from scipy.stats.qmc import Halton

            points = torch.from_numpy(Halton(self.dimensions, scramble=False).random(self._half))
        shared: Tensor = (points.T * 2**_BITS).to(torch.int32).contiguous().to(self.device)
        return shared


def hash_ids(ids: Iterable[Any]) -> Ints:
    """Hash the text of each id to a 64-bit integer, the key of the person's draws."""
    digests = (blake2b(str(id_).encode(), digest_size=8).digest() for id_ in ids)
    return np.fromiter((int.from_bytes(digest, "little", signed=True) for digest in digests), np.int64)


def _splitmix64(x: Tensor) -> Tensor:
    """Hash 64-bit integers with the finaliser of SplitMix64 (Steele, Lea & Flood, 2014)."""
    x = x.bitwise_xor(_shift_right(x, 30)) * _MIX[0]
    x = x.bitwise_xor(_shift_right(x, 27)) * _MIX[1]
    return x.bitwise_xor(_shift_right(x, 31))


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros, unlike torch's shift operator, which repeats the sign bit."""
    return x.bitwise_right_shift(bits).bitwise_and(2 ** (64 - bits) - 1)


# -- Blocks of persons, for batched matrix products --------------------------------------------------------------------
# A block has N persons with all rows of their choice sets, as z (N, m, K). Persons with similar numbers of rows share a
# block; those with fewer than m rows are padded with rows of zeros at the end. Choice sets are consecutive rows of any
# number, so nothing is padded to a number of sets or alternatives. Blocks depend only on the data and on the number of
# draws, not on the number of threads.


@dataclass(frozen=True)
class PersonBlock:
    """Block of N persons with their T choice sets, padded to N x m rows."""

    persons: Ints  # (N,)
    rows: Ints  # rows of the table, in the order of the block
    z: Tensor  # (N, m, K)
    set_of_row: Tensor  # (N m,) padding belongs to the last set before it
    rows_of_set: Tensor  # (T,) number of rows
    person_of_set: Tensor  # (T,)
    empty_rows: Tensor  # rows of padding

    def sum_rows(self, values: Tensor) -> Tensor:  # (..., N m, R) -> (..., T, R)
        """Sum over the rows of each set."""
        return _sums(values, self.set_of_row, self.rows_of_set)

    def sum_sets(self, values: Tensor) -> Tensor:  # (..., T, R) -> (..., N, R)
        """Sum over the sets of each person."""
        counts = torch.bincount(self.person_of_set, minlength=len(self.persons))
        return _sums(values, self.person_of_set, counts)

    def largest(self, values: Tensor) -> Tensor:  # (N m, R) -> (T, R)
        """Return the largest value of each set."""
        ends = self.rows_of_set.cumsum(0)
        longest = int(self.rows_of_set.max())
        rows = (ends - self.rows_of_set)[:, None] + torch.arange(longest, device=ends.device)
        return values[torch.minimum(rows, ends[:, None] - 1)].amax(1)


def _sums(values: Tensor, owner: Tensor, counts: Tensor) -> Tensor:
    """Sum consecutive rows, with ``segment_reduce`` on a GPU, where ``index_add_`` is not deterministic."""
    if values.is_cuda:
        lead = values.shape[:-2]
        flat = values.reshape(-1, *values.shape[-2:]).movedim(-2, 0).contiguous()
        sums = torch.segment_reduce(flat, "sum", lengths=counts, axis=0)
        return sums.movedim(0, -2).reshape(*lead, len(counts), values.shape[-1])
    out = values.new_zeros(*values.shape[:-2], len(counts), values.shape[-1])
    return out.index_add_(-2, owner, values)


def person_blocks(z: Floats, offsets: Ints, person: Ints, elements: int, device: torch.device) -> Iterator[PersonBlock]:
    """Yield blocks of persons who have similar numbers of rows.

    Parameters
    ----------
    z, offsets
        Rows (M, K) of all sets, and index (T + 1,) of the first row of each set.
    person
        Index (T,) of the person of each set. The sets of a person need not be adjacent.
    elements
        Maximum number of rows of a block. A block of one person may have more rows.
    device
        Device of the blocks.
    """
    # 1. Order the sets by person, and count the rows of each person.
    order = np.argsort(person, kind="stable")
    persons, counts = np.unique(person, return_counts=True)  # persons with rows
    sizes = np.diff(offsets)[order]
    first = np.cumsum(counts) - counts
    rows = np.add.reduceat(sizes, first) if len(persons) else sizes
    # 2. Put persons with similar numbers of rows into one block, to keep padding small.
    ranked = np.argsort(rows, kind="stable")
    for group in _cuts(rows[ranked], elements):
        block = ranked[group]
        yield _block(
            z, offsets, persons[block], order[consecutive_indices(first[block], counts[block])], person, device
        )


def _cuts(rows: Ints, max_rows: int) -> Iterator[slice]:
    """Yield slices of consecutive persons, who must be sorted by their number of rows."""
    begin = 0
    while begin < len(rows):
        end = begin + 1
        while end < len(rows) and (end + 1 - begin) * rows[end] <= max_rows:
            end += 1
        yield slice(begin, end)
        begin = end


def _block(z: Floats, offsets: Ints, persons: Ints, sets: Ints, person: Ints, device: torch.device) -> PersonBlock:
    """Build a block from sets that are ordered by person."""
    # 1. The person of each set, the number of rows of each person, and the maximum m of these numbers.
    index = {int(n): k for k, n in enumerate(persons)}
    owner = np.array([index[int(n)] for n in person[sets]], np.int64)
    sizes = np.diff(offsets)[sets]
    per_person = np.bincount(owner, sizes, minlength=len(persons)).astype(np.int64)
    m = int(per_person.max())
    # 2. Padding belongs to the last set of the person.
    ends = np.cumsum(np.bincount(owner, minlength=len(persons)))
    padded = sizes.copy()
    padded[ends - 1] += m - per_person
    # 3. Copy the rows of each person; the rest of its m rows stays 0.
    filled = np.zeros((len(persons) * m, z.shape[1]))
    inside = consecutive_indices(np.arange(len(persons)) * m, per_person)
    rows = consecutive_indices(offsets[sets], sizes)
    filled[inside] = z[rows]
    empty = np.setdiff1d(np.arange(len(filled)), inside)

    def to(values: Floats | Ints) -> Tensor:
        return torch.from_numpy(values).to(device)

    set_of_row = np.repeat(np.arange(len(sets)), padded)
    return PersonBlock(
        persons, rows, to(filled.reshape(len(persons), m, -1)), to(set_of_row), to(padded), to(owner), to(empty)
    )


# -- Population --------------------------------------------------------------------------------------------------------
# Unconditional probabilities of a mixed logit, for persons without known choices.
#
# P(i | S) = mean_r exp(v_ir) / sum_j exp(v_jr), with v_ir the utility in draw r. All choice sets share the draws, so
# that equal sets have equal probabilities, whatever else is in the table. Computed in float64. In a mixture of mixed
# logits, the mean is weighted (`mixing_classes.py`).

_UTILITIES_AT_ONCE = 2**17  # utilities of a block in all draws, to bound memory

UtilityFunction = Callable[[Tensor, Ints], Tensor]  # utilities (N, m, R) of choice sets (N,) -> a value of each row


class CoefficientDraws(ABC):
    """Draws of the coefficients of people whose choices are unknown, which all choice sets share."""

    @property
    @abstractmethod
    def number(self) -> int:
        """Number R of draws."""

    @abstractmethod
    def coefficients(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return the coefficients of the utility's columns, for individuals with covariates h."""

    def weights(self, h: Floats) -> Floats | None:  # (N, G) -> (N, R)
        """Return the weights of the draws, for individuals with covariates h, or None if they are equal."""
        return None

    def all_weights(self, h: Floats) -> Floats:  # (N, G) -> (N, R)
        """Return the weights of the draws, for individuals with covariates h, even if they are equal."""
        weights = self.weights(h)
        return np.full((len(h), self.number), 1 / self.number) if weights is None else weights

    def sample(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return draws of the coefficients with equal weights."""
        return self.coefficients(h)

    def log_probabilities(self, x: Floats, offsets: Ints, h: Floats) -> Floats:  # (N, K), (S + 1,), (S, G) -> (N,)
        """Return the log-probability of every alternative."""
        weights = self.weights(h)
        log_weights = None if weights is None else torch.from_numpy(np.log(np.maximum(weights, 1e-300)))

        def log_mean(utilities: Tensor, sets: Ints) -> Tensor:  # (N, m, R), (N,) -> (N, m)
            log_p = utilities.log_softmax(1)
            if log_weights is None:
                return log_p.logsumexp(2).sub_(math.log(utilities.shape[2]))
            return (log_p + log_weights[torch.from_numpy(sets), None]).logsumexp(2)

        return self._by_row(x, offsets, h, log_mean)

    def log_probabilities_by_draw(self, x: Floats, offsets: Ints, h: Floats) -> Floats:  # -> (N, R)
        """Return the log-probability of every alternative in each draw."""
        return self._by_row(x, offsets, h, lambda utilities, _: utilities.log_softmax(1))

    def _by_row(self, x: Floats, offsets: Ints, h: Floats, function: UtilityFunction) -> Floats:  # -> (N,) or (N, R)
        """Apply a function of utilities that returns a value per alternative, and drop the values of padding."""
        results = self._by_block(x, offsets, h, function)
        out = np.empty((len(x), *results[0][1].shape[2:]))
        for block, values in results:
            is_row = np.ones(len(block.set_of_row), np.bool_)
            is_row[block.empty_rows.numpy()] = False
            out[block.rows] = values.reshape(-1, *values.shape[2:])[is_row]
        return out

    def log_sums(self, x: Floats, offsets: Ints, h: Floats) -> Floats:  # (N, K), (S + 1,), (S, G) -> (S, R)
        """Return the log-sum of each set in each draw."""
        out = np.empty((len(offsets) - 1, self.number))
        for block, sums in self._by_block(x, offsets, h, lambda utilities, _: utilities.logsumexp(1)):
            out[block.persons] = sums
        return out

    def _by_block(
        self, x: Floats, offsets: Ints, h: Floats, function: UtilityFunction
    ) -> list[tuple[PersonBlock, Floats]]:
        """Apply a function to the utilities (sets, alternatives, draws) of each block, with -inf for padding."""
        shared = None if h.shape[1] else self.coefficients(np.zeros((1, 0)))[0]

        def evaluate(block: PersonBlock) -> tuple[PersonBlock, Floats]:
            if shared is not None:
                utilities = (block.z.reshape(-1, block.z.shape[2]) @ shared).view(*block.z.shape[:2], -1)
            else:
                utilities = torch.bmm(block.z, self.coefficients(h[block.persons]))
            utilities.view(-1, utilities.shape[2]).index_fill_(0, block.empty_rows, -torch.inf)
            return block, function(utilities, block.persons).numpy()

        sets = np.arange(len(offsets) - 1)  # each set is a person of its own
        max_rows = max(_UTILITIES_AT_ONCE // self.number, 1)
        return run_in_threads(evaluate, list(person_blocks(x, offsets, sets, max_rows, torch.device("cpu"))))


@dataclass(frozen=True)
class Population(CoefficientDraws):
    """The distribution of coefficients over people in a mixed logit, represented by draws."""

    mixing: MixingDistribution
    x: Floats  # (P,) parameters
    draws: PersonDraws

    @property
    def number(self) -> int:
        """Number R of draws."""
        return self.draws.number

    def coefficients(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return the coefficients of the utility's columns, for individuals with covariates h."""
        return self.mixing.in_utility(self.in_wtp_space(h))

    def in_wtp_space(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return the coefficients or, in WTP space, the cost coefficient and the willingness to pay."""
        mixing = self.mixing
        locations = torch.from_numpy(mixing.locations(self.x, h))
        triangle, standard = torch.from_numpy(mixing.triangle(self.x)), mixing.standard(self.draws.common()).double()
        random = mixing.sample(locations, triangle, standard.expand(len(h), -1, -1)).value
        return mixing.whole(self.x, random)

    def sample_in_wtp_space(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return draws with equal weights, in WTP space if there is a cost."""
        return self.in_wtp_space(h)


# -- Derivatives of a mixed logit's probabilities in a column of the table ---------------------------------------------
# Let p_ir be the probability of alternative i in draw r and u_ir = d v_ir / d x_j. In each draw d log p_ir / d x_j =
# u_ir - sum_m p_mr u_mr (see `logit_effects.py`). The mean over draws P_i = mean_r p_ir therefore has
#
#     d log P_i / d x_j = mean_r p_ir (u_ir - sum_m p_mr u_mr) / P_i.

_SLOPE_UTILITIES_AT_ONCE = 2**21  # utilities of a chunk in all draws, to bound memory

MatrixOf = Callable[[ChoiceData], Floats]


def mixed_slopes(
    people: CoefficientDraws, design: Design, data: ChoiceData, column: str, columns: MatrixOf, covariates: MatrixOf
) -> Floats:
    """Return d log P(i) / d x_j for all ordered pairs, or d log P(i) / dx (N,) for an individual-level column.

    The functions ``columns`` and ``covariates`` return the columns of the utility (N, K) and the covariates (S, G).
    """
    # Chunks of choice sets bound memory; each fills its own section of the result.
    lengths = data.sizes**2 if column in data.features else data.sizes
    out, ends = np.zeros(int(lengths.sum())), np.cumsum(lengths)
    chunk_of_set = np.cumsum(data.sizes * people.number) // _SLOPE_UTILITIES_AT_ONCE
    for sets in np.split(np.arange(len(data)), np.flatnonzero(np.diff(chunk_of_set)) + 1):
        chunk = data.subset(sets)
        section = slice(int(ends[sets[0]] - lengths[sets[0]]), int(ends[sets[-1]]))
        x, h = columns(chunk), covariates(chunk)
        out[section] = _chunk_slopes(people, design, chunk, column, x, h, int(lengths[sets].sum()))
    return out


def _chunk_slopes(
    people: CoefficientDraws, design: Design, data: ChoiceData, column: str, x: Floats, h: Floats, length: int
) -> Floats:
    """Return the result of :func:`mixed_slopes` for one chunk of choice sets."""
    # 1. Probabilities in each draw.
    h = h if h.shape[1] else np.zeros((1, 0))
    b, weights = people.coefficients(h).numpy(), people.weights(h)  # (1 or S, K, R), (1 or S, R)
    of_row = data.set_of_alternative if len(b) > 1 else np.zeros(len(x), np.int64)
    p = softmax_by_draw(product_by_set(x, b, of_row), data.offsets)  # (N, R)
    out = np.zeros(length)
    # 2. For each alternative whose column changes, the derivative of the mean over draws (see the comment above).
    for rows, offsets, cells, columns, slope in design_slopes(design, data, column):
        u = product_by_set(slope, b[:, np.flatnonzero(columns)], of_row[rows])
        p_rows = p[rows]
        change = p_rows * (u - spread(sum_by_set(p_rows * u, offsets), offsets))
        if weights is not None:
            change, p_rows = change * weights[of_row[rows]], p_rows * weights[of_row[rows]]
        out[cells] = change.mean(axis=1) / p_rows.mean(axis=1)
    return out


def product_by_set(x: Floats, b: Floats, of_row: Ints) -> Floats:  # (N, K), (S, K, R), (N,) -> (N, R)
    """Multiply each row by the coefficients of its set."""
    if len(b) == 1:
        return np.asarray(x @ b[0])
    out = np.zeros((len(x), b.shape[2]))
    for k in range(x.shape[1]):
        out += x[:, k, None] * b[of_row, k]
    return out


def softmax_by_draw(v: Floats, offsets: Ints) -> Floats:  # (N, R) -> (N, R)
    """Return the probabilities within each set in each draw."""
    e = np.exp(v - spread(max_by_set(v, offsets), offsets))
    return np.asarray(e / spread(sum_by_set(e, offsets), offsets))
