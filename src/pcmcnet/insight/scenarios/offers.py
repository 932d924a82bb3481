"""Apply statements that change the alternatives on offer in each choice set.

An offer consists of the choice data that the model predicts and of display names. A new alternative whose label the
model does not know has a display name of its own, but in the data it keeps the label of the alternative it was copied
from, and thus has the same constants, nest and category. ``origin`` records which alternative of the original table
each alternative comes from, so that groups can be compared before and after the changes. Shapes: N alternatives in S
sets after the changes, N0 alternatives in the original table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Column, Contents
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.insight.queries import with_alternatives, with_values
from pcmcnet.insight.scenarios import language
from pcmcnet.insight.scenarios.language import (
    Add,
    Assign,
    Constant,
    Expression,
    LazyColumns,
    Operation,
    Remove,
    Statement,
    Value,
    columns_named_in,
    evaluate_expression,
)

_ROLES = {  # roles of columns that a change cannot set, and what to do instead
    "chosen": "the choices, which a scenario predicts",
    "rank": "the ranking, which a scenario cannot change",
    "counts": "the number of choices, which a scenario cannot change",
    "outside_feature": "the indicator of the outside option, which a scenario cannot change",
    "choice_set": "the ids of the choice sets, which a scenario cannot change",
    "available": "the availability: to change the offer, use remove where ... or add ... like ...",
    "weight": "the weights of the choice sets: change them in the table",
    "person": "the ids of the persons, which a scenario cannot change",
    "alternative": "the labels: to change the offer, use remove LABEL or add LABEL like LABEL",
}


class ChangeExtent(NamedTuple):
    """Number of alternatives that a change affects, and number of choice sets with such alternatives."""

    alternatives: int
    sets: int

    @classmethod
    def of(cls, mask: Bools, data: ChoiceData) -> ChangeExtent:
        """Return the extent of a change that affects the alternatives in a mask (N,)."""
        return cls(int(mask.sum()), int((sum_by_set(mask, data.offsets) > 0).sum()))


@dataclass(frozen=True, eq=False)
class ScenarioOffer:
    """The alternatives on offer in each choice set after some changes."""

    data: ChoiceData
    names: NDArray[np.object_] | None  # (N,) display names; None without labels
    origin: Ints  # (N,) place in the original table; -1 for a new alternative
    touched: Bools  # (N,) True if the alternative changed or is new
    lost: Bools  # (N0,) True if the alternative was removed
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: ChoiceData) -> ScenarioOffer:
        """Return the offer of the original table, without changes."""
        n, names = len(data.rows), None if data.labels is None else data.labels.plain()
        return cls(data, names, np.arange(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_))

    def apply(self, statement: Statement, known: frozenset[str] = frozenset()) -> tuple[ScenarioOffer, ChangeExtent]:
        """Return the offer after a change, and the extent of the change.

        The set ``known`` contains the labels that the model has seen.
        """
        match statement:
            case Assign():
                mask = self.selected(statement.where)
                if statement.column not in self.data.individual:
                    mask = self._inside(mask)
                return self._assign(statement, mask), ChangeExtent.of(mask, self.data)
            case Remove():
                mask = self.selected(statement.where) & self._labelled(statement.label, "remove where ...")
                noted = replace(self, notes=(*self.notes, *self._outside_note(statement, mask)))
                mask = self._inside(mask)
                return noted._remove(_require_some(mask, "remove")), ChangeExtent.of(mask, self.data)
            case Add():
                extended, new = self._add(statement, known)
                return extended, ChangeExtent.of(new, extended.data)

    def columns(self) -> LazyColumns:
        """Return the columns that expressions can refer to."""
        data, schema = self.data, self.data.schema
        readers: dict[str, Callable[[], Value]] = {}
        for name, column in {**data.keep, **data.individual}.items():
            readers[name] = lambda name=name, column=column: _read(name, column, data.offsets)  # type: ignore[misc]
        for name, column in data.features.items():
            readers[name] = lambda name=name, column=column: _read(name, column, None)  # type: ignore[misc]
        if self.names is not None and schema.alternative is not None:
            names = self.names
            readers[schema.alternative] = lambda: Value(names, "word")
        if schema.choice_set not in readers:
            readers[schema.choice_set] = lambda: _ids(data)
        if schema.weight is not None:
            readers[schema.weight] = lambda: Value(spread(data.weights, data.offsets), "number")
        return LazyColumns(readers)

    def selected(self, where: Expression | None) -> Bools:
        """Return a mask (N,) of the alternatives that satisfy a condition, or raise InputError if none of them does."""
        everything = np.ones(len(self.data.rows), np.bool_)
        if where is None:
            return everything
        names = self.columns()
        condition = evaluate_expression(where, names)
        if condition.kind != "condition":
            raise InputError(
                f"expected a condition after where, such as mode == 'car', got the {condition.kind} {where}."
            )
        mask: Bools = everything & condition.values
        if not mask.any():
            raise InputError(
                f"the condition selects none of the {len(mask):,} alternatives in {len(self.data):,} choice sets."
                + _unknown_word(where, names)
            )
        return mask

    def _inside(self, mask: Bools) -> Bools:
        """Return the mask (N,) without the outside option, or raise InputError if the mask selects nothing else."""
        outside = self.data.outside
        if outside is None or not mask.any():
            return mask
        if not (mask & ~outside).any():
            raise InputError(
                f"the outside option {self.data.schema.outside!r} cannot be changed, copied or removed: it has no "
                f"features and is always on offer."
            )
        return mask & ~outside

    def _outside_note(self, change: Remove, mask: Bools) -> Iterator[str]:
        """Yield a note that the outside option stays on offer, if a condition on labels selects it."""
        schema, outside = self.data.schema, self.data.outside
        if outside is not None and (mask & outside).any() and schema.alternative in {*columns_named_in(change)}:
            yield f"{schema.outside!r} is the outside option and stays on offer"

    def _assign(self, change: Assign, mask: Bools) -> ScenarioOffer:
        """Return the offer with new values of a column."""
        data, name = self.data, change.column
        _require_assignable(data, name)
        value = evaluate_expression(change.value, self.columns())
        values = np.broadcast_to(value.values, mask.shape)
        if name not in data.features and not (_is_constant(mask, data) and _is_constant(values, data)):
            raise InputError(
                f"{name!r} is an individual-level column: its value and its condition must be the same for all "
                f"alternatives "
                f"of a choice set."
            )
        old = {**data.individual, **data.features}[name]
        new = _values(name, old, value, mask if name in data.features else mask[data.offsets[:-1]], data)
        return replace(self, data=with_values(data, name, new), touched=self.touched | mask)

    def _remove(self, mask: Bools) -> ScenarioOffer:
        """Return the offer without some alternatives."""
        data = self.data
        sizes = sum_by_set((~mask).astype(np.int64), data.offsets)
        if not sizes.all():
            empty = np.flatnonzero(sizes == 0)
            raise InputError(
                f"the removal would leave {len(empty):,} of {len(data):,} choice sets empty, such as choice set "
                f"{data.set_ids[empty[0]]}: use a narrower condition."
            )
        lost = self.lost.copy()
        lost[self.origin[mask & (self.origin >= 0)]] = True
        return replace(self._take(np.flatnonzero(~mask), sizes), lost=lost)

    def _add(self, change: Add, known: frozenset[str]) -> tuple[ScenarioOffer, Bools]:
        """Return the offer with copies of some alternatives, and a mask of the copies."""
        # 1. Select the alternatives to copy; a set that already has the new label gets no copy.
        data = self.data
        mask = self._inside(self.selected(change.where) & self._labelled(change.like, "copy with ... where ..."))
        if change.label is not None:
            has = spread(sum_by_set(np.asarray(self.names == change.label, np.bool_), data.offsets) > 0, data.offsets)
            if mask.any() and not (mask & ~has).any():
                raise InputError(
                    f"all selected choice sets already offer {change.label!r}: change that alternative, as in "
                    f"price *= 0.9 where {data.schema.alternative} == {change.label!r}, or use another label."
                )
            mask &= ~has
        _require_some(mask, "copy")
        if change.label is None and self.names is not None:
            raise InputError("the table has labels, so a new alternative needs one: use add LABEL like LABEL.")
        # 2. Append the copies to their sets, then name and change them.
        places = np.concatenate([np.arange(len(mask)), np.flatnonzero(mask)])
        order = np.argsort(data.set_of_alternative[places], kind="stable")  # copies come last in their sets
        new = order >= len(mask)
        extended = self._take(places[order], data.sizes + sum_by_set(mask.astype(np.int64), data.offsets))
        extended = replace(extended, touched=extended.touched | new)
        if change.label is not None:
            extended = _renamed(extended, new, change.label, str(change.like), known)
        for assign in change.changes:
            extended = extended._assign(assign, new)
        return extended, new

    def _take(self, places: Ints, sizes: Ints) -> ScenarioOffer:
        return replace(
            self,
            data=with_alternatives(self.data, places, sizes),
            names=None if self.names is None else self.names[places],
            origin=self.origin[places],
            touched=self.touched[places],
        )

    def _labelled(self, label: str | None, instead: str) -> Bools:
        """Return a mask (N,) of the alternatives with a label, or of all alternatives if the label is None."""
        if label is None:
            return np.ones(len(self.data.rows), np.bool_)
        if self.names is None:
            raise InputError(f"the table has no labels, so there is no {label!r}: use {instead}")
        mask: Bools = self.names == label
        if not mask.any():
            raise InputError(f"no alternative has the label {label!r}." + did_you_mean(label, {*map(str, self.names)}))
        return mask


def _require_some(mask: Bools, verb: str) -> Bools:
    """Return the mask, or raise InputError if the mask selects nothing."""
    if not mask.any():
        raise InputError(f"nothing to {verb}: no alternative both has the label and satisfies the condition.")
    return mask


def _read(name: str, column: Column, offsets: Ints | None) -> Value:
    """Return the value of a column for every alternative. Pass ``offsets`` if the column has one value per set."""
    if isinstance(column, Contents):
        raise InputError(f"column {name!r} is of kind {column.kind}: only numbers and categories can be used.")
    values = column.plain() if isinstance(column, Categorical) else column.values.astype(np.float64)
    kind: language.ValueKind = "word" if isinstance(column, Categorical) else "number"
    return Value(values if offsets is None else spread(values, offsets), kind)


def _ids(data: ChoiceData) -> Value:
    """Return, for every alternative, the id of its choice set."""
    ids = data.set_ids
    if ids.dtype.kind in "iuf":
        return Value(spread(ids.astype(np.float64), data.offsets), "number")
    return Value(spread(ids.astype(str).astype(object), data.offsets), "word")


def _is_constant(values: NDArray[np.generic], data: ChoiceData) -> bool:
    """Return True if all alternatives of each set have the same value."""
    first = spread(values[data.offsets[:-1]], data.offsets)
    return bool(((values == first) | ((values != values) & (first != first))).all())


def _require_assignable(data: ChoiceData, name: str) -> None:
    """Raise InputError if a change cannot assign values to the column."""
    schema = data.schema
    for role, why in _ROLES.items():
        if name == getattr(schema, role):
            raise InputError(f"column {name!r} holds {why}.")
    assignable = [*data.features, *data.individual]
    if name in assignable:
        return
    if name in data.keep:
        raise InputError(
            f"column {name!r} is kept only for grouping: models do not use it, so changing it has no effect."
        )
    raise InputError(f"there is no feature or individual-level column {name!r}." + did_you_mean(name, assignable))


def _values(name: str, old: Column, value: Value, mask: Bools, data: ChoiceData) -> NDArray[np.generic]:
    """Return the new values of a feature, or of an individual-level column."""
    of_sets = name not in data.features
    new = np.broadcast_to(value.values, (len(data.rows),))
    new = new[data.offsets[:-1]] if of_sets else new
    if isinstance(old, Categorical):
        if value.kind == "number" and value.values.ndim == 0:
            new = np.full(len(old), f"{value.values:g}", object)
        elif value.kind != "word":
            raise InputError(f"column {name!r} is categorical: expected a word in quotes, got a {value.kind}.")
        return np.where(mask, new, old.plain())
    if isinstance(old, Contents):
        raise InputError(f"column {name!r} is of kind {old.kind}: only numbers and categories can be changed.")
    if value.kind != "number":
        raise InputError(f"column {name!r} is numeric: expected a number, got a {value.kind}.")
    before: Floats = old.values.astype(np.float64)
    bad = np.flatnonzero(mask & ~np.isfinite(new) & ~np.isnan(before))
    if bad.size:
        at = bad[0] if of_sets else data.set_of_alternative[bad[0]]
        raise InputError(
            f"column {name!r}: expected finite numbers, got {new[bad[0]]} in choice set {data.set_ids[at]} and "
            f"{bad.size - 1:,} more such values. Check for division by 0 and missing values."
        )
    return np.where(mask, new, before)


def _renamed(offer: ScenarioOffer, new: Bools, label: str, like: str, known: frozenset[str]) -> ScenarioOffer:
    """Set the label of new alternatives. A label that the model does not know is used only as a display name."""
    data, column = offer.data, offer.data.schema.alternative
    assert offer.names is not None
    assert data.labels is not None
    assert column is not None
    offer = replace(offer, names=np.where(new, label, offer.names))
    if label not in known:
        note = (
            f"{label!r} is new to the model, which treats it like {like!r}, with the same constants, nest and "
            f"categories"
        )
        return replace(offer, notes=(*offer.notes, note))
    words = tuple(dict.fromkeys([*data.labels.categories, label]))
    codes = np.where(new, words.index(label), data.labels.codes)
    data = replace(data, labels=Categorical(codes.astype(np.int32), words))
    if isinstance(feature := data.features.get(column), Categorical):
        data = with_values(data, column, np.where(new, label, feature.plain()))
    return replace(offer, data=data)


def _unknown_word(where: Expression, names: LazyColumns) -> str:
    """Return a hint that suggests a similar word if a word in a condition matches no alternative."""
    match where:
        case Operation("==", (language.ColumnReference(name), Constant(word))) if names[name].kind == "word":
            values = {*map(str, names[name].values)}
            text = word if isinstance(word, str) else f"{word:g}"
            if text not in values:
                return f" No {name} is {text!r}." + did_you_mean(text, values if len(values) <= 50 else ())
        case Operation(_, parts):
            return next((hint for part in parts if (hint := _unknown_word(part, names))), "")
    return ""
