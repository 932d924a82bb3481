"""Derivatives of a mixed logit's probabilities in a column of the table.

With p_ir the probability of alternative i in draw r and u_ir = d v_ir / d x_j, the logit of each draw has (see
``logit_effects.py``) d log p_ir / d x_j = u_ir - sum_m p_mr u_mr, and the mean over draws P_i = mean_r p_ir

    d log P_i / d x_j = mean_r p_ir (u_ir - sum_m p_mr u_mr) / P_i.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import max_by_set, spread, sum_by_set
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.logit_effects import _moves as moves
from pcmcnet.models.logits.simulation.population import Population

_NUMBERS = 2**21  # utilities at a time

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
    stretch = np.cumsum(data.sizes * people.draws.number) // _NUMBERS
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
