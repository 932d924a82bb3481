"""Conversion of rankings to choices, as in the rank-ordered (exploded) logit (Beggs, Cardell & Hausman, 1981).

A ranking is a sequence of choices: first the best of all alternatives, then the best of the remaining ones, and so on.

    P(1 before 2 before ... before n) = P(1 | 1..n) P(2 | 2..n) ... P(n-1 | n-1, n).

The factorisation of a ranking into choices is exact for the logit. Any choice model can be fitted to the resulting
choice sets. A ranking gives up to n - 1 sets, and the k-th set holds the alternatives that are not among the k - 1
best. A partial ranking gives fewer sets: alternatives without a rank are below all ranked alternatives, in no
particular order. If exactly one alternative has no rank, it gets the only remaining rank, unless that is rank 1. For
example, the best and the worst of three alternatives determine the full ranking.

Shapes: N alternatives of S rankings -> N' alternatives of S' choice sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.columns.arrays import take
from pcmcnet.data.columns.ragged import spread

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData
    from pcmcnet.data.column_reader import ColumnReader
    from pcmcnet.data.read_long import SetLayout

MUST_BE_AVAILABLE = "alternative must be available: correct one of the two columns."
_RANK_REMEDY = "Write 1 for the best, 2 for the next and so on, and nothing for alternatives without a rank."


def first_choices(data: ChoiceData) -> ChoiceData:
    """Return the first choice of each ranking, made among all alternatives.

    Data without rankings is returned unchanged.
    """
    if data.schema.rank is None:
        return data
    return data.subset([str(name).endswith("/1") for name in data.set_ids])  # ids made by `explode`


def read_ranks(reader: ColumnReader, hidden: ColumnReader, column: str, sets: SetLayout) -> Floats:  # -> (N,)
    """Read the rank of each alternative, which is inf if the table gives no rank.

    Raises SchemaError unless the ranks of each set are 1, 2, ... without ties or gaps.
    """
    ranks = _ranks_or_inf(reader, column)
    problem = "a ranked alternative is marked unavailable"
    hidden.require_valid(column, np.isfinite(_ranks_or_inf(hidden, column)), problem, f"A ranked {MUST_BE_AVAILABLE}")
    set_of = sets.of(np.arange(len(ranks)))
    ranks = _with_last_rank(ranks, set_of, np.diff(sets.offsets))
    ranked = np.isfinite(ranks)
    _, pairs, counts = np.unique(
        np.stack([set_of[ranked], ranks[ranked]]), axis=1, return_index=True, return_counts=True
    )
    tied = np.unique(set_of[ranked][pairs[counts > 1]])
    if tied.size:
        remedy = "Break the ties, or leave the ranks of tied alternatives and all alternatives below them empty."
        raise sets.error_at(tied, f"column {column!r}: several alternatives have the same rank", remedy)
    n_ranked = np.bincount(set_of[ranked], minlength=len(sets.ids))
    if not n_ranked.all():
        unranked = np.flatnonzero(n_ranked == 0)
        raise sets.error_at(unranked, f"column {column!r}: no alternative has a rank", "Drop these sets.")
    incomplete = np.unique(set_of[ranked & (ranks > spread(n_ranked, sets.offsets))])
    if incomplete.size:
        listed = ", ".join(f"{rank:g}" for rank in np.sort(ranks[ranked & (set_of == incomplete[0])])[:8])
        raise sets.error_at(
            incomplete,
            f"column {column!r}: ranks must be 1, 2, ... without a gap, got {listed}",
            "Correct them. If only the best and the worst of more than three alternatives are known, give only the "
            "best a rank.",
        )
    return ranks


def _ranks_or_inf(reader: ColumnReader, column: str) -> Floats:
    """Read ranks, which are integers of at least 1. Missing values become inf."""
    values = reader.exact(column, categorical=False).values.astype(np.float64)
    bad = ~np.isnan(values) & ~((values >= 1) & (values == np.floor(values)) & np.isfinite(values))
    problem = "expected a rank of 1, 2, 3 and so on"
    reader.require_valid(column, bad, problem, _RANK_REMEDY, lambda at: f"{values[at]:g}")
    return np.where(np.isnan(values), np.inf, values)


def _with_last_rank(ranks: Floats, set_of: Ints, sizes: Ints) -> Floats:
    """Fill in the last missing rank of each set, if only one alternative has no rank and the missing rank is not 1."""
    without = np.isinf(ranks)
    total = np.bincount(set_of, np.where(without, 0.0, ranks), minlength=len(sizes))
    left = sizes * (sizes + 1) / 2 - total
    largest = np.zeros(len(sizes))
    np.maximum.at(largest, set_of[~without], ranks[~without])
    fits = (np.bincount(set_of[without], minlength=len(sizes)) == 1) & (left > 1) & (largest <= sizes)
    return np.where(without & fits[set_of], left[set_of], ranks)


def explode(fields: dict[str, Any], ranks: Floats) -> dict[str, Any]:
    """Convert the fields and ranks (N,) of rankings to the fields of a ``ChoiceData`` with choices.

    The id of a choice set is the id of its ranking followed by ``/1``, ``/2`` and so on. The rows are renumbered, with
    one row per alternative of each choice set.
    """
    offsets = fields["offsets"]
    sizes = np.diff(offsets)
    set_of = np.repeat(np.arange(len(sizes)), sizes)
    ranked = np.bincount(set_of[np.isfinite(ranks)], minlength=len(sizes))
    # 1. Find the number of choices of each ranking, and the remaining alternatives at each stage.
    choices = np.maximum(np.minimum(ranked, sizes - 1), 1)  # keep sets of one alternative
    stages = [np.flatnonzero((ranks >= k) & (choices[set_of] >= k)) for k in range(1, int(choices.max(initial=0)) + 1)]
    flat = np.concatenate([*stages, np.empty(0, np.int64)]).astype(np.int64)
    stage = np.repeat(np.arange(1, len(stages) + 1), [len(s) for s in stages])
    # 2. Sort the choices by ranking, and find where each begins.
    order = np.lexsort((flat, stage, set_of[flat]))
    flat, stage = flat[order], stage[order]
    of = np.repeat(np.arange(len(sizes)), choices)  # (S',) rankings
    number = np.arange(len(of)) - np.repeat(np.cumsum(choices) - choices, choices)
    begin = np.flatnonzero(np.diff(set_of[flat], prepend=-1) | np.diff(stage, prepend=0))
    return fields | {
        "offsets": np.append(begin, len(flat)),
        "set_ids": np.array([f"{fields['set_ids'][s]}/{k + 1}" for s, k in zip(of, number, strict=True)], object),
        "chosen": np.flatnonzero(ranks[flat] == stage) - begin,
        "weights": fields["weights"][of],
        "features": take(fields["features"], flat),
        "labels": None if fields["labels"] is None else fields["labels"].take(flat),
        "individual": take(fields["individual"], of),
        "keep": take(fields["keep"], of),
        "rows": np.arange(len(flat)),
        "hidden_rows": np.empty(0, np.int64),
        "hidden_sets": np.empty(0, np.int64),
        "added": 0,
    }
