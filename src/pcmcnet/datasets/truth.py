"""What a simulated table knows: choices drawn from known probabilities, and the loss that no model can beat.

With p the true probabilities of a table's choice sets S and y the choices drawn from them,

    expected best NLL = mean over S of - sum_i p_S(i) log p_S(i)   (the entropy of the true law),
    realised best NLL = mean over S of - log p_S(y_S)              (what the truth itself scores on this table).

The second varies about the first with the choices drawn; a model's NLL on the table is to be compared with it.
Shapes: probabilities (N,) of all alternatives, set after set, and offsets (S + 1,).
"""

from __future__ import annotations

from numbers import Integral
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.errors import ConfigError, InputError

__all__ = ["BestNLL", "best_nll", "contiguous_offsets", "require_seed", "require_sets", "sample"]


class BestNLL(NamedTuple):
    """The best possible mean negative log-likelihood: over all choices that might be drawn, and over those drawn."""

    expected: float
    realised: float


def best_nll(table: pa.Table, *, choice_set: str = "choice_set", chosen: str = "chosen") -> BestNLL:
    """Compute the loss of the true probabilities of a simulated table.

    Parameters
    ----------
    table
        As a simulator returns it, with a column true_prob; the rows of a choice set stand together.
    choice_set, chosen
        Names of the columns that hold a set's identity and the choice (0 or 1).

    Raises
    ------
    InputError
        A column is missing, or the rows of a set do not stand together.

    Examples
    --------
    >>> table = pa.table({"choice_set": [0, 0, 1], "chosen": [0, 1, 1], "true_prob": [0.75, 0.25, 1.0]})
    >>> [round(value, 3) for value in best_nll(table)]
    [0.281, 0.693]
    """
    for name in (choice_set, chosen, "true_prob"):
        if name not in table.column_names:
            raise InputError(f"expected a column {name!r}, got {table.column_names}. Name the column in the call.")
    offsets = contiguous_offsets(table[choice_set].to_numpy(), column=choice_set)
    p = table["true_prob"].to_numpy().astype(np.float64)
    log_p = np.log(np.where(p > 0, p, 1))  # p log p -> 0
    taken = table[chosen].to_numpy().astype(bool)
    n_sets = len(offsets) - 1
    return BestNLL(-float((p * log_p).sum()) / n_sets, -float(log_p[taken].sum()) / n_sets)


def sample(p: Floats, offsets: Ints, rng: np.random.Generator) -> Ints:
    """Draw one alternative of each set; return the row of each choice (S,)."""
    within = np.cumsum(p)
    before = np.concatenate([[0.0], within])[offsets]
    draw = before[:-1] + rng.random(len(offsets) - 1) * np.diff(before)
    # A draw never reaches the set's last threshold but by rounding, nor falls before its first row.
    rows: Ints = np.searchsorted(within, draw, side="right")
    return np.clip(rows, offsets[:-1], offsets[1:] - 1)


def contiguous_offsets(ids: NDArray[np.generic], *, column: str) -> Ints:
    """Return where each set's rows begin, and the number of rows: (N,) -> (S + 1,)."""
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]])) if len(ids) else np.zeros(0, np.int64)
    distinct = len(np.unique(ids))
    if len(starts) != distinct or not distinct:
        raise InputError(
            f"column {column!r}: expected the rows of each choice set to stand together, got {distinct} sets in "
            f"{len(starts)} runs of rows. Sort the table by {column!r}."
        )
    return np.append(starts, len(ids)).astype(np.int64)


def require_sets(sets: int) -> int:
    """Refuse a number of sets that an int32 column cannot count."""
    most = np.iinfo(np.int32).max
    if not isinstance(sets, Integral) or isinstance(sets, bool) or not 1 <= sets <= most:
        raise ConfigError(f"sets: expected a whole number from 1 to {most}, got {sets!r}. Ask for at least one set.")
    return int(sets)


def require_seed(seed: int) -> int:
    """Refuse a seed that is no whole number from 0 up."""
    if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"seed: expected a whole number, 0 or above, got {seed!r}. Pass one, for example seed=0.")
    return int(seed)
