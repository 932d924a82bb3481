"""Conversion of rankings to choices, as in the rank-ordered (exploded) logit (Beggs, Cardell & Hausman, 1981).

A ranking is a sequence of choices: first the best of all alternatives, then the best of the remaining ones, and so on.

    P(1 before 2 before ... before n) = P(1 | 1..n) P(2 | 2..n) ... P(n-1 | n-1, n).

The factorisation of a ranking into choices is exact for the logit. Any choice model can be fitted to the resulting
choice sets. A ranking gives up to n - 1 sets, and the k-th set holds the alternatives that are not among the k - 1
best. A partial ranking gives fewer sets: alternatives without a rank are below all ranked alternatives, in no
particular order. If exactly one alternative has no rank, it gets the only remaining rank, unless that is rank 1. For
example, the best and the worst of three alternatives determine the full ranking.

The worst alternatives have the ranks -1, -2, ..., counted from the worst (best-worst scaling, Louviere, Flynn and
Marley, 2015). They are chosen after the best ones. In the maxdiff logit, the worst of m remaining alternatives R is

    P(k worst | R) = exp(-v_k) / sum_{j in R} exp(-v_j).

Given that the worst is j or k, it is k with probability exp(v_j) / (exp(v_j) + exp(v_k)): the logit's probability of j
in the pair {j, k}. So a worst alternative becomes m - 1 pairs, in which each other alternative j is chosen over k. The
conditional likelihood of the pairs is consistent for the maxdiff logit (McFadden, 1978), and pairs are choice sets that
every model can be fitted to. The weight of each pair is 2 / m, with which the Hessian at v = 0 is that of the maxdiff
likelihood: by symmetry, the sum of (x_j - x_k)^2 / 4 over the pairs has the mean m / 2 times that of the variance of x
within R. Pairs of the same worst alternative depend on each other, so standard errors have to be clustered.

Shapes: N alternatives of S rankings -> N' alternatives of S' choice sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data.columns.ragged import spread
from pcmcnet.data.subsets import repeated_sets

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData
    from pcmcnet.data.column_reader import ColumnReader
    from pcmcnet.data.read_long import SetLayout

MUST_BE_AVAILABLE = "alternative must be available: correct one of the two columns."
_RANK_REMEDY = (
    "Write 1 for the best, 2 for the next and so on, -1 for the worst, -2 for the next worst and so on, and nothing "
    "for alternatives without a rank."
)


def first_choices(data: ChoiceData) -> ChoiceData:
    """Return the first choice of each ranking, made among all alternatives.

    Data without rankings is returned unchanged.
    """
    if data.schema.rank is None:
        return data
    return data.subset([str(name).endswith("/1") for name in data.set_ids])  # ids made by `explode`


def read_ranks(reader: ColumnReader, hidden: ColumnReader, column: str, sets: SetLayout) -> Floats:  # -> (N,)
    """Read the rank of each alternative, which is inf if the table gives no rank.

    Raises SchemaError unless the ranks of each set are 1, 2, ... from the best, and -1, -2, ... from the worst, without
    ties or gaps.
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
    _require_best(ranks, set_of, sets, column)
    _require_no_gaps(np.where(ranks > 0, ranks, np.inf), set_of, sets, column)
    _require_no_gaps(np.where(ranks < 0, -ranks, np.inf), set_of, sets, column, sign=-1)
    return ranks


def _require_best(ranks: Floats, set_of: Ints, sets: SetLayout, column: str) -> None:
    """Raise SchemaError unless each set has an alternative with a rank above 0."""
    n_ranked, n_best = (
        np.bincount(set_of[mask], minlength=len(sets.ids)) for mask in (ranks < np.inf, (ranks > 0) & (ranks < np.inf))
    )
    if not n_ranked.all():
        raise sets.error_at(
            np.flatnonzero(n_ranked == 0), f"column {column!r}: no alternative has a rank", "Drop these sets."
        )
    if not n_best.all():
        remedy = "Give the best alternative rank 1, or drop these sets."
        raise sets.error_at(np.flatnonzero(n_best == 0), f"column {column!r}: only the worst is known", remedy)


def _require_no_gaps(ranks: Floats, set_of: Ints, sets: SetLayout, column: str, sign: int = 1) -> None:
    """Raise SchemaError unless the finite ranks of each set are 1, 2, ...; ``sign`` is -1 for ranks of the worst."""
    ranked = np.isfinite(ranks)
    n_ranked = np.bincount(set_of[ranked], minlength=len(sets.ids))
    incomplete = np.unique(set_of[ranked & (ranks > spread(n_ranked, sets.offsets))])
    if incomplete.size:
        listed = ", ".join(f"{sign * rank:g}" for rank in np.sort(ranks[ranked & (set_of == incomplete[0])])[:8])
        raise sets.error_at(
            incomplete,
            f"column {column!r}: ranks must be {sign}, {2 * sign}, ... without a gap, got {listed}",
            "Correct them. If only the best and the worst of more than three alternatives are known, write 1 for the "
            "best, -1 for the worst, and nothing for the others.",
        )


def _ranks_or_inf(reader: ColumnReader, column: str) -> Floats:
    """Read ranks, which are integers other than 0. Missing values become inf.

    If the column has ranks of the worst, 0 means no rank, so that it may be the difference of two 0/1 columns.
    """
    values = reader.exact(column, categorical=False).values.astype(np.float64)
    if (values < 0).any():
        values = np.where(values == 0, np.nan, values)
    bad = ~np.isnan(values) & ~((values != 0) & (values == np.floor(values)) & np.isfinite(values))
    problem = "expected a rank of 1, 2, 3 and so on, or of -1, -2, -3 and so on from the worst"
    reader.require_valid(column, bad, problem, _RANK_REMEDY, lambda at: f"{values[at]:g}")
    return np.where(np.isnan(values), np.inf, values)


def _with_all_ranks(ranks: Floats, set_of: Ints, sizes: Ints) -> Floats:
    """Count ranks of the worst from the best in sets in which at most one alternative has no rank."""
    has_worst = np.bincount(set_of[ranks < 0], minlength=len(sizes)) > 0
    is_full = has_worst & (np.bincount(set_of[np.isinf(ranks)], minlength=len(sizes)) <= 1)
    return np.where(is_full[set_of] & (ranks < 0), sizes[set_of] + 1 + ranks, ranks)


def _with_last_rank(ranks: Floats, set_of: Ints, sizes: Ints) -> Floats:
    """Fill in the last missing rank of each set, if only one alternative has no rank and the missing rank is not 1."""
    ranks = _with_all_ranks(ranks, set_of, sizes)
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
    # 1. The choices of the best alternatives, and the pairs of the worst ones.
    from_best, from_worst = np.where(ranks < 0, np.inf, ranks), np.where(ranks < 0, -ranks, np.inf)
    parts = [_best_choices(from_best, set_of, sizes), *_worst_pairs(from_best, from_worst, set_of, sizes)]
    flat, stage, other = (np.concatenate([part[k] for part in parts]) for k in range(3))
    is_chosen = np.concatenate([part.is_chosen for part in parts])
    factor = np.concatenate([part.factor for part in parts])
    # 2. Sort the choices by ranking, and find where each begins.
    order = np.lexsort((flat, other, stage, set_of[flat]))
    flat, stage, other, is_chosen, factor = flat[order], stage[order], other[order], is_chosen[order], factor[order]
    changes = (np.diff(column, prepend=-2) != 0 for column in (set_of[flat], stage, other))
    begin = np.flatnonzero(np.logical_or.reduce([*changes]))
    of = set_of[flat[begin]]  # (S',) rankings
    return repeated_sets(fields, of, flat) | {
        "offsets": np.append(begin, len(flat)),
        "chosen": np.flatnonzero(is_chosen) - begin,
        "weights": fields["weights"][of] * factor[begin],
    }


class _ChoiceRows(NamedTuple):
    """Alternatives of choices: position in the table, stage, compared alternative, choice, and factor of the weight."""

    flat: Ints
    stage: Ints
    other: Ints  # the alternative that is compared with the worst one, or -1
    is_chosen: Bools
    factor: Floats


def _best_choices(ranks: Floats, set_of: Ints, sizes: Ints) -> _ChoiceRows:
    """Return the choices of the best alternative among all, of the best of the remaining ones, and so on."""
    ranked = np.bincount(set_of[np.isfinite(ranks)], minlength=len(sizes))
    choices = np.maximum(np.minimum(ranked, sizes - 1), 1)  # keep sets of one alternative
    stages = [np.flatnonzero((ranks >= k) & (choices[set_of] >= k)) for k in range(1, int(choices.max(initial=0)) + 1)]
    flat = np.concatenate([*stages, np.empty(0, np.int64)]).astype(np.int64)
    stage = np.repeat(np.arange(1, len(stages) + 1), [len(s) for s in stages])
    return _ChoiceRows(flat, stage, np.full(len(flat), -1), ranks[flat] == stage, np.ones(len(flat)))


def _worst_pairs(from_best: Floats, from_worst: Floats, set_of: Ints, sizes: Ints) -> Iterator[_ChoiceRows]:
    """Yield the pairs of each worst alternative with each remaining one, worst first."""
    n_best = np.isfinite(from_best).sum()  # stages above those of all best choices
    for j in range(1, int(from_worst[np.isfinite(from_worst)].max(initial=0)) + 1):
        worst = np.full(len(sizes), -1)
        worst[set_of[from_worst == j]] = np.flatnonzero(from_worst == j)
        better = np.flatnonzero((worst[set_of] >= 0) & np.isinf(from_best) & (from_worst > j))
        remaining = np.bincount(set_of[better], minlength=len(sizes))[set_of[better]] + 1
        flat = np.concatenate([better, worst[set_of[better]]])
        is_other = np.arange(len(flat)) < len(better)
        stage = np.full(len(flat), n_best + j)
        yield _ChoiceRows(flat, stage, np.tile(better, 2), is_other, np.tile(2.0 / remaining, 2))
