"""Conversion of counts by market to choices: the grouped likelihood.

A row of a market-level table counts the customers n_i who chose alternative i in a market, such as a shop in a week.
All customers of a market have the same choice set S, so the log-likelihood of the market is

    sum over i in S of n_i log P(i | S).

It is the log-likelihood of one choice set for each alternative i with n_i > 0, in which i is chosen, with the weight
n_i. Any choice model can be fitted to these weighted choice sets. The counts may be shares of the market: weights are
only relative then.

Shapes: N alternatives of S markets -> N' alternatives of S' choice sets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data.columns.ragged import consecutive_indices, sum_by_set
from pcmcnet.data.subsets import repeated_sets
from pcmcnet.errors import InputError

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData
    from pcmcnet.data.column_reader import ColumnReader
    from pcmcnet.data.read_long import SetLayout

_REMEDY = "Write the number of choices of the alternative, or its share; 0 if no one chose it."


def read_counts(reader: ColumnReader, hidden: ColumnReader, column: str, sets: SetLayout) -> Floats:  # -> (N,)
    """Read the number of choices of each alternative.

    Raises SchemaError unless counts are finite, at least 0, and positive for an alternative of each market.
    """
    values = reader.exact(column, categorical=False).values.astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    reader.require_valid(column, bad, "expected a count of at least 0", _REMEDY, lambda at: f"{values[at]:g}")
    unavailable = hidden.exact(column, categorical=False).values.astype(np.float64)
    problem = "an alternative that is marked unavailable has a count above 0"
    hidden.require_valid(column, unavailable > 0, problem, "Correct one of the two columns.")
    without = np.flatnonzero(sum_by_set(values, sets.offsets) == 0) if len(values) else np.empty(0, np.int64)
    if without.size:
        raise sets.error_at(without, f"column {column!r}: all counts are 0", "Drop these sets, or correct them.")
    return values


def choices_of_counts(fields: dict[str, Any], counts: Floats) -> dict[str, Any]:
    """Convert the fields and counts (N,) of markets to the fields of a ``ChoiceData`` with weighted choices.

    The id of a choice set is the id of its market followed by ``/1``, ``/2`` and so on, in the order of the chosen
    alternatives. The rows are renumbered, with one row per alternative of each choice set.
    """
    offsets = fields["offsets"]
    set_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    # 1. One choice set for each alternative that was chosen.
    chosen = np.flatnonzero(counts > 0)
    of = set_of[chosen]  # (S',) markets
    sizes = np.diff(offsets)[of]
    flat = consecutive_indices(offsets[of], sizes)
    # 2. The columns of these choice sets.
    return repeated_sets(fields, of, flat) | {
        "offsets": np.concatenate([[0], np.cumsum(sizes)]),
        "chosen": chosen - offsets[of],
        "weights": fields["weights"][of] * counts[chosen],
    }


def markets(data: ChoiceData) -> tuple[ChoiceData, Floats]:
    """Return one choice set per market, with the id of the market, and the counts (N,) of its alternatives.

    This is the inverse of :func:`choices_of_counts`. If the table has a weight column, the counts include the weights.

    Parameters
    ----------
    data
        Choice sets that were read with ``counts``.

    Raises
    ------
    InputError
        If the table was not read with ``counts``, or if some choices of a market are not in the data.
    """
    if data.schema.counts is None:
        raise InputError("expected a table of markets: read it with counts=<column>.")
    chosen = data.require_chosen("a table of markets")
    parts = [str(name).rpartition("/") for name in data.set_ids]  # ids made by `choices_of_counts`
    ids, numbers = np.array([part[0] for part in parts], object), np.array([int(part[2]) for part in parts], np.int64)
    is_first = numbers == 1
    follows = np.append(False, (ids[1:] == ids[:-1]) & (numbers[1:] == numbers[:-1] + 1))
    if not (is_first | follows).all():
        bad = int(np.argmin(is_first | follows))
        raise InputError(
            f"choice set {data.set_ids[bad]} belongs to a market whose other choices are not in the data: split "
            f"markets as a whole."
        )
    market = np.cumsum(is_first) - 1
    firsts = data.subset(is_first)
    counts = np.zeros(len(firsts.rows))
    np.add.at(counts, firsts.offsets[market] + chosen, data.weights)
    return replace(firsts, set_ids=ids[is_first], weights=np.ones(len(firsts))), counts
