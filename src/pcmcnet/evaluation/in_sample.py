"""Has a model been trained on the choice sets of a table? Then its figures there are in-sample, and flatter it.

A training table is known by its fingerprint, and so is the table that it was drawn from where a share was held out to
stop early. Any other part of a table has a fingerprint of its own; but a model keeps one choice set of its training
table, and a table that holds this set too overlaps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from pcmcnet.data import ChoiceData, Sets
from pcmcnet.data.column_arrays import GAP, Column, Contents, Numeric
from pcmcnet.data.kinds import KINDS
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import require_data
from pcmcnet.models.interface.choice_model import ChoiceModel

Seen = Literal["all", "most", "some", "none known"]

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


def seen_by(model: ChoiceModel, data: Sets) -> Seen:
    """Tell which sets of a table a model was trained on, as far as that can be known."""
    if isinstance(data, ChoiceData) and data.schema.contents and not model.schema.contents:  # the model left them out
        data = data.without_contents()
    table, fingerprint = model.table_, data.fingerprint()
    if table.fingerprint == fingerprint:
        return "all"
    if table.drawn_from == fingerprint:
        return "most"
    example = table.description.get("example")
    return "some" if example and any(_holds(part, example) for part in data.parts()) else "none known"


def require_training_sets(model: ChoiceModel, data: Any) -> ChoiceData:
    """Read the choice sets that a model was fitted to, and refuse others."""
    sets = require_data(model, data)
    if seen_by(model, sets) != "all":
        raise InputError("expected the choice sets that the model was fitted to, got others: the fingerprints differ.")
    return sets


def in_sample_warning(model: ChoiceModel, data: Sets, seen: Seen | None = None) -> str | None:
    """Say what to make of figures on a table that a model has seen; None where it has not, as far as is known."""
    words = _WARNINGS.get(seen or seen_by(model, data))
    return None if words is None else words.format(trained=model.table_.choice_sets, sets=len(data))


def _holds(data: ChoiceData, kept: Mapping[str, Any]) -> bool:
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
        contents = {kind.known_by(content): k for k, content in enumerate(column.table)}
        codes = [GAP if value is None else contents.get(kind.json_known_by(value), GAP - 1) for value in values]
        return column.codes[places] == np.array(codes)
    names = {name: k for k, name in enumerate(column.categories)}
    return column.codes[places] == np.array([names.get(str(value), -1) for value in values])
