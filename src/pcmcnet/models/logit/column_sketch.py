"""Sketch of the columns of a utility, which makes it possible to compare the utilities of two fits without their table.

Utilities are identified up to a constant in each choice set, so let Z (M, K) contain the differences between the
alternatives that are not chosen and the chosen one. The linear utilities Z_s b of one model are special cases of the
utilities Z_l c of another model if each column of Z_s is a linear combination of the columns of Z_l.

The sketch R Z (B, K) multiplies each row of Z by a random number and adds it to a random one of B rows (Clarkson &
Woodruff, 2013). R is the same for all models of a table. If Z_s = Z_l T, then R Z_s = R Z_l T, so a combination of
columns remains a combination in the sketch. A column that is not a combination almost surely does not become one, as
long as the sketch has more rows than columns.
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.data import ChoiceData
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood

SKETCH_ROWS = 160
MAX_SKETCHED_COLUMNS = 128  # designs with more columns have no sketch
# Columns of a table have 24 bits. A column that a user computed from other columns is a combination of them only up to
# rounding, and differences within sets may be a thousand times smaller than the numbers themselves. Columns that agree
# to this relative precision have the same likelihood for all practical purposes.
_MAX_ROUNDING = 1e-3


def sketch_columns(design: Design, sets: ChoiceData) -> Floats | None:  # -> (B, K)
    """Return the sketch of the columns of a utility, or None if it is not linear or has too many columns."""
    if not design.form.is_linear or len(design.columns) > MAX_SKETCHED_COLUMNS:
        return None
    z = LogitLikelihood.from_matrix(design.matrix(sets), sets.offsets, sets.require_chosen("a sketch")).z
    rng = np.random.default_rng(0)
    row, factor = rng.integers(SKETCH_ROWS, size=len(z)), rng.standard_normal(len(z))
    return np.column_stack([np.bincount(row, factor * column, minlength=SKETCH_ROWS) for column in z.T])


def outside_span(columns: Floats, basis: Floats) -> Bools:  # (B, C), (B, K) -> (C,)
    """Return True for each column that is not a linear combination of the columns of the basis."""
    norms = np.linalg.norm(columns, axis=0)
    if not basis.shape[1]:
        return np.asarray(norms > 0)
    scaled = basis / np.maximum(np.linalg.norm(basis, axis=0), np.finfo(np.float64).tiny)
    rest = columns - scaled @ np.linalg.lstsq(scaled, columns)[0]
    return np.asarray(np.linalg.norm(rest, axis=0) > _MAX_ROUNDING * norms)
