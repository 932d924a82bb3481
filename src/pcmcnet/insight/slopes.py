"""Derivatives of a model's log-probabilities in one numeric column, by its own formula or by central differences.

    feature         d log p_i / d x_j for the ordered pairs (i, j) of every set, see ``ordered_pairs``: (sum n^2,)
    the individual  d log p_i / d x for every alternative i: (N,)

Networks differentiate themselves and the multinomial logit has a formula. Every other model is asked about two copies
of each set for each j, with x_j moved up and down by a small part of itself. Columns are float32, so the step that
divides the difference is the one really taken. Missing values do not move: their derivatives are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import ordered_pairs, spread, stretches
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, gives_of, predicted_log_p
from pcmcnet.insight.questions import members
from pcmcnet.insight.segments import numeric_values
from pcmcnet.insight.what_if import compose, with_values
from pcmcnet.models.interface.responses import step_sizes

Method = Literal["auto", "derivatives", "differences"]

ROWS = 2**20  # alternatives that a model is asked about at once, at most
SMOOTH, STEPPED = 1e-3, 0.1  # relative steps: those of scores and rankings, such as a forest's, must cross thresholds


def slopes(
    model: Predictor, data: ChoiceData, column: str, *, method: Method = "auto", step: float | None = None
) -> Floats:
    """Differentiate log-probabilities in a numeric feature, or in a numeric column of the individual.

    Parameters
    ----------
    model, data
        A fitted model and the choice sets to ask it about.
    column
        What changes.
    method
        "derivatives" of the model's own, "differences", or "auto" for the former where there are such.
    step
        Of differences, relative to the value (to the column's mean size where the value is 0); 0.001 by default, and
        0.1 for models whose probabilities are made of scores or rankings.

    Returns
    -------
    array
        (sum n^2,) for a feature, (N,) for a column of the individual.

    Raises
    ------
    InputError
        When the column is not numeric, or there is no such column.
    ConfigError
        When the method is unknown or the step not above 0 and below 1.
    """
    require_word("method", method, get_args(Method))
    if step is not None:
        require_number("step", step, low=0, high=1, open_low=True, open_high=True)
    numeric_values(data, column)  # refuses what has no derivative
    own: Any = getattr(model, "_slopes", None)
    if method != "differences" and own is not None:
        found: Floats | None = own(data, column)
        if found is not None:
            if not np.isfinite(found).all():
                raise InputError(f"{type(model).__name__}: not all derivatives in {column!r} are finite numbers.")
            return found
    if method == "derivatives":
        raise InputError(f"{type(model).__name__} has no derivatives of its own: use method='differences'.")
    relative = step or (SMOOTH if gives_of(model) == "probabilities" else STEPPED)
    return _differences(model, data, column, relative)


def chunks(rows: Ints) -> Iterator[Ints]:
    """Cut positions into stretches of at most ``ROWS`` rows, given the rows of each; one may exceed it alone."""
    stretch = np.cumsum(rows) // ROWS
    yield from np.split(np.arange(len(rows)), np.flatnonzero(np.diff(stretch)) + 1) if len(rows) else []


def _differences(model: Predictor, data: ChoiceData, column: str, step: float) -> Floats:
    """Ask about two copies of each set for every value that moves, as many sets at once as memory allows."""
    x, individual = numeric_values(data, column)
    ends = np.stack([x + side * step * step_sizes(x) for side in (1, -1)]).astype(np.float32)  # (2, N) or (2, S)
    p = np.exp(predicted_log_p(model, data)) if len(data) else np.empty(0)
    lengths = data.sizes if individual else data.sizes**2
    starts = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()))
    ask = _individual_changes if individual else _feature_changes
    for sets in chunks(2 * lengths):
        log_p = ask(model, data, column, sets, ends)  # (2, M)
        inside = stretches(data.offsets[sets], data.sizes[sets])
        if individual:
            base, moved = p[inside], np.repeat(sets, data.sizes[sets])
        else:
            i, j = ordered_pairs(np.concatenate([[0], np.cumsum(data.sizes[sets])]))
            base, moved = p[inside][i], inside[j]
        taken = np.nan_to_num(ends[0].astype(np.float64) - ends[1])[moved]
        out[stretches(starts[sets], lengths[sets])] = _quotient(log_p, base, taken)
    return out


def _individual_changes(model: Predictor, data: ChoiceData, column: str, sets: Ints, ends: NDArray[Any]) -> Floats:
    """Return log-probabilities with each individual's value up and down: (2, alternatives)."""
    parts = [members(data, s) for s in sets]
    both = compose(data, parts * 2, np.tile(sets, 2))
    return predicted_log_p(model, with_values(both, column, ends[:, sets].ravel())).reshape(2, -1)


def _feature_changes(model: Predictor, data: ChoiceData, column: str, sets: Ints, ends: NDArray[Any]) -> Floats:
    """Return log-probabilities of i with the value of j up and down: (2, ordered pairs (i, j))."""
    sizes = data.sizes[sets]
    owners = stretches(data.offsets[sets], sizes)  # the j of each copy
    copies = [part for s in sets for part in [members(data, s)] * data.sizes[s]]
    both = compose(data, copies * 2, np.tile(np.repeat(sets, sizes), 2))
    places = np.concatenate(copies)
    moving = places == np.repeat(owners, np.repeat(sizes, sizes))
    x = numeric_values(data, column)[0].astype(np.float32)[places]
    values = np.concatenate([np.where(moving, end[places], x) for end in ends])
    log_p = predicted_log_p(model, with_values(both, column, values)).reshape(2, -1)  # in the order (j, i)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    i, j = ordered_pairs(offsets)
    rows = spread(sizes, offsets)
    turned = (np.cumsum(rows) - rows)[j] + i - spread(offsets[:-1], offsets)[i]  # where (j, i) stands
    return log_p[:, turned]


def _quotient(log_p: Floats, p: Floats, taken: Floats) -> Floats:  # (2, M), (M,), (M,) -> (M,)
    """Divide changes of log p by the steps taken; where a probability is 0, changes of p over p, and 0 if p is 0."""
    both = np.isfinite(log_p).all(axis=0)
    safe = np.where(both, log_p, 0.0)
    plain = np.diff(np.exp(log_p[::-1]), axis=0)[0] / np.where(p > 0, p, np.inf)
    change = np.where(both, safe[0] - safe[1], plain)
    found: Floats = np.divide(change, taken, out=np.zeros_like(change), where=taken != 0)
    return found
