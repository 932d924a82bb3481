"""What a model or a table claims to be probabilities -> checked arrays, one value per alternative (N,).

A model may say what its answers are worth by an attribute ``gives``: "probabilities", which is what a model without
one gives; "scores" made to sum to 1 within a set; or a "ranking", given by its method ``predict_scores``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data import ScannedData, Sets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import MISSING_CODE, Column, Contents, Numeric
from pcmcnet.data.columns.ragged import sum_by_set
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.schema import Schema
from pcmcnet.errors import InputError
from pcmcnet.models.interface.choice_model import ChoiceModel, Gives

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
    if not (data.weights.any() if isinstance(data, ChoiceData) else len(data.with_positive_weight())):
        raise InputError(f"expected at least one choice set with a weight above 0, got none in {len(data)}.")


def predicted_log_p(model: Predictor, data: ChoiceData) -> Floats:
    """Ask a model for log-probabilities; return them per alternative (N,), once known to be some."""
    what = f"{type(model).__name__}.predict_log_proba"
    remedy = "The model may have diverged: fit it again, with a lower lr."
    log_p = _per_alternative(model.predict_log_proba(data), data, what, "log-probability", remedy)
    with np.errstate(over="ignore"):  # a positive log-probability is reported by its set
        p = np.exp(log_p)
    _require_sum(p, data, what, _MODEL_SUM, "It must return logs of probabilities, not scores.")
    return log_p


def predicted_scores(model: Any, data: ChoiceData) -> Floats:
    """Ask a model for what ranks the alternatives (N,), the largest first."""
    what = f"{type(model).__name__}.predict_scores"
    if not callable(getattr(model, "predict_scores", None)):
        raise InputError(f"{what}: a model that gives a ranking needs this method.")
    return _per_alternative(
        model.predict_scores(data), data, what, "score", "A ranking needs a number for every alternative."
    )


def _per_alternative(values: Any, data: ChoiceData, what: str, noun: str, remedy: str) -> Floats:
    """Take one answer per table row to one per alternative (N,), refusing another number of them and NaN."""
    rows = _floats(values, what)
    if rows.shape != (data.n_rows,):
        raise InputError(
            f"{what}: expected one {noun} for each of the {data.n_rows} table rows, got shape {rows.shape}."
        )
    flat = data.from_rows(rows)
    nan = np.flatnonzero(np.isnan(flat))
    if nan.size:
        where = _place_of(data, nan[0])
        raise InputError(f"{what}, {where}: expected a {noun}, got NaN; {nan.size} such rows. {remedy}")
    return flat


def true_probabilities(truth: ArrayLike, data: ChoiceData) -> Floats:
    """Take known probabilities, one per table row, to one per alternative (N,), once known to be some."""
    values = _floats(truth, "truth")
    if values.shape != (data.n_rows,):
        raise InputError(f"truth: expected one for each of the {data.n_rows} table rows, got shape {values.shape}.")
    true = data.from_rows(values)
    bad = np.flatnonzero(~(true >= 0))  # NaN, too
    if bad.size:
        raise InputError(
            f"truth, {_place_of(data, bad[0])}: expected a probability, got {true[bad[0]]}; {bad.size} such "
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


def _place_of(data: ChoiceData, alternative: np.intp) -> str:
    """Name the table row and the choice set of an alternative."""
    at = np.searchsorted(data.offsets, alternative, side="right") - 1
    return f"row {data.rows[alternative]} (choice set {data.set_ids[at]})"


# -- In sample ---------------------------------------------------------------------------------------------------------
# Has a model been trained on the choice sets of a table? Then its figures there are in-sample, and flatter it.
#
# A training table is known by its fingerprint, and so is the table that it was drawn from where a share was held out to
# stop early. Any other part of a table has a fingerprint of its own; but a model keeps one choice set of its training
# table, and a table that holds this set too overlaps it.

TrainingOverlap = Literal["all", "most", "some", "none known"]

_WARNINGS = {
    "all": (
        "This is the table that the model was trained on: its fingerprint is that of the training table. All figures "
        "of the model on these choices are in-sample, and better than they would be on new ones."
    ),
    "most": (
        "The model was trained on {trained:,} of these {sets:,} choice sets, and the others told it when to stop: this "
        "is the table that its training part was drawn from. Figures of the model on these choices are mostly "
        "in-sample, and better than they would be on new ones."
    ),
    "some": (
        "This table holds a choice set that equals one of the training table in all columns and in the choice: it may "
        "be that table or share sets with it, and figures of the model on these choices may be in-sample."
    ),
}


def training_overlap(model: ChoiceModel, data: Sets) -> TrainingOverlap:
    """Tell which sets of a table a model was trained on, as far as that can be known."""
    if isinstance(data, ChoiceData) and data.schema.contents and not model.schema.contents:  # the model left them out
        data = data.without_contents()
    table, fingerprint = model.table_, data.fingerprint()
    if table.fingerprint == fingerprint:
        return "all"
    if table.drawn_from == fingerprint:
        return "most"
    example = table.description.get("example")
    return "some" if example and any(_has_example(part, example) for part in data.parts()) else "none known"


def require_training_sets(model: ChoiceModel, data: Any) -> ChoiceData:
    """Read the choice sets that a model was fitted to, and refuse others."""
    sets = require_data(model, data)
    if training_overlap(model, sets) != "all":
        raise InputError("expected the choice sets that the model was fitted to, got others: the fingerprints differ.")
    return sets


def in_sample_warning(model: ChoiceModel, data: Sets, seen: TrainingOverlap | None = None) -> str | None:
    """Say what to make of figures on a table that a model has seen; None where it has not, as far as is known."""
    words = _WARNINGS.get(seen or training_overlap(model, data))
    return None if words is None else words.format(trained=model.table_.choice_sets, sets=len(data))


def _has_example(data: ChoiceData, kept: Mapping[str, Any]) -> bool:
    """Tell whether a table has a set with the same alternatives, individual and choice, in whatever order of sets."""
    rows = kept["alternatives"]
    alike = np.flatnonzero(data.sizes == len(rows))
    if data.chosen is not None:
        alike = alike[data.chosen[alike] == kept["chosen"]]
    places = data.offsets[alike][:, None] + np.arange(len(rows))  # (C, n)
    same = np.ones(len(alike), np.bool_)
    for name, column in data.features.items():
        same &= _equal(column, places, [row.get(name) for row in rows]).all(axis=1)
    for name, column in data.individual.items():
        same &= _equal(column, alike, [kept["individual"].get(name)])
    return bool(same.any()) and bool(data.features or data.individual)


def _equal(column: Column, places: Any, values: list[Any]) -> Any:
    """Compare values of a column at places (..., n) with those kept (n,)."""
    if isinstance(column, Numeric):
        wanted = np.array([np.nan if value is None else value for value in values], np.float32)
        found = column.values[places]
        return (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    if isinstance(column, Contents):
        kind = KINDS[column.kind]
        contents = {kind.content_key(content): k for k, content in enumerate(column.table)}
        codes = [
            MISSING_CODE if value is None else contents.get(kind.json_content_key(value), MISSING_CODE - 1)
            for value in values
        ]
        return column.codes[places] == np.array(codes)
    names = {name: k for k, name in enumerate(column.categories)}
    return column.codes[places] == np.array([names.get(str(value), -1) for value in values])
