"""Which columns of a design can have a coefficient at all.

A coefficient multiplies differences within choice sets. A column without any, or one that is a linear combination of
others within every set, leaves its coefficient undetermined: it is named, with the others, and never dropped silently.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters

# Squared sine of the angle between a column and the span of the others. Columns come from float32 numbers, whose
# rounding leaves exact combinations at 1e-14, or at more where numbers are large beside their differences.
_ALIKE = 1e-8


def require_identified(
    z: Floats, names: Sequence[str], within: Parameters | None = None
) -> None:  # (M, K) differences within sets
    """Refuse a design with columns that have no coefficient of their own; those that ``within`` fixes need none.

    Raises
    ------
    InputError
        Naming a column and those it depends on, with the number of such columns.
    """
    if within is not None and within.fixed.any():
        free = np.flatnonzero(~within.fixed[: len(names)]).tolist()
        z, names = z[:, free], [names[k] for k in free]
    lost = dependent_columns(z)
    still = [names[k] for k, others in lost if not others]
    if still:
        raise InputError(
            f"{still[0]!r} does not differ between the alternatives of any choice set, so it can have no "
            f"coefficient; {len(still)} such column{'s' * (len(still) > 1)}: {listed(still)}. "
            f"Leave {'them' if len(still) > 1 else 'it'} out of the formula."
        )
    if lost:
        column, others = lost[0]
        raise InputError(
            f"singular design: within every choice set {names[column]!r} is a linear combination of "
            f"{listed([names[j] for j in others])}, so their coefficients cannot be told apart; {len(lost)} such "
            f"column{'s' * (len(lost) > 1)}: {listed([names[k] for k, _ in lost])}. Leave one of each out."
        )


def dependent_columns(z: Floats) -> list[tuple[int, list[int]]]:  # (M, K)
    """Return the columns that are linear combinations of earlier ones, with those: none, for a column of zeros."""
    # 1. Columns of length 1, without those that are 0 everywhere.
    gram = z.T @ z
    length = np.sqrt(np.diag(gram))
    moves = np.flatnonzero(length > 0)
    lost: list[tuple[int, list[int]]] = [(k, []) for k in np.flatnonzero(length == 0).tolist()]
    gram = gram[np.ix_(moves, moves)] / np.outer(length[moves], length[moves])
    if not len(moves) or np.linalg.eigvalsh(gram)[0] > _ALIKE:  # no squared sine is smaller than this eigenvalue
        return lost
    # 2. Column by column: project on those kept so far. What is left of a dependent column is rounding.
    kept: list[int] = []
    for k in range(len(gram)):
        weights = np.linalg.solve(gram[np.ix_(kept, kept)], gram[kept, k]) if kept else np.zeros(0)
        if gram[k, k] - gram[kept, k] @ weights > _ALIKE:
            kept.append(k)
        else:
            others = [int(moves[j]) for j, w in zip(kept, weights, strict=True) if abs(w) > 1e-4]
            lost.append((int(moves[k]), others))
    return sorted(lost)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Quote names, the first few of many."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
