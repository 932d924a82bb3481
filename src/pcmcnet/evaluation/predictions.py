"""Check predictions and true probabilities, and convert them to arrays with one value per alternative (N,).

The attribute ``gives`` of a model describes its predictions: "probabilities" (the default), "scores" that are
normalised to sum to 1 within a set, or a "ranking" from the method ``predict_scores``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data import ChunkedData, Sets
from pcmcnet.data.alternative_sampling import require_full_sets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import MISSING_CODE, Column, Contents, Numeric
from pcmcnet.data.columns.ragged import sum_by_set
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.schema import Schema
from pcmcnet.errors import InputError, such_rows
from pcmcnet.models.interface.choice_model import ChoiceModel, Gives

_TRUTH_SUM = 1e-6  # tolerance for the sum of true probabilities: in float32 it is accurate to 1e-7
# Tolerance for the sum of predicted probabilities. Models compute in float32: log p = -90 is accurate to 4e-6, and sums
# over thousands of alternatives add rounding errors. Scores that are not probabilities miss 1 by far more.
_MODEL_SUM = 1e-4


class Predictor(Protocol):
    """Protocol for objects that can be evaluated: pcmcnet models, or any object with a method ``predict_log_proba``."""

    def predict_log_proba(self, data: ChoiceData, /) -> NDArray[Any]:
        """Return one log-probability per table row, in row order; unavailable alternatives have -inf."""
        ...


def gives_of(model: Any) -> Gives:
    """Return the kind of a model's predictions: "probabilities", "scores" or "ranking"."""
    gives: Gives = getattr(model, "gives", "probabilities")
    if gives not in get_args(Gives):
        raise InputError(f"{type(model).__name__}.gives must be one of {get_args(Gives)}, got {gives!r}.")
    return gives


def require_predictor(model: Any) -> None:
    """Raise InputError if the model has no method ``predict_log_proba``."""
    if not callable(getattr(model, "predict_log_proba", None)):
        remedy = " Fit one first, as in pn.MNL().fit(train), or load one: pn.load('model')."
        if isinstance(model, ChoiceData):
            remedy = " The model comes first, then the data."
        got = type(model).__name__
        raise InputError(f"model: expected an object with a predict_log_proba method, got {got}.{remedy}")
    if isinstance(model, type):
        name = model.__name__
        raise InputError(f"model: expected a fitted model, got the class {name}. Write {name}().fit(train).")


def require_data(model: Any, data: Any) -> ChoiceData:
    """Return choice data in memory. Tables are read with the model's schema, and scanned tables are loaded."""
    require_predictor(model)
    name = type(model).__name__
    if isinstance(data, ChunkedData):
        return data.read_if_fits()
    if isinstance(data, ChoiceData):
        require_full_sets(data, "an evaluation")
        return data
    schema = getattr(model, "schema", None)
    if not isinstance(schema, Schema):
        raise InputError(
            f"data: expected ChoiceData, got {type(data).__name__}, and {name} has no schema to read it with. "
            f"Read it with ChoiceData.from_long or from_wide."
        )
    return ChoiceData.from_schema(data, schema)


def require_sets(data: ChoiceData | ChunkedData) -> None:
    """Raise InputError if no choice set has a weight above 0, or if alternatives are a sample."""
    require_weights(data)
    if isinstance(data, ChoiceData):
        require_full_sets(data, "an evaluation")


def require_weights(data: ChoiceData | ChunkedData) -> None:
    """Raise InputError if no choice set has a weight above 0."""
    if not (data.weights.any() if isinstance(data, ChoiceData) else len(data.with_positive_weight())):
        raise InputError(f"expected at least one choice set with a weight above 0, got none in {len(data)}.")


def predicted_log_p(model: Predictor, data: ChoiceData) -> Floats:
    """Return the predicted log-probability of each alternative (N,), or raise InputError if one is not valid."""
    source = f"{type(model).__name__}.predict_log_proba"
    remedy = "The model may have diverged: fit it again, with a lower lr."
    log_p = _per_alternative(model.predict_log_proba(data), data, source, "log-probability", remedy)
    with np.errstate(over="ignore"):  # the check of the sum reports positive log-probabilities
        p = np.exp(log_p)
    _require_sum(p, data, source, _MODEL_SUM, "The method must return log-probabilities, not scores.")
    return log_p


def predicted_scores(model: Any, data: ChoiceData) -> Floats:
    """Return the predicted score of each alternative (N,); the alternative with the largest score is ranked first."""
    source = f"{type(model).__name__}.predict_scores"
    if not callable(getattr(model, "predict_scores", None)):
        raise InputError(f"{source}: a model that gives a ranking needs this method.")
    remedy = "A ranking needs a score for every alternative."
    return _per_alternative(model.predict_scores(data), data, source, "score", remedy)


def _per_alternative(values: Any, data: ChoiceData, source: str, noun: str, remedy: str) -> Floats:
    """Convert values per table row to values per alternative (N,). Raise InputError for a wrong length or NaN."""
    rows = _floats(values, source)
    if rows.shape != (data.n_rows,):
        raise InputError(
            f"{source}: expected one {noun} for each of the {data.n_rows} table rows, got shape {rows.shape}."
        )
    flat = data.from_rows(rows)
    nan = np.flatnonzero(np.isnan(flat))
    if nan.size:
        location = _location(data, nan[0])
        raise InputError(f"{source}, {location}: expected a {noun}, got NaN; {such_rows(nan.size)}. {remedy}")
    return flat


def true_probabilities(truth: ArrayLike, data: ChoiceData) -> Floats:
    """Convert true probabilities from table rows to alternatives (N,). Raise InputError if they are not valid."""
    true = data.from_rows(truth_of_rows(truth, data.n_rows))
    bad = np.flatnonzero(~(true >= 0))  # negative or NaN
    if bad.size:
        raise InputError(
            f"truth, {_location(data, bad[0])}: expected a probability, got {true[bad[0]]}; {such_rows(bad.size)}. "
            f"Correct them or leave out truth."
        )
    _require_sum(true, data, "truth", _TRUTH_SUM, "Divide the values of each set by their sum.")
    return true


def truth_of_rows(truth: ArrayLike, n_rows: int) -> Floats:
    """Return true probabilities (n_rows,) as floats, or raise InputError if their number is wrong."""
    values = _floats(truth, "truth")
    if values.shape != (n_rows,):
        raise InputError(
            f"truth: expected one probability for each of the {n_rows} table rows, got shape {values.shape}."
        )
    return values


def _floats(values: Any, source: str) -> Floats:
    """Return the values as an array of floats, or raise InputError if they are not numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{source}: expected numbers, got {type(values).__name__} ({error}).") from error


def _require_sum(p: Floats, data: ChoiceData, source: str, tolerance: float, remedy: str) -> None:
    """Raise InputError, with the id of the set, if the probabilities (N,) of a set do not sum to 1."""
    sums = sum_by_set(p, data.offsets)
    wrong = np.flatnonzero(~(np.abs(sums - 1) <= tolerance))
    if wrong.size:
        raise InputError(
            f"{source}, choice set {data.set_ids[wrong[0]]}: expected probabilities that add up to 1, got a sum "
            f"of {sums[wrong[0]]:.6g}; {wrong.size} such sets. {remedy}"
        )


def _location(data: ChoiceData, alternative: np.intp) -> str:
    """Return the table row and the choice set of an alternative, for error messages."""
    set_index = np.searchsorted(data.offsets, alternative, side="right") - 1
    return f"row {data.rows[alternative]} (choice set {data.set_ids[set_index]})"


# -- Overlap with the training data ------------------------------------------------------------------------------------
# If a model was trained on choice sets of a table, its scores on that table are in-sample and too optimistic.
#
# A model stores the fingerprint of its training table, and that of the larger table if a validation part was drawn from
# it. Any other part of the table has a different fingerprint. The model therefore also stores one choice set of its
# training table: a table with the same choice set overlaps with it.

TrainingOverlap = Literal["all", "most", "some", "none known"]

_WARNINGS = {
    "all": (
        "The model was trained on this table (the fingerprints are equal), so these scores are in-sample and too "
        "optimistic."
    ),
    "most": (
        "The model was trained on {trained:,} of these {sets:,} choice sets and stopped early on the rest, so these "
        "scores are mostly in-sample and too optimistic."
    ),
    "some": (
        "A choice set of this table also occurs in the training table, with the same columns and choice. The two "
        "tables may overlap, so these scores may be in-sample and too optimistic."
    ),
}


def training_overlap(model: ChoiceModel, data: Sets) -> TrainingOverlap:
    """Return how many of a table's sets the model was trained on: "all", "most", "some" or "none known"."""
    # The model may have been fitted without the columns of contents.
    if isinstance(data, ChoiceData) and data.schema.contents and not model.schema.contents:
        data = data.without_contents()
    table, fingerprint = model.table_, data.fingerprint()
    if table.fingerprint == fingerprint:
        return "all"
    if table.drawn_from == fingerprint:
        return "most"
    example = table.description.get("example")
    return "some" if example and any(_has_example(part, example) for part in data.parts()) else "none known"


def require_training_sets(model: ChoiceModel, data: Any) -> ChoiceData:
    """Return ``data`` as choice sets, or raise InputError if the model was fitted to different choice sets."""
    sets = require_data(model, data)
    if training_overlap(model, sets) != "all":
        raise InputError(
            "expected the choice sets that the model was fitted to, got different choice sets: the fingerprints differ."
        )
    return sets


def in_sample_warning(model: ChoiceModel, data: Sets, overlap: TrainingOverlap | None = None) -> str | None:
    """Return a warning if scores on this table are in-sample, or None if no overlap with training data is known."""
    words = _WARNINGS.get(overlap or training_overlap(model, data))
    return None if words is None else words.format(trained=model.table_.choice_sets, sets=len(data))


def _has_example(data: ChoiceData, example: Mapping[str, Any]) -> bool:
    """Return True if a choice set of the table has the same alternatives, individual and choice as the example."""
    # 1. Find the candidates: sets of the same size with the same choice.
    rows = example["alternatives"]
    candidates = np.flatnonzero(data.sizes == len(rows))
    if data.chosen is not None:
        candidates = candidates[data.chosen[candidates] == example["chosen"]]
    # 2. Compare all columns.
    alternatives = data.offsets[candidates][:, None] + np.arange(len(rows))  # (C, n)
    is_equal = np.ones(len(candidates), np.bool_)
    for name, column in data.features.items():
        is_equal &= _equal(column, alternatives, [row.get(name) for row in rows]).all(axis=1)
    for name, column in data.individual.items():
        is_equal &= _equal(column, candidates, [example["individual"].get(name)])
    return bool(is_equal.any()) and bool(data.features or data.individual)


def _equal(column: Column, index: Any, values: list[Any]) -> Any:
    """Compare the values of a column at the positions ``index`` (..., n) with the JSON values (n,) of an example."""
    if isinstance(column, Numeric):
        expected = np.array([np.nan if value is None else value for value in values], np.float32)
        actual = column.values[index]
        return (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if isinstance(column, Contents):
        kind = KINDS[column.kind]
        contents = {kind.content_key(content): k for k, content in enumerate(column.table)}
        codes = [
            MISSING_CODE if value is None else contents.get(kind.json_content_key(value), MISSING_CODE - 1)
            for value in values
        ]
        return column.codes[index] == np.array(codes)
    names = {name: k for k, name in enumerate(column.categories)}
    return column.codes[index] == np.array([names.get(str(value), -1) for value in values])
