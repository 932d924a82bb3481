"""Utilities for simulated tables: drawing choices from known probabilities, and the best possible loss.

Let p_S be the true probabilities of choice set S, and y_S the choice drawn from p_S. Then

    expected best NLL = mean over S of - sum_i p_S(i) log p_S(i)   (the entropy of the true probabilities),
    realised best NLL = mean over S of - log p_S(y_S)              (the score of the true probabilities on this table).

The realised best NLL varies randomly around the expected best NLL. The NLL of a model on a table should be compared
with the realised best NLL. Shapes: probabilities (N,) of all alternatives, sorted by set, and offsets (S + 1,).
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
    """The mean negative log-likelihood of the true probabilities, which no model can beat on average."""

    expected: float  # over all choices that may be drawn
    realised: float  # over the choices in the table


def best_nll(table: pa.Table, *, choice_set: str = "choice_set", chosen: str = "chosen") -> BestNLL:
    """Compute the NLL of the true probabilities of a simulated table.

    Parameters
    ----------
    table : pyarrow.Table
        Simulated table with a column true_prob, in which the rows of a choice set are adjacent.
    choice_set : str
        Column with the id of the choice set. Default "choice_set".
    chosen : str
        Column that is 1 for the chosen alternative and 0 for the other alternatives. Default "chosen".

    Returns
    -------
    BestNLL
        The expected NLL and the realised NLL.

    Raises
    ------
    InputError
        If a column is missing, or if the rows of a set are not adjacent.

    Examples
    --------
    >>> table = pa.table({"choice_set": [0, 0, 1], "chosen": [0, 1, 1], "true_prob": [0.75, 0.25, 1.0]})
    >>> [round(value, 3) for value in best_nll(table)]
    [0.281, 0.693]
    """
    for name in (choice_set, chosen, "true_prob"):
        if name not in table.column_names:
            raise InputError(f"expected a column {name!r}, got {table.column_names}. Pass the name of the column.")
    offsets = contiguous_offsets(table[choice_set].to_numpy(), column=choice_set)
    p = table["true_prob"].to_numpy().astype(np.float64)
    log_p = np.log(np.where(p > 0, p, 1))  # p log p -> 0
    is_chosen = table[chosen].to_numpy().astype(bool)
    n_sets = len(offsets) - 1
    return BestNLL(-float((p * log_p).sum()) / n_sets, -float(log_p[is_chosen].sum()) / n_sets)


def sample(p: Floats, offsets: Ints, rng: np.random.Generator) -> Ints:
    """Draw one alternative from each choice set.

    Parameters
    ----------
    p : array, (N,)
        Probabilities of the alternatives, sorted by set.
    offsets : array of int, (S + 1,)
        Index of the first row of each set, followed by N.
    rng : numpy.random.Generator
        Random number generator.

    Returns
    -------
    array of int, (S,)
        Row index of the drawn alternative of each set.
    """
    within = np.cumsum(p)
    before = np.concatenate([[0.0], within])[offsets]
    draw = before[:-1] + rng.random(len(offsets) - 1) * np.diff(before)
    # clip: rounding may put a draw at the last threshold of its set
    rows: Ints = np.searchsorted(within, draw, side="right")
    return np.clip(rows, offsets[:-1], offsets[1:] - 1)


def contiguous_offsets(ids: NDArray[np.generic], *, column: str) -> Ints:
    """Return the index of the first row of each set, followed by the number of rows: (N,) -> (S + 1,).

    Raise InputError if the rows of a set are not adjacent.
    """
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]])) if len(ids) else np.zeros(0, np.int64)
    distinct = len(np.unique(ids))
    if len(starts) != distinct or not distinct:
        raise InputError(
            f"column {column!r}: expected adjacent rows for each choice set, got {distinct} sets in "
            f"{len(starts)} runs of rows. Sort the table by {column!r}."
        )
    return np.append(starts, len(ids)).astype(np.int64)


def require_sets(sets: int) -> int:
    """Return the number of sets, or raise ConfigError unless it is an integer from 1 to 2^31 - 1 (int32 ids)."""
    limit = np.iinfo(np.int32).max
    if not isinstance(sets, Integral) or isinstance(sets, bool) or not 1 <= sets <= limit:
        raise ConfigError(f"sets: expected a whole number from 1 to {limit}, got {sets!r}.")
    return int(sets)


def require_seed(seed: int) -> int:
    """Return the seed, or raise ConfigError unless it is an integer of at least 0."""
    if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"seed: expected a whole number, 0 or above, got {seed!r}. Pass, for example, seed=0.")
    return int(seed)
