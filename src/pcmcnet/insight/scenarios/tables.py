"""Tables of a scenario: how the first one is read, and one that somebody else has changed.

A changed table has the same choice sets, by their ids. Its alternatives are those of the first table that have the same
label, or the same place in their set where there are no labels; others are new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Ints
from pcmcnet.data import ChoiceData, ScannedData, Schema, wide
from pcmcnet.data.column_arrays import raw
from pcmcnet.data.exploded_rankings import first_choices
from pcmcnet.data.outside import with_missing_features
from pcmcnet.data.ragged import stretches
from pcmcnet.data.tabular import read_table
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import require_data
from pcmcnet.insight.scenarios.offers import Extent, Offer
from pcmcnet.insight.what_if import with_values


def read_sets(model: Any, data: Any, named: Iterable[str]) -> ChoiceData:
    """Read a table by the roles of the model; columns that are named beside come along as further features.

    Choices, weights, persons and kept columns are read where the table has them: a scenario needs none. Of rankings,
    the first choices alone are taken: the others are of those who did not get their first.
    """
    schema = getattr(model, "schema", None)
    if isinstance(data, ChoiceData | ScannedData) or not isinstance(schema, Schema):
        return first_choices(require_data(model, data))
    rows = read_table(data, text=schema.text_columns, ids=schema.id_columns)
    if not schema.has_choices_in(rows.column_names):
        schema = replace(schema, chosen=None, rank=None)
    there = set((rows := wide.long_form(rows, schema) or rows).column_names)
    kept = tuple(name for name in schema.keep if name in there)
    single = {role: None for role in ("weight", "person") if getattr(schema, role) not in there}
    more = [name for name in dict.fromkeys(named) if name in there and name not in schema.columns]
    words = [name for name in more if not _is_number(rows.schema.field(name).type)]
    sets = ChoiceData.from_schema(
        rows,
        replace(
            schema,
            keep=kept,
            features=(*schema.features, *more),
            categorical=(*(schema.categorical or ()), *words),
            **single,  # type: ignore[arg-type]
        ),
    )
    return first_choices(sets)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def changed_by(offer: Offer, result: Any) -> tuple[Offer, Extent]:
    """Take what a function made of an offer: choice data, or the new values of some columns."""
    if isinstance(result, ChoiceData):
        return _matched(offer, with_missing_features(first_choices(result)))
    if isinstance(result, Mapping):
        data, touched = offer.data, offer.touched.copy()
        for name, values in result.items():
            data = with_missing_features(with_values(data, str(name), values))
        moved = _differ(offer.data, data, np.arange(len(touched)))
        return replace(offer, data=data, touched=touched | moved), Extent.of(moved, data)
    raise InputError(
        f"a change that is a function takes choice data and returns choice data, or a mapping from columns to their "
        f"new values; this one returned {type(result).__name__}."
    )


def _matched(offer: Offer, data: ChoiceData) -> tuple[Offer, Extent]:
    """Find the alternatives of an offer in a changed table."""
    before = offer.data
    place = {value: k for k, value in enumerate(before.set_ids.tolist())}
    ids = data.set_ids.tolist()
    if len(ids) != len(place) or any(value not in place for value in ids):
        strange = next((value for value in ids if value not in place), None)
        what = f"{len(ids):,} choice sets" if strange is None else f"the choice set {strange}"
        raise InputError(f"a changed table has the {len(place):,} choice sets of the first one, got {what}.")
    data = data.subset(np.argsort([place[value] for value in ids]))
    if set(data.features) != set(before.features):
        raise InputError("a changed table has the same columns as the first one; read both by the same roles.")
    at = _places(offer, data)
    known = at >= 0
    moved = ~known
    moved[known] = _differ(before, data, at[known], np.flatnonzero(known))
    names = None if data.labels is None else data.labels.plain()
    origin = np.where(known, offer.origin[at], -1)
    lost = offer.lost.copy()
    gone = np.ones(len(before.rows), np.bool_)
    gone[at[known]] = False
    lost[offer.origin[gone & (offer.origin >= 0)]] = True
    touched = moved | np.where(known, offer.touched[at], True)
    return replace(offer, data=data, names=names, origin=origin, touched=touched, lost=lost), Extent.of(moved, data)


def _places(offer: Offer, data: ChoiceData) -> Ints:
    """(N,) where each alternative was in the offer; -1 for a new one."""
    before = offer.data
    if offer.names is None or data.labels is None:
        inside = stretches(np.zeros(len(data), np.int64), data.sizes)
        sizes = before.sizes[data.set_of_alternative]
        return np.where(inside < sizes, before.offsets[data.set_of_alternative] + inside, -1)
    old = {key: k for k, key in enumerate(zip(before.set_of_alternative.tolist(), offer.names, strict=True))}
    new = zip(data.set_of_alternative.tolist(), data.labels.plain(), strict=True)
    return np.array([old.get(key, -1) for key in new], np.int64)


def _differ(before: ChoiceData, after: ChoiceData, at: Ints, now: Ints | None = None) -> Bools:
    """Tell which alternatives differ in a feature or in a column of the individual from what they were."""
    now = at if now is None else now
    moved = np.zeros(len(at), np.bool_)
    for name, column in before.features.items():
        moved |= _unlike(raw(column.take(at)), raw(after.features[name].take(now)), column, after.features[name])
    sets, theirs = before.set_of_alternative[at], after.set_of_alternative[now]
    for name, column in before.individual.items():
        moved |= _unlike(
            raw(column.take(sets)), raw(after.individual[name].take(theirs)), column, after.individual[name]
        )
    return moved


def _unlike(a: Any, b: Any, first: Any, second: Any) -> Bools:
    if getattr(first, "categories", None) != getattr(second, "categories", None):  # codes of different lists
        a, b = np.array(first.categories, object)[a], np.array(second.categories, object)[b]
    found: Bools = (a != b) & ~((a != a) & (b != b))
    return found
