"""What a model or a table claims to be probabilities -> checked arrays, one value per alternative (N,)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.ragged import sum_by_set
from pcmcnet.data.schema import Schema
from pcmcnet.errors import InputError

Floats = NDArray[np.float64]

_TRUTH_SUM = 1e-6  # true probabilities are given, not computed: float32 keeps the sum of a set to 1e-7
# A model computes in float32: log p of -90 is kept to 4e-6, and sums over thousands of alternatives add
# their own rounding. Scores that are no probabilities miss 1 by far more.
_MODEL_SUM = 1e-4


class Predictor(Protocol):
    """Anything that can be evaluated: every model of pcmcnet, or a class of one method."""

    def predict_log_proba(self, data: ChoiceData, /) -> NDArray[Any]:
        """Return one log-probability per row of the table, in its order; -inf where unavailable."""
        ...


def require_data(model: Any, data: Any) -> ChoiceData:
    """Pass choice data on; read a table by the schema of the model, where it has one."""
    name = type(model).__name__
    if not callable(getattr(model, "predict_log_proba", None)):
        raise InputError(f"model: expected an object with the method predict_log_proba, got {name}.")
    if isinstance(data, ChoiceData):
        return data
    schema = getattr(model, "schema", None)
    if not isinstance(schema, Schema):
        raise InputError(
            f"data: expected ChoiceData, got {type(data).__name__}, and {name} has no schema to read a table by. "
            f"Read it with ChoiceData.from_long or from_wide."
        )
    return ChoiceData.from_schema(data, schema)


def require_sets(data: ChoiceData) -> None:
    """Refuse data without a set that counts; a part of a table may have none."""
    if not data.weights.any():
        raise InputError(f"expected at least one choice set with a weight above 0, got none in {len(data)}.")


def predicted_log_p(model: Predictor, data: ChoiceData) -> Floats:
    """Ask a model for log-probabilities; return them per alternative (N,), once known to be some."""
    name = type(model).__name__
    rows = _floats(model.predict_log_proba(data), f"{name}.predict_log_proba")
    if rows.shape != (data.n_rows,):
        raise InputError(
            f"{name}.predict_log_proba: expected one log-probability for each of the {data.n_rows} table "
            f"rows, got shape {rows.shape}."
        )
    log_p = data.from_rows(rows)
    nan = np.flatnonzero(np.isnan(log_p))
    if nan.size:
        raise InputError(
            f"{name}.predict_log_proba, {_where(data, nan[0])}: expected a log-probability, got NaN; "
            f"{nan.size} such rows. The model may have diverged: fit it again, with a lower lr."
        )
    with np.errstate(over="ignore"):  # a positive log-probability is reported by its set
        p = np.exp(log_p)
    _require_sum(p, data, f"{name}.predict_log_proba", _MODEL_SUM, "It must return logs of probabilities, not scores.")
    return log_p


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
