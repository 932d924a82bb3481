"""What a model or a table claims to be probabilities -> checked arrays, one value per alternative (N,).

A model may say what its answers are worth by an attribute ``gives``: "probabilities", which is what a model without
one gives; "scores" made to sum to 1 within a set; or a "ranking", given by its method ``predict_scores``.
"""

from __future__ import annotations

from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data import ScannedData
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.ragged import sum_by_set
from pcmcnet.data.schema import Schema
from pcmcnet.errors import InputError
from pcmcnet.models.interface.choice_model import Gives

_TRUTH_SUM = 1e-6  # true probabilities are given, not computed: float32 keeps the sum of a set to 1e-7
# A model computes in float32: log p of -90 is kept to 4e-6, and sums over thousands of alternatives add
# their own rounding. Scores that are no probabilities miss 1 by far more.
_MODEL_SUM = 1e-4


class Predictor(Protocol):
    """Anything that can be evaluated: every model of pcmcnet, or a class of one method."""

    def predict_log_proba(self, data: ChoiceData, /) -> NDArray[Any]:
        """Return one log-probability per row of the table, in its order; -inf where unavailable."""
        ...


def gives_of(model: Any) -> Gives:
    """Return what the answers of a model are worth."""
    gives: Gives = getattr(model, "gives", "probabilities")
    if gives not in get_args(Gives):
        raise InputError(f"{type(model).__name__}.gives must be one of {get_args(Gives)}, got {gives!r}.")
    return gives


def require_predictor(model: Any) -> None:
    """Refuse what gives no probabilities."""
    if not callable(getattr(model, "predict_log_proba", None)):
        raise InputError(f"model: expected an object with the method predict_log_proba, got {type(model).__name__}.")


def require_data(model: Any, data: Any) -> ChoiceData:
    """Pass choice data on; read a table by the schema of the model, where it has one, and a scanned one if it fits."""
    require_predictor(model)
    name = type(model).__name__
    if isinstance(data, ScannedData):
        return data.read_if_fits()
    if isinstance(data, ChoiceData):
        return data
    schema = getattr(model, "schema", None)
    if not isinstance(schema, Schema):
        raise InputError(
            f"data: expected ChoiceData, got {type(data).__name__}, and {name} has no schema to read a table by. "
            f"Read it with ChoiceData.from_long or from_wide."
        )
    return ChoiceData.from_schema(data, schema)


def require_sets(data: ChoiceData | ScannedData) -> None:
    """Refuse data without a set that counts; a part of a table may have none."""
    if not (data.weights.any() if isinstance(data, ChoiceData) else len(data.counted())):
        raise InputError(f"expected at least one choice set with a weight above 0, got none in {len(data)}.")


def predicted_log_p(model: Predictor, data: ChoiceData) -> Floats:
    """Ask a model for log-probabilities; return them per alternative (N,), once known to be some."""
    what = f"{type(model).__name__}.predict_log_proba"
    remedy = "The model may have diverged: fit it again, with a lower lr."
    log_p = _answers(model.predict_log_proba(data), data, what, "log-probability", remedy)
    with np.errstate(over="ignore"):  # a positive log-probability is reported by its set
        p = np.exp(log_p)
    _require_sum(p, data, what, _MODEL_SUM, "It must return logs of probabilities, not scores.")
    return log_p


def predicted_scores(model: Any, data: ChoiceData) -> Floats:
    """Ask a model for what ranks the alternatives (N,), the largest first."""
    what = f"{type(model).__name__}.predict_scores"
    if not callable(getattr(model, "predict_scores", None)):
        raise InputError(f"{what}: a model that gives a ranking needs this method.")
    return _answers(model.predict_scores(data), data, what, "score", "A ranking needs a number for every alternative.")


def _answers(values: Any, data: ChoiceData, what: str, noun: str, remedy: str) -> Floats:
    """Take one answer per table row to one per alternative (N,), refusing another number of them and NaN."""
    rows = _floats(values, what)
    if rows.shape != (data.n_rows,):
        raise InputError(
            f"{what}: expected one {noun} for each of the {data.n_rows} table rows, got shape {rows.shape}."
        )
    flat = data.from_rows(rows)
    nan = np.flatnonzero(np.isnan(flat))
    if nan.size:
        where = _where(data, nan[0])
        raise InputError(f"{what}, {where}: expected a {noun}, got NaN; {nan.size} such rows. {remedy}")
    return flat


def true_p(truth: ArrayLike, data: ChoiceData) -> Floats:
    """Take known probabilities, one per table row, to one per alternative (N,), once known to be some."""
    values = _floats(truth, "truth")
    if values.shape != (data.n_rows,):
        raise InputError(f"truth: expected one for each of the {data.n_rows} table rows, got shape {values.shape}.")
    true = data.from_rows(values)
    bad = np.flatnonzero(~(true >= 0))  # NaN, too
    if bad.size:
        raise InputError(
            f"truth, {_where(data, bad[0])}: expected a probability, got {true[bad[0]]}; {bad.size} such "
            f"rows. Correct them or leave out truth."
        )
    _require_sum(true, data, "truth", _TRUTH_SUM, "Divide the values of each set by their sum.")
    return true


def _floats(values: Any, what: str) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected numbers, got {type(values).__name__} ({error}).") from error


def _require_sum(p: Floats, data: ChoiceData, what: str, within: float, remedy: str) -> None:
    """Refuse probabilities (N,) that do not add up to 1, naming the first set."""
    sums = sum_by_set(p, data.offsets)
    off = np.flatnonzero(~(np.abs(sums - 1) <= within))
    if off.size:
        raise InputError(
            f"{what}, choice set {data.set_ids[off[0]]}: expected probabilities that add up to 1, got a sum "
            f"of {sums[off[0]]:.6g}; {off.size} such sets. {remedy}"
        )


def _where(data: ChoiceData, alternative: np.intp) -> str:
    """Name the table row and the choice set of an alternative."""
    at = np.searchsorted(data.offsets, alternative, side="right") - 1
    return f"row {data.rows[alternative]} (choice set {data.set_ids[at]})"
