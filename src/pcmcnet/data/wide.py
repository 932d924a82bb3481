"""Wide table (a row per choice, a group of columns per alternative) -> long table with its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.data.columns.distinct import UNREADABLE, distinct, names
from pcmcnet.data.files.tabular import names_of, read_table
from pcmcnet.data.schema import LONG_FORM_COLUMNS, Label, Schema, label_of, labels_of, require_distinct
from pcmcnet.errors import SchemaError

Place = str | Mapping[Any, str | float]  # a template with {alternative}, or label -> column or constant
Places = Mapping[str, list[str | float | None]]  # column or constant of each alternative; None for the outside option


def to_long(
    table: Any,
    *,
    alternatives: Sequence[Label] | Mapping[Any, Any],
    features: Mapping[str, Place],
    chosen: str | None = None,
    rank: Place | None = None,
    available: Place | None = None,
    choice_set: str | None = None,
    weight: str | None = None,
    outside: str | None = None,
    columns: Mapping[str, Any] | None = None,
    **roles: Any,
) -> tuple[pa.Table, Schema]:
    """Interleave the groups of columns: row r * K + k of the result is alternative k of row r.

    The ``roles`` are those that a wide table and its long form share: individual, categorical, person, and others.
    """
    schema = Schema(choice_set="choice_set", features=features, named=columns or {}, **roles)  # type: ignore[arg-type]  # makes a tuple
    carried = [*schema.individual, *schema.kept_columns, *([] if weight is None else [weight])]
    taken = [name for name in LONG_FORM_COLUMNS if name in carried or name in schema.features]
    if taken:
        raise SchemaError(f"the name {taken[0]!r} is used by the long form itself: rename that column or feature.")
    schema = replace(
        schema,
        chosen=None if chosen is None else "chosen",
        rank=None if rank is None else "rank",
        alternative="alternative",
        outside=outside,
        available=None if available is None else "available",
        weight=weight,
    )
    codes = labels_of(alternatives)
    names = {"chosen"} if any(isinstance(code, str) for code in codes.values()) else set()
    if outside is not None:
        codes = {**codes, outside: codes.get(outside, outside)}
    places = _places(features, {"available": available, "rank": rank}, codes, outside)
    _require_apart(schema, places, chosen=chosen, choice_set=choice_set)
    own = {"choice_set": choice_set, "chosen": chosen}
    arrow = _read(table, schema, carried, {**places, **{k: [c] for k, c in own.items() if c is not None}}, names)
    repeated = np.repeat(np.arange(arrow.num_rows), len(codes))
    labels = np.tile(np.arange(len(codes), dtype=np.int32), arrow.num_rows)
    long: dict[str, Any] = {
        "choice_set": repeated if choice_set is None else arrow[choice_set].take(repeated),
        "alternative": pa.DictionaryArray.from_arrays(labels, pa.array(list(codes), pa.string())),
        **{name: arrow[name].take(repeated) for name in carried},
        **{name: _interleave(arrow, row, name=name) for name, row in places.items()},
    }
    if chosen is not None:
        long["chosen"] = _flags(arrow[chosen], codes, name=chosen, outside=outside)
    asked = {"alternatives": codes, "features": features, "chosen": chosen, "rank": rank, "available": available}
    return pa.table(long), replace(schema, wide={**asked, "choice_set": choice_set})


def long_form(table: Any, schema: Schema) -> pa.Table | None:
    """Return a wide table in its long form, by the schema of another such table; None where it is long already."""
    if not schema.wide or {schema.choice_set, "alternative"} <= set(names_of(table)):
        return None
    wide = dict(schema.wide)
    for role in ("chosen", "rank"):
        if getattr(schema, role) is None:
            wide.pop(role, None)
    others = ("individual", "categorical", "weight", "person", "keep", "outside", "missing", "kinds")
    return to_long(table, **wide, **{role: getattr(schema, role) for role in others})[0]


def _places(
    features: Mapping[str, Place], roles: Mapping[str, Place | None], codes: Mapping[str, Any], outside: str | None
) -> dict[str, list[str | float | None]]:
    """Feature or role -> where the values of each alternative are; the outside option is always available."""
    if not isinstance(features, Mapping):
        raise SchemaError(
            f"features must be a mapping from names to templates or to columns of each alternative, got {features!r}."
        )
    declared = {**features, **{role: place for role, place in roles.items() if place is not None}}
    inside = {label: code for label, code in codes.items() if label != outside}
    places: dict[str, list[str | float | None]] = {}
    for name, place in declared.items():
        if outside is None or (isinstance(place, Mapping) and outside in place):
            places[name] = [*_resolve(name, place, codes)]
        else:
            found = dict(zip(inside, _resolve(name, place, inside), strict=True))
            places[name] = [found.get(label, 1 if name == "available" else None) for label in codes]
    return places


def _resolve(name: str, place: Place, codes: Mapping[str, Any]) -> list[str | float]:
    if isinstance(place, str):
        if "{alternative}" not in place:
            raise SchemaError(
                f"feature {name!r}: the template {place!r} lacks {{alternative}}. A column that is the same "
                f"for all alternatives belongs in individual."
            )
        return [place.replace("{alternative}", label) for label in codes]
    if not isinstance(place, Mapping):
        raise SchemaError(f"feature {name!r}: expected a template or a mapping from labels, got {place!r}.")
    place = {label_of(label): where for label, where in place.items()}
    absent = [label for label in codes if label not in place]
    if absent:
        raise SchemaError(
            f"feature {name!r} says nothing of alternative {absent[0]!r}: name its column, or give a number."
        )
    for label, where in place.items():
        if label not in codes:
            raise SchemaError(f"feature {name!r} names {label!r}, which is not among the alternatives.")
        if not isinstance(where, str | Real):
            raise SchemaError(f"feature {name!r} of {label!r}: expected a column or a number, got {where!r}.")
    return [place[label] for label in codes]


def _require_apart(schema: Schema, places: Places, *, chosen: str | None, choice_set: str | None) -> None:
    """Refuse a column of the wide table with two roles that contradict or leak into each other.

    The availability of one alternative may well say something of the individual (has a car), so a column of
    ``individual`` may also be one of ``available``.
    """
    woven = {name: {place for place in row if isinstance(place, str)} for name, row in places.items()}
    offered, ranked = woven.pop("available", set()), woven.pop("rank", set())
    features = set().union(*woven.values())
    inputs = features.union(schema.individual)
    for columns, role, place in (
        (inputs, "a model input", "individual and features"),
        (offered, "available", "available"),
    ):
        if chosen in columns:
            raise SchemaError(
                f"column {chosen!r} is declared as chosen and also as {role}: "
                f"take it out of {place}, it would give the answer away."
            )
    require_distinct({"chosen": chosen, "choice_set": choice_set, "weight": schema.weight, "person": schema.person})
    named_twice = {
        "available": offered & features,
        "rank": ranked & (inputs | offered),
        "weight": inputs & {schema.weight},
        "person": inputs & {schema.person},
    }
    for role, leaks in named_twice.items():
        if leaks:
            raise SchemaError(
                f"column {min(leaks)!r} is declared as {role} and also as a model input: "
                f"take it out of individual and features."
            )


def _read(table: Any, schema: Schema, carried: list[str], places: Places, names: set[str]) -> pa.Table:
    """Read all columns that are named anywhere, once; ``names`` are columns of the long form that hold names."""
    sources = {name: [name] for name in carried}
    sources |= {name: [place for place in row if isinstance(place, str)] for name, row in places.items()}
    text = [column for name, row in sources.items() if name in schema.text_columns | names for column in row]
    ids = [column for name, row in sources.items() if name in schema.id_columns for column in row]
    asked = dict.fromkeys(column for row in sources.values() for column in row)
    return read_table(table, list(asked), text=text, ids=ids)


def _interleave(arrow: pa.Table, places: list[str | float | None], *, name: str) -> pa.ChunkedArray:
    """Weave one column per alternative into one long column."""
    n = arrow.num_rows
    parts = [arrow[p].combine_chunks() if isinstance(p, str) else pa.array(np.full(n, p)) for p in places]
    if len({part.type for part in parts}) > 1:
        # lists of a fixed size become lists of any, so that an error names the row of a wrong size
        fixed = [pa.types.is_fixed_size_list(part.type) for part in parts]
        parts = [p.cast(pa.list_(p.type.value_type)) if f else p for p, f in zip(parts, fixed, strict=True)]
    kinds = {part.type for part in parts} - {pa.null()}
    if len({part.type for part in parts}) > 1:
        try:
            parts = [_as_one(part, kinds) for part in parts]
        except pa.ArrowException as error:
            found = ", ".join(sorted(map(str, kinds)))
            raise SchemaError(f"feature {name!r}: its columns have the types {found}, expected one type.") from error
    order = np.arange(n * len(parts)).reshape(len(parts), n).T.ravel()
    return pa.chunked_array(parts).take(order)


def _as_one(part: pa.Array, kinds: set[pa.DataType]) -> pa.Array:
    """Bring a column to the type that all of a feature's have in common."""
    if part.type == pa.null() and len(kinds) == 1:
        return pa.nulls(len(part), next(iter(kinds)))
    if all(map(_is_number, kinds)):
        return (part.cast(pa.int8()) if pa.types.is_boolean(part.type) else part).cast(pa.float64(), safe=False)
    items = [kind.value_type for kind in kinds if pa.types.is_list(kind)]
    if len(items) == len(kinds):  # lists, of numbers or else of names
        return part.cast(pa.list_(pa.float64() if all(map(_is_number, items)) else pa.string()))
    return part.cast(next(iter(kinds)) if len(kinds) == 1 else pa.string())


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return any(test(kind) for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))


def _flags(column: pa.ChunkedArray, codes: Mapping[str, Any], *, name: str, outside: str | None) -> pa.Array:
    """1 where the row's choice is the alternative; a gap is the outside option, and a value for none is refused."""
    try:
        found = distinct(column)
        values = [*names(found.values), None]  # the last entry is for the gaps' -1
        known = [names(pa.array([code]))[0] for code in codes.values()]
    except (*UNREADABLE, TypeError) as error:
        raise SchemaError(f"column {name!r}: expected text or numbers that stand for the alternatives.") from error
    if len(set(known)) < len(known) or None in known:
        raise SchemaError(f"alternatives: expected a value of its own for each label, got {dict(codes)!r}.")
    place: dict[Any, int] = {value: k for k, value in enumerate(known)}
    if outside is not None:
        place[None] = list(codes).index(outside)
    choice = np.array([place.get(value, -1) for value in values])[found.codes]
    bad = np.flatnonzero(choice < 0)
    if bad.size:
        got = values[found.codes[bad[0]]]
        raise SchemaError(
            f"column {name!r}, row {bad[0]}: expected one of {', '.join(map(str, known))}, "
            f"got {'nothing' if got is None else got}; {bad.size} such rows. "
            f"Drop them or name the alternative they stand for."
        )
    return pa.array((choice[:, None] == np.arange(len(known))).ravel().astype(np.int8))
