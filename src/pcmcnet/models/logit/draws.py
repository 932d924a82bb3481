"""Draws of random coefficients: numbers that belong to a person, blocks of persons, and means over the population."""

from __future__ import annotations

import math
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
from pcmcnet.models.logit.logit_effects import _moves as moves
from pcmcnet.models.logit.random_coefficients import MixingDistribution

# -- Draws of random numbers that belong to a person, whoever else is in the table -------------------------------------
# A person's draws are points of a D-dimensional cube, R of them, made from the seed and from a hash of the person's id
# alone. So neither the order of persons and rows nor who else is there matters, a person of a fold has the draws of the
# whole table, and draws need not be kept: any block of persons makes its own again. Another id gives other draws.
#
#     sobol    a scrambled Sobol sequence that all share, each person's copy under a digital shift of its own (XOR)
#     halton   a Halton sequence that all share, each person's copy rotated by a shift of its own (modulo 1)
#     mlhs     modified Latin hypercube: R equally spaced points with one random offset, shuffled, in each dimension
#     random   pseudo-random numbers
#
# (Bhat, 2001; Hess, Train & Polak, 2006; Owen, 1997.) Points are whole numbers of 31 bits until the end, so that CPU
# and GPU make the same. With `antithetic` the second half of the draws mirrors the first at the centre of the cube.
# What is given out is t in (-1, 1), uniform: the distributions make of it what they need. Shapes: keys (N,) -> t (N, D,
# R).

DrawSequence = Literal["sobol", "halton", "mlhs", "random"]

_BITS = 31
_ONES = 2**_BITS - 1
_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, odd, as a signed number: Weyl steps of SplitMix64
_MIX = (-4658895280553007687, -7723592293110705685)
_NOBODY = 0  # key of the draws that predictions share


@dataclass(frozen=True)
class PersonDraws:
    """R draws in D dimensions for any person."""

    sequence: DrawSequence
    dimensions: int
    number: int
    seed: int
    antithetic: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def of(self, keys: Ints) -> Tensor:  # (N,) -> (N, D, R)
        """Return the draws t of persons, by their keys."""
        key = torch.from_numpy(np.asarray(keys, np.int64)).to(self.device)
        points = self._points(_mixed(key ^ _mixed(torch.tensor(self.seed, device=self.device))))
        if self.antithetic:
            points = torch.cat([points, _ONES - points], dim=-1)
        t: Tensor = (points - 2 ** (_BITS - 1)).to(torch.float32) * 2.0 ** (1 - _BITS)
        return t.clamp_(-1 + 2**-24, 1 - 2**-24)  # rounding must not reach the ends, where quantiles are infinite

    def common(self) -> Tensor:  # -> (1, D, R)
        """Return the draws that predictions share: for nobody in particular."""
        return self.of(np.array([_NOBODY]))

    def _points(self, key: Tensor) -> Tensor:  # (N,) -> (N, D, R or R / 2) whole numbers of 31 bits
        # 1. One number per person and dimension: the shift of a shared sequence, or the seed of the person's own.
        of_dimension = _mixed(key[:, None] + _GOLDEN * torch.arange(1, self.dimensions + 1, device=self.device))
        shift: Tensor = (of_dimension & _ONES)[:, :, None]  # (N, D, 1)
        if self.sequence in ("sobol", "halton"):
            moved: Tensor = self._shared ^ shift.to(torch.int32)
            return moved if self.sequence == "sobol" else (self._shared.long() + shift).bitwise_and(_ONES)
        # 2. Noise by counting on from that number; a Latin hypercube takes its order, and one offset.
        steps = torch.arange(1, self._half + 1, device=self.device)
        noise = _mixed(of_dimension[:, :, None] + _GOLDEN * steps).bitwise_and(_ONES)
        if self.sequence == "random":
            return noise
        order = noise.argsort(dim=-1, stable=True)
        return torch.div(order * 2**_BITS + shift, self._half, rounding_mode="floor")

    @property
    def _half(self) -> int:
        return self.number // 2 if self.antithetic else self.number

    @cached_property
    def _shared(self) -> Tensor:  # (D, R or R / 2)
        """The sequence that all persons share, before their shifts."""
        if self.sequence == "sobol":
            engine = SobolEngine(self.dimensions, scramble=True, seed=self.seed)  # type: ignore[no-untyped-call]
            points = engine.draw(self._half, dtype=torch.float64)
        else:
            from scipy.stats.qmc import Halton

            points = torch.from_numpy(Halton(self.dimensions, scramble=False).random(self._half))
        shared: Tensor = (points.T * 2**_BITS).to(torch.int32).contiguous().to(self.device)
        return shared


def hash_ids(ids: Iterable[Any]) -> Ints:
    """Hash ids, of any kind, to whole numbers of 64 bits; equal ids as text have equal keys."""
    found = (int.from_bytes(blake2b(str(each).encode(), digest_size=8).digest(), "little", signed=True) for each in ids)
    return np.fromiter(found, np.int64)


def _mixed(x: Tensor) -> Tensor:
    """Scatter whole numbers of 64 bits: the finaliser of SplitMix64 (Steele, Lea & Flood, 2014)."""
    x = x.bitwise_xor(_right(x, 30)) * _MIX[0]
    x = x.bitwise_xor(_right(x, 27)) * _MIX[1]
    return x.bitwise_xor(_right(x, 31))


def _right(x: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros."""
    return x.bitwise_right_shift(bits).bitwise_and(2 ** (64 - bits) - 1)


# -- Persons in blocks: what one product of matrices takes at a time ---------------------------------------------------
# A block holds some persons with all rows of their sets, as z (N, m, K): persons of like numbers of rows go together,
# and those with fewer than m have rows of zeros at the end. Nothing is padded to a number of sets or alternatives: sets
# are stretches of rows, whatever their sizes. Blocks are cut by the data and the number of draws alone, never by
# threads.


@dataclass(frozen=True)
class PersonBlock:
    """N persons with their T sets, and N x m rows."""

    persons: Ints  # (N,)
    rows: Ints  # of the table, in the order in which they stand here
    z: Tensor  # (N, m, K)
    set_of_row: Tensor  # (N m,) rows of zeros count to the last set before them
    rows_of_set: Tensor  # (T,) how many
    person_of_set: Tensor  # (T,)
    empty_rows: Tensor  # those of zeros

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
        most = int(self.rows_of_set.max())
        members = (ends - self.rows_of_set)[:, None] + torch.arange(most, device=ends.device)
        return values[torch.minimum(members, ends[:, None] - 1)].amax(1)


def _sums(values: Tensor, owner: Tensor, counts: Tensor) -> Tensor:
    """Sum neighbours; on a GPU in one order every time, which ``index_add_`` has only on a CPU."""
    if values.is_cuda:
        lead = values.shape[:-2]
        flat = values.reshape(-1, *values.shape[-2:]).movedim(-2, 0).contiguous()
        sums = torch.segment_reduce(flat, "sum", lengths=counts, axis=0)
        return sums.movedim(0, -2).reshape(*lead, len(counts), values.shape[-1])
    out = values.new_zeros(*values.shape[:-2], len(counts), values.shape[-1])
    return out.index_add_(-2, owner, values)


def blocks(z: Floats, offsets: Ints, person: Ints, elements: int, device: torch.device) -> Iterator[PersonBlock]:
    """Cut sets (M, K), with their persons (T,), into blocks of about so many rows, and at least one person.

    Parameters
    ----------
    z, offsets
        (M, K) rows of all sets, and (T + 1,) where each set begins.
    person
        (T,) number of each set's person; the sets of a person need not follow each other.
    elements
        Rows of a block, at most, unless a single person has more.
    device
        Where the blocks are to be.
    """
    # 1. Sets person by person, and how many rows each person has.
    order = np.argsort(person, kind="stable")
    known, counts = np.unique(person, return_counts=True)  # persons that have rows
    sizes = np.diff(offsets)[order]
    first = np.cumsum(counts) - counts
    rows = np.add.reduceat(sizes, first) if len(known) else sizes
    # 2. Persons of like numbers of rows go together, so that little is padded.
    ranked = np.argsort(rows, kind="stable")
    for group in _cuts(rows[ranked], elements):
        members = ranked[group]
        yield _block(
            z, offsets, known[members], order[consecutive_indices(first[members], counts[members])], person, device
        )


def _cuts(rows: Ints, most: int) -> Iterator[slice]:
    """Cut persons, ordered by their numbers of rows, where a block is full."""
    begin = 0
    while begin < len(rows):
        end = begin + 1
        while end < len(rows) and (end + 1 - begin) * rows[end] <= most:
            end += 1
        yield slice(begin, end)
        begin = end


def _block(z: Floats, offsets: Ints, persons: Ints, sets: Ints, person: Ints, device: torch.device) -> PersonBlock:
    """Put the rows of some sets, person after person, into a block."""
    # 1. Whose each set is, how many rows a person has, and the most of them, m.
    place = {int(n): k for k, n in enumerate(persons)}
    owner = np.array([place[int(n)] for n in person[sets]], np.int64)
    sizes = np.diff(offsets)[sets]
    per_person = np.bincount(owner, sizes, minlength=len(persons)).astype(np.int64)
    m = int(per_person.max())
    # 2. Empty rows are counted to the person's last set.
    ends = np.cumsum(np.bincount(owner, minlength=len(persons)))
    padded = sizes.copy()
    padded[ends - 1] += m - per_person
    # 3. The rows of every person from the beginning of its m on; zeros after them.
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
# Probabilities of a mixed logit for people who are not known: means over draws that all choice sets share.
#
# P(i | S) = mean_r exp(v_ir) / sum_j exp(v_jr), with v_ir the utility in draw r. Every set has the same draws, so that
# sets that are alike have the same probabilities, whoever chooses and whatever else is in the table. All in float64.

_UTILITIES_AT_ONCE = 2**17  # utilities at a time


@dataclass(frozen=True)
class Population:
    """The coefficients of people, in draws that stand for all of them."""

    mixing: MixingDistribution
    x: Floats  # (P,) parameters
    draws: PersonDraws

    def coefficients(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return the coefficients of all columns in the utility, for individuals with these numbers."""
        return self.mixing.in_utility(self.worths(h))

    def worths(self, h: Floats) -> Tensor:  # (N, G) -> (N, K, R)
        """Return the same as they are estimated: in willingness-to-pay space, the cost's and the others' worths."""
        mixing = self.mixing
        locations = torch.from_numpy(mixing.locations(self.x, h))
        triangle, standard = torch.from_numpy(mixing.triangle(self.x)), mixing.standard(self.draws.common()).double()
        random = mixing.sample(locations, triangle, standard.expand(len(h), -1, -1)).value
        return mixing.whole(self.x, random)

    def log_probabilities(self, x: Floats, offsets: Ints, h: Floats) -> Floats:  # (N, K), (S + 1,), (S, G) -> (N,)
        """Return the log-probability of every alternative."""

        def ask(utilities: Tensor) -> Tensor:  # (N, m, R) -> (N, m)
            return utilities.log_softmax(1).logsumexp(2).sub_(math.log(utilities.shape[2]))

        return self._by_row(x, offsets, h, ask)

    def log_probabilities_by_draw(self, x: Floats, offsets: Ints, h: Floats) -> Floats:  # -> (N, R)
        """Return the log-probability of every alternative in each draw."""
        return self._by_row(x, offsets, h, lambda utilities: utilities.log_softmax(1))

    def _by_row(
        self, x: Floats, offsets: Ints, h: Floats, ask: Callable[[Tensor], Tensor]
    ) -> Floats:  # -> (N,) or (N, R)
        """Ask for something of every alternative; answers of empty places are left out."""
        parts = self._by_block(x, offsets, h, ask)
        out = np.empty((len(x), *parts[0][1].shape[2:]))
        for block, found in parts:
            kept = np.ones(len(block.set_of_row), np.bool_)
            kept[block.empty_rows.numpy()] = False
            out[block.rows] = found.reshape(-1, *found.shape[2:])[kept]
        return out

    def log_sums(self, x: Floats, offsets: Ints, h: Floats) -> Floats:  # (N, K), (S + 1,), (S, G) -> (S, R)
        """Return the expected largest utility of each set in each draw."""
        out = np.empty((len(offsets) - 1, self.draws.number))
        for block, found in self._by_block(x, offsets, h, lambda utilities: utilities.logsumexp(1)):
            out[block.persons] = found
        return out

    def _by_block(
        self, x: Floats, offsets: Ints, h: Floats, ask: Callable[[Tensor], Tensor]
    ) -> list[tuple[PersonBlock, Floats]]:
        """Ask for something of utilities (sets, alternatives, draws), -inf where a set has no more alternatives."""
        shared = None if h.shape[1] else self.coefficients(np.zeros((1, 0)))[0]

        def answer(block: PersonBlock) -> tuple[PersonBlock, Floats]:
            if shared is not None:
                utilities = (block.z.reshape(-1, block.z.shape[2]) @ shared).view(*block.z.shape[:2], -1)
            else:
                utilities = torch.bmm(block.z, self.coefficients(h[block.persons]))
            utilities.view(-1, utilities.shape[2]).index_fill_(0, block.empty_rows, -torch.inf)
            return block, ask(utilities).numpy()

        every = np.arange(len(offsets) - 1)
        most = max(_UTILITIES_AT_ONCE // self.draws.number, 1)
        return run_in_threads(answer, list(blocks(x, offsets, every, most, torch.device("cpu"))))


# -- Derivatives of a mixed logit's probabilities in a column of the table ---------------------------------------------
# With p_ir the probability of alternative i in draw r and u_ir = d v_ir / d x_j, the logit of each draw has (see
# `logit_effects.py`) d log p_ir / d x_j = u_ir - sum_m p_mr u_mr, and the mean over draws P_i = mean_r p_ir
#
#     d log P_i / d x_j = mean_r p_ir (u_ir - sum_m p_mr u_mr) / P_i.

_SLOPE_UTILITIES_AT_ONCE = 2**21  # utilities at a time

Table = Callable[[ChoiceData], Floats]


def mixed_slopes(
    people: Population, design: Design, data: ChoiceData, column: str, columns: Table, who: Table
) -> Floats:
    """Return d log P(i) / d x_j over the ordered pairs of each set; for an individual's column (N,) d log P(i) / dx.

    ``columns`` and ``who`` give the columns of the utility (N, K), and the numbers of individuals (S, G), of a table.
    """
    # Sets in parts that bound memory; each fills its own stretch of the result.
    feature = column in data.features
    lengths = data.sizes**2 if feature else data.sizes
    out, ends = np.zeros(int(lengths.sum())), np.cumsum(lengths)
    stretch = np.cumsum(data.sizes * people.draws.number) // _SLOPE_UTILITIES_AT_ONCE
    for sets in np.split(np.arange(len(data)), np.flatnonzero(np.diff(stretch)) + 1):
        part = data.subset(sets)
        inside = slice(int(ends[sets[0]] - lengths[sets[0]]), int(ends[sets[-1]]))
        out[inside] = _part(people, design, part, column, columns(part), who(part), int(lengths[sets].sum()))
    return out


def _part(
    people: Population, design: Design, data: ChoiceData, column: str, x: Floats, h: Floats, length: int
) -> Floats:
    """Differentiate some sets."""
    # 1. Probabilities in every draw.
    b = people.coefficients(h if h.shape[1] else np.zeros((1, 0))).numpy()  # (1 or S, K, R)
    of_row = data.set_of_alternative if len(b) > 1 else np.zeros(len(x), np.int64)
    p = _softmax(_product(x, b, of_row), data.offsets)  # (N, R)
    out = np.zeros(length)
    # 2. For each alternative whose column moves, the derivative of the mean over draws, as in the header.
    for rows, offsets, cells, which, slope in moves(design, data, column):
        used = np.flatnonzero(which)
        u = _product(slope, b[:, used], of_row[rows])
        mine = p[rows]
        change = mine * (u - spread(sum_by_set(mine * u, offsets), offsets))
        out[cells] = change.mean(axis=1) / mine.mean(axis=1)
    return out


def _product(x: Floats, b: Floats, of_row: Ints) -> Floats:  # (N, K), (S, K, R), (N,) -> (N, R)
    """Multiply each row by the coefficients of its set."""
    if len(b) == 1:
        return np.asarray(x @ b[0])
    out = np.zeros((len(x), b.shape[2]))
    for k in range(x.shape[1]):
        out += x[:, k, None] * b[of_row, k]
    return out


def _softmax(v: Floats, offsets: Ints) -> Floats:  # (N, R) -> (N, R)
    """Return the probabilities within each set, draw by draw."""
    e = np.exp(v - spread(max_by_set(v, offsets), offsets))
    return np.asarray(e / spread(sum_by_set(e, offsets), offsets))
