"""What is on offer in each choice set, and statements that change it.

An offer is choice data as the model is to see it. Beside it stand the names that people read, which differ from the
labels where an alternative is new: the model takes it for the one it was made from, with its constants, nest and
category. ``origin`` says which alternative of the first table each one was, so that groups stay what they were.
Shapes: N alternatives of S sets now, N0 in the first table.
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

_ROLES = {  # of columns that no change may set, and what to do instead
    "chosen": "the choices: a scenario predicts them",
    "rank": "the ranking: a scenario predicts the first choices",
    "outside_feature": "the mark of the outside option: a scenario keeps it",
    "choice_set": "the id of the choice sets: a scenario keeps them",
    "available": "the availability: write remove where ..., or add ... like ...",
    "weight": "the weight of the choice sets: change it in the table itself",
    "person": "the id of the persons: a scenario keeps them",
    "alternative": "the labels: write remove LABEL, or add LABEL like LABEL",
}


class ChangeExtent(NamedTuple):
    """How many alternatives a change is of, and in how many choice sets."""

    alternatives: int
    sets: int

    @classmethod
    def of(cls, mask: Bools, data: ChoiceData) -> ChangeExtent:
        """Count the alternatives of a mask (N,)."""
        return cls(int(mask.sum()), int((sum_by_set(mask, data.offsets) > 0).sum()))


@dataclass(frozen=True, eq=False)
class ScenarioOffer:
    """The alternatives of each set after some changes."""

    data: ChoiceData
    names: NDArray[np.object_] | None  # (N,) what people call them; None without labels
    origin: Ints  # (N,) place in the first table; -1 where there is none
    touched: Bools  # (N,) whether the alternative changed, or is new
    lost: Bools  # (N0,) whether it is no longer on offer
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: ChoiceData) -> ScenarioOffer:
        """Begin with a table as it is."""
        n, names = len(data.rows), None if data.labels is None else data.labels.plain()
        return cls(data, names, np.arange(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_))

    def apply(self, statement: Statement, known: frozenset[str] = frozenset()) -> tuple[ScenarioOffer, ChangeExtent]:
        """Return the offer after a change, and how much of it the change is of.

        ``known`` are the labels that the model has seen.
        """
        match statement:
            case Assign():
                mask = self.selected(statement.where)
                if statement.column not in self.data.individual:
                    mask = self._inside(mask)
                return self._assign(statement, mask), ChangeExtent.of(mask, self.data)
            case Remove():
                mask = self.selected(statement.where) & self._labelled(statement.label, "remove where ...")
                less = replace(self, notes=(*self.notes, *self._stays(statement, mask)))
                mask = self._inside(mask)
                return less._remove(_some(mask, "remove")), ChangeExtent.of(mask, self.data)
            case Add():
                more, new = self._add(statement, known)
                return more, ChangeExtent.of(new, more.data)

    def columns(self) -> LazyColumns:
        """Return the columns that expressions may name."""
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
        """(N,) where a condition holds; everywhere without one. None at all is an error."""
        everyone = np.ones(len(self.data.rows), np.bool_)
        if where is None:
            return everyone
        names = self.columns()
        found = evaluate_expression(where, names)
        if found.kind != "truth":
            raise InputError(f"expected a condition after where, such as mode == 'car', got the {found.kind} {where}.")
        mask: Bools = everyone & found.values
        if not mask.any():
            raise InputError(
                f"the condition selects none of {len(mask):,} alternatives of {len(self.data):,} choice sets."
                + _unknown_word(where, names)
            )
        return mask

    def _inside(self, mask: Bools) -> Bools:
        """(N,) leave out the outside option, which has no features to change and is always on offer."""
        out = self.data.outside
        if out is None or not mask.any():
            return mask
        if not (mask & ~out).any():
            raise InputError(
                f"the change is of {self.data.schema.outside!r} alone, the outside option, which has no features and "
                f"is always on offer: it can be neither changed nor copied nor removed."
            )
        return mask & ~out

    def _stays(self, change: Remove, mask: Bools) -> Iterator[str]:
        """Say that the outside option stays, where a condition on labels selects it."""
        schema, out = self.data.schema, self.data.outside
        if out is not None and (mask & out).any() and schema.alternative in {*columns_named_in(change)}:
            yield f"{schema.outside!r} is the outside option: it stays on offer, whatever is removed"

    def _assign(self, change: Assign, mask: Bools) -> ScenarioOffer:
        data, name = self.data, change.column
        _require_assignable(data, name)
        value = evaluate_expression(change.value, self.columns())
        given = np.broadcast_to(value.values, mask.shape)
        if name not in data.features and not (_of_sets(mask, data) and _of_sets(given, data)):
            raise InputError(
                f"{name!r} belongs to the individual: its value and its condition cannot differ between the "
                f"alternatives of a choice set."
            )
        old = {**data.individual, **data.features}[name]
        new = _values(name, old, value, mask if name in data.features else mask[data.offsets[:-1]], data)
        return replace(self, data=with_values(data, name, new), touched=self.touched | mask)

    def _remove(self, mask: Bools) -> ScenarioOffer:
        data = self.data
        sizes = sum_by_set((~mask).astype(np.int64), data.offsets)
        if not sizes.all():
            empty = np.flatnonzero(sizes == 0)
            raise InputError(
                f"{len(empty):,} of {len(data):,} choice sets would have no alternative left, the first of them "
                f"{data.set_ids[empty[0]]}: remove less, by a narrower condition."
            )
        lost = self.lost.copy()
        lost[self.origin[mask & (self.origin >= 0)]] = True
        return replace(self._take(np.flatnonzero(~mask), sizes), lost=lost)

    def _add(self, change: Add, known: frozenset[str]) -> tuple[ScenarioOffer, Bools]:
        data = self.data
        mask = self._inside(self.selected(change.where) & self._labelled(change.like, "copy with ... where ..."))
        if change.label is not None:  # a set that has it already gets no other
            has = spread(sum_by_set(np.asarray(self.names == change.label, np.bool_), data.offsets) > 0, data.offsets)
            if mask.any() and not (mask & ~has).any():
                raise InputError(
                    f"every choice set that could get {change.label!r} offers it already: change that one, as in "
                    f"price *= 0.9 where {data.schema.alternative} == {change.label!r}, or give the new one another "
                    f"label."
                )
            mask &= ~has
        _some(mask, "copy")
        if change.label is None and self.names is not None:
            raise InputError("alternatives have labels: write add LABEL like LABEL, so that the new ones have one.")
        places = np.concatenate([np.arange(len(mask)), np.flatnonzero(mask)])
        order = np.argsort(data.set_of_alternative[places], kind="stable")  # the new ones come last in their sets
        new = order >= len(mask)
        more = self._take(places[order], data.sizes + sum_by_set(mask.astype(np.int64), data.offsets))
        more = replace(more, touched=more.touched | new)
        if change.label is not None:
            more = _renamed(more, new, change.label, str(change.like), known)
        for assign in change.changes:
            more = more._assign(assign, new)
        return more, new

    def _take(self, places: Ints, sizes: Ints) -> ScenarioOffer:
        return replace(
            self,
            data=with_alternatives(self.data, places, sizes),
            names=None if self.names is None else self.names[places],
            origin=self.origin[places],
            touched=self.touched[places],
        )

    def _labelled(self, label: str | None, instead: str) -> Bools:
        """(N,) which alternatives have a label; all if none is named."""
        if label is None:
            return np.ones(len(self.data.rows), np.bool_)
        if self.names is None:
            raise InputError(f"the table has no labels, so there is no {label!r}: write {instead}")
        found: Bools = self.names == label
        if not found.any():
            raise InputError(f"no alternative is called {label!r}." + did_you_mean(label, {*map(str, self.names)}))
        return found


def _some(mask: Bools, verb: str) -> Bools:
    if not mask.any():
        raise InputError(f"there is nothing to {verb}: no alternative has the label and fulfils the condition.")
    return mask


def _read(name: str, column: Column, offsets: Ints | None) -> Value:
    """Read a column over alternatives; one of the sets is spread over theirs."""
    if isinstance(column, Contents):
        raise InputError(f"column {name!r} is of kind {column.kind}: changes are about numbers and categories.")
    values = column.plain() if isinstance(column, Categorical) else column.values.astype(np.float64)
    kind: language.ValueKind = "word" if isinstance(column, Categorical) else "number"
    return Value(values if offsets is None else spread(values, offsets), kind)


def _ids(data: ChoiceData) -> Value:
    ids = data.set_ids
    if ids.dtype.kind in "iuf":
        return Value(spread(ids.astype(np.float64), data.offsets), "number")
    return Value(spread(ids.astype(str).astype(object), data.offsets), "word")


def _of_sets(values: NDArray[np.generic], data: ChoiceData) -> bool:
    """Tell whether all alternatives of each set have the same value."""
    first = spread(values[data.offsets[:-1]], data.offsets)
    same = values == first
    return bool((same | ((values != values) & (first != first))).all())


def _require_assignable(data: ChoiceData, name: str) -> None:
    schema = data.schema
    for role, why in _ROLES.items():
        if name == getattr(schema, role):
            raise InputError(f"column {name!r} holds {why}.")
    known = [*data.features, *data.individual]
    if name in known:
        return
    if name in data.keep:
        raise InputError(f"column {name!r} is kept for grouping, and models do not see it: it cannot change anything.")
    raise InputError(f"no column {name!r} among features and columns of the individual." + did_you_mean(name, known))


def _values(name: str, old: Column, value: Value, mask: Bools, data: ChoiceData) -> NDArray[np.generic]:
    """Return the new values of a column, for alternatives or for sets."""
    of_sets = name not in data.features
    given = np.broadcast_to(value.values, (len(data.rows),))
    given = given[data.offsets[:-1]] if of_sets else given
    if isinstance(old, Categorical):
        if value.kind == "number" and value.values.ndim == 0:
            given = np.full(len(old), f"{value.values:g}", object)
        elif value.kind != "word":
            raise InputError(f"column {name!r} holds categories: give it a word in quotes.")
        return np.where(mask, given, old.plain())
    if isinstance(old, Contents):
        raise InputError(f"column {name!r} is of kind {old.kind}: only numbers and categories can be changed.")
    if value.kind != "number":
        raise InputError(f"column {name!r} holds numbers, and the new value is a {value.kind}.")
    before: Floats = old.values.astype(np.float64)
    bad = np.flatnonzero(mask & ~np.isfinite(given) & ~np.isnan(before))
    if bad.size:
        at = bad[0] if of_sets else data.set_of_alternative[bad[0]]
        raise InputError(
            f"column {name!r} would become {given[bad[0]]} in choice set {data.set_ids[at]}, and {bad.size - 1:,} more "
            f"such values: expected finite numbers. Is something divided by 0, or missing?"
        )
    return np.where(mask, given, before)


def _renamed(offer: ScenarioOffer, new: Bools, label: str, like: str, known: frozenset[str]) -> ScenarioOffer:
    """Name new alternatives; the model sees the name if it knows it, and else what they are like."""
    data, column = offer.data, offer.data.schema.alternative
    assert offer.names is not None
    assert data.labels is not None
    assert column is not None
    offer = replace(offer, names=np.where(new, label, offer.names))
    if label not in known:
        note = f"{label!r} is new to the model, which takes it for {like!r}: same constants, nest and categories"
        return replace(offer, notes=(*offer.notes, note))
    words = tuple(dict.fromkeys([*data.labels.categories, label]))
    codes = np.where(new, words.index(label), data.labels.codes)
    data = replace(data, labels=Categorical(codes.astype(np.int32), words))
    if isinstance(feature := data.features.get(column), Categorical):
        data = with_values(data, column, np.where(new, label, feature.plain()))
    return replace(offer, data=data)


def _unknown_word(where: Expression, names: LazyColumns) -> str:
    """Say which word of a condition no alternative has, and what it may be meant for."""
    match where:
        case Operation("==", (language.ColumnReference(name), Constant(word))) if names[name].kind == "word":
            values = {*map(str, names[name].values)}
            spoken = word if isinstance(word, str) else f"{word:g}"
            if spoken not in values:
                return f" No {name} is {spoken!r}." + did_you_mean(spoken, values if len(values) <= 50 else ())
        case Operation(_, parts):
            return next((hint for part in parts if (hint := _unknown_word(part, names))), "")
    return ""
