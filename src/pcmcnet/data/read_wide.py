"""Conversion of wide tables (one row per choice, one group of columns per alternative) to long tables with a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.data.columns.arrays import array_to_numpy
from pcmcnet.data.columns.distinct import UNREADABLE, distinct, names
from pcmcnet.data.files.tabular import names_of, read_table
from pcmcnet.data.schema import LONG_FORM_COLUMNS, Label, Schema, label_of, labels_of, require_distinct
from pcmcnet.errors import SchemaError, such_rows

Place = str | Mapping[Any, str | float]  # a template with {alternative}, or a mapping: label -> column or constant
Places = Mapping[str, list[str | float | None]]  # column or constant of each alternative; None for the outside option


def to_long(
    table: Any,
    *,
    alternatives: Sequence[Label] | Mapping[Any, Any],
    features: Mapping[str, Place],
    chosen: str | None = None,
    worst: str | None = None,
    rank: Place | None = None,
    counts: Place | None = None,
    available: Place | None = None,
    choice_set: str | None = None,
    weight: str | None = None,
    outside: str | None = None,
    columns: Mapping[str, Any] | None = None,
    **roles: Any,
) -> tuple[pa.Table, Schema]:
    """Return the long form of a wide table, and its schema.

    Row r * K + k of the long form is alternative k of wide row r.

    The parameters are the same as for ``ChoiceData.from_wide``. ``roles`` are the roles that a wide table and its long
    form share, such as ``individual``, ``categorical`` and ``person``.
    """
    # 1. Check the roles, and build the schema of the long form.
    schema = Schema(choice_set="choice_set", features=features, named=columns or {}, **roles)  # type: ignore[arg-type]  # makes a tuple
    set_columns = [*schema.individual, *schema.kept_columns, *([] if weight is None else [weight])]
    reserved = [name for name in LONG_FORM_COLUMNS if name in set_columns or name in schema.features]
    if reserved:
        raise SchemaError(f"the name {reserved[0]!r} is reserved for the long form: rename that column or feature.")
    if worst is not None and (chosen is None or rank is not None):
        raise SchemaError(
            f"worst: column {worst!r} needs chosen=<column with the best alternative>, and no rank: with ranks, write "
            f"-1 for the worst."
        )
    schema = replace(
        schema,
        chosen=None if chosen is None or worst is not None else "chosen",
        rank=None if rank is None and worst is None else "rank",
        counts=None if counts is None else "counts",
        alternative="alternative",
        outside=outside,
        available=None if available is None else "available",
        weight=weight,
    )
    codes = labels_of(alternatives)
    text_roles = {"chosen", "worst"} if any(isinstance(code, str) for code in codes.values()) else set()
    if outside is not None:
        codes = {**codes, outside: codes.get(outside, outside)}
    places = _places(features, {"available": available, "rank": rank, "counts": counts}, codes, outside)
    for choice in (chosen, worst):
        _require_apart(schema, places, chosen=choice, choice_set=choice_set)
    # 2. Read all columns with a role.
    by_role = (("choice_set", choice_set), ("chosen", chosen), ("worst", worst))
    single: Places = {role: [column] for role, column in by_role if column is not None}
    arrow = _read(table, schema, set_columns, {**places, **single}, text_roles)
    if available is None and schema.missing == "error":
        _require_offered(arrow, codes, {name: places[name] for name in features})
    # 3. Repeat the columns of a set for each alternative, and interleave those of the alternatives.
    repeated = np.repeat(np.arange(arrow.num_rows), len(codes))
    labels = np.tile(np.arange(len(codes), dtype=np.int32), arrow.num_rows)
    long: dict[str, Any] = {
        "choice_set": repeated if choice_set is None else arrow[choice_set].take(repeated),
        "alternative": pa.DictionaryArray.from_arrays(labels, pa.array(list(codes), pa.string())),
        **{name: arrow[name].take(repeated) for name in set_columns},
        **{name: _interleave(arrow, row, name=name) for name, row in places.items()},
    }
    flags = None if chosen is None else _flags(arrow[chosen], codes, name=chosen, outside=outside)
    if flags is not None and worst is None:
        long["chosen"] = flags
    elif flags is not None:
        long["rank"] = _best_worst_ranks(flags, _flags(arrow[worst], codes, name=str(worst), outside=None), str(worst))
    wide = {"alternatives": codes, "features": features, "chosen": chosen, "worst": worst, "rank": rank}
    wide |= {"counts": counts, "available": available}
    return pa.table(long), replace(schema, wide={**wide, "choice_set": choice_set})


def long_form(table: Any, schema: Schema) -> pa.Table | None:
    """Return the long form of a wide table, given a similar table's schema, or None if the table is already long."""
    if not schema.wide or {schema.choice_set, "alternative"} <= set(names_of(table)):
        return None
    wide = dict(schema.wide)
    if schema.choices is None:
        wide = {role: place for role, place in wide.items() if role not in ("chosen", "worst", "rank", "counts")}
    shared = ("individual", "categorical", "weight", "person", "keep", "outside", "missing", "kinds", "signs")
    return to_long(table, **wide, **{role: getattr(schema, role) for role in shared})[0]


def _places(
    features: Mapping[str, Place], roles: Mapping[str, Place | None], codes: Mapping[str, Any], outside: str | None
) -> dict[str, list[str | float | None]]:
    """Return the column or constant of each alternative, by feature or role. The outside option is always available."""
    if not isinstance(features, Mapping):
        raise SchemaError(
            f"features must be a mapping from names to templates or to one column per alternative, got {features!r}."
        )
    declared = {**features, **{role: place for role, place in roles.items() if place is not None}}
    inside = {label: code for label, code in codes.items() if label != outside}
    places: dict[str, list[str | float | None]] = {}
    for name, place in declared.items():
        if outside is None or (isinstance(place, Mapping) and outside in place):
            places[name] = [*_resolve(name, place, codes)]
        else:
            resolved = dict(zip(inside, _resolve(name, place, inside), strict=True))
            places[name] = [resolved.get(label, 1 if name == "available" else None) for label in codes]
    return places


def _resolve(name: str, place: Place, codes: Mapping[str, Any]) -> list[str | float]:
    if isinstance(place, str):
        if "{alternative}" not in place:
            raise SchemaError(
                f"feature {name!r}: the template {place!r} lacks {{alternative}}. If the column is the same for "
                f"all alternatives, list it in individual."
            )
        return [place.replace("{alternative}", label) for label in codes]
    if not isinstance(place, Mapping):
        raise SchemaError(f"feature {name!r}: expected a template or a mapping from labels to columns, got {place!r}.")
    place = {label_of(label): where for label, where in place.items()}
    absent = [label for label in codes if label not in place]
    if absent:
        raise SchemaError(
            f"feature {name!r} has no entry for alternative {absent[0]!r}: name its column, or give a number."
        )
    for label, where in place.items():
        if label not in codes:
            raise SchemaError(f"feature {name!r} has an entry for {label!r}, which is not among the alternatives.")
        if not isinstance(where, str | Real):
            raise SchemaError(f"feature {name!r} of {label!r}: expected a column or a number, got {where!r}.")
    return [place[label] for label in codes]


def _require_apart(schema: Schema, places: Places, *, chosen: str | None, choice_set: str | None) -> None:
    """Raise SchemaError if the roles of a column contradict each other or would reveal the choice to the model.

    A column may be in both ``individual`` and ``available``, because availability can describe the individual: for
    example, the car is available to car owners.
    """
    by_role = {name: {place for place in row if isinstance(place, str)} for name, row in places.items()}
    available, ranked, counted = (by_role.pop(role, set()) for role in ("available", "rank", "counts"))
    features = set().union(*by_role.values())
    inputs = features.union(schema.individual)
    for columns, role, place in (
        (inputs, "a model input", "individual and features"),
        (available, "available", "available"),
    ):
        if chosen in columns:
            raise SchemaError(
                f"column {chosen!r} is declared as chosen and also as {role}: "
                f"remove it from {place}, because it reveals the choice."
            )
    require_distinct({"chosen": chosen, "choice_set": choice_set, "weight": schema.weight, "person": schema.person})
    named_twice = {
        "available": available & features,
        "rank": ranked & (inputs | available),
        "counts": counted & (inputs | available),
        "weight": inputs & {schema.weight},
        "person": inputs & {schema.person},
    }
    for role, leaks in named_twice.items():
        if leaks:
            raise SchemaError(
                f"column {min(leaks)!r} is declared as {role} and also as a model input: "
                f"remove it from individual and features."
            )


def _read(table: Any, schema: Schema, set_columns: list[str], places: Places, text_roles: set[str]) -> pa.Table:
    """Read the columns that have a role, each only once.

    ``text_roles`` are roles of the long form whose columns hold names.
    """
    sources = {name: [name] for name in set_columns}
    sources |= {name: [place for place in row if isinstance(place, str)] for name, row in places.items()}
    text = [column for name, row in sources.items() if name in schema.text_columns | text_roles for column in row]
    ids = [column for name, row in sources.items() if name in schema.id_columns for column in row]
    columns = dict.fromkeys(column for row in sources.values() for column in row)
    return read_table(table, list(columns), text=text, ids=ids)


def _require_offered(
    arrow: pa.Table, codes: Mapping[str, Any], features: Mapping[str, list[str | float | None]]
) -> None:
    """Raise SchemaError if all columns of an alternative are blank in a row: it was probably not available there."""
    for k, label in enumerate(codes):
        columns = [row[k] for row in features.values() if isinstance(row[k], str)]
        if not columns:
            continue
        is_blank = np.logical_and.reduce([_is_blank(arrow[column]) for column in columns])
        if is_blank.any():
            rows, listed = np.flatnonzero(is_blank), ", ".join(map(repr, columns))
            verb = "is blank" if len(columns) == 1 else "are blank"
            problem = (
                f"alternative {label!r}: {listed} {verb} in row {rows[0]}; {such_rows(len(rows))}. If the alternative "
                f"was not available there, add a column for each alternative with 1 if it was available and 0 if not, "
                f"such as 'available_{label}', and"
            )
            raise SchemaError(
                f"{problem} pass available='available_{{alternative}}'; otherwise fill in the values, or declare "
                f"missing='indicator'.",
                command_line=f"{problem} write the roles with 'pcmcnet check TABLE -o roles.toml'; otherwise fill in "
                f"the values.",
            )


def _is_blank(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return True where a column has no value, or NaN."""
    return array_to_numpy(column.is_null(nan_is_null=True).combine_chunks().cast(pa.int8())).astype(np.bool_)


def _interleave(arrow: pa.Table, places: list[str | float | None], *, name: str) -> pa.ChunkedArray:
    """Interleave the columns of the alternatives into one long column."""
    # 1. Bring the columns to a common type.
    n = arrow.num_rows
    parts = [arrow[p].combine_chunks() if isinstance(p, str) else pa.array(np.full(n, p)) for p in places]
    if len({part.type for part in parts}) > 1:
        # drop the fixed size of lists, so that a later error names the row with another size
        fixed = [pa.types.is_fixed_size_list(part.type) for part in parts]
        parts = [p.cast(pa.list_(p.type.value_type)) if f else p for p, f in zip(parts, fixed, strict=True)]
    kinds = {part.type for part in parts} - {pa.null()}
    if len({part.type for part in parts}) > 1:
        try:
            parts = [_as_one(part, kinds) for part in parts]
        except pa.ArrowException as error:
            types = ", ".join(sorted(map(str, kinds)))
            raise SchemaError(f"feature {name!r}: expected columns of the same type, got {types}.") from error
    # 2. Take the values row by row.
    order = np.arange(n * len(parts)).reshape(len(parts), n).T.ravel()
    return pa.chunked_array(parts).take(order)


def _as_one(part: pa.Array, kinds: set[pa.DataType]) -> pa.Array:
    """Cast a column to the common type of all columns of the feature."""
    if part.type == pa.null() and len(kinds) == 1:
        return pa.nulls(len(part), next(iter(kinds)))
    if all(map(_is_number, kinds)):
        return (part.cast(pa.int8()) if pa.types.is_boolean(part.type) else part).cast(pa.float64(), safe=False)
    items = [kind.value_type for kind in kinds if pa.types.is_list(kind)]
    if len(items) == len(kinds):  # lists of numbers, or of names
        return part.cast(pa.list_(pa.float64() if all(map(_is_number, items)) else pa.string()))
    return part.cast(next(iter(kinds)) if len(kinds) == 1 else pa.string())


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return any(test(kind) for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))


def _best_worst_ranks(best: pa.Array, worst: pa.Array, name: str) -> pa.Array:
    """Return ranks of 1 for the best alternative of each row, -1 for the worst and none for the others.

    Raises SchemaError if an alternative is both.
    """
    is_best, is_worst = np.asarray(best) == 1, np.asarray(worst) == 1
    both = np.flatnonzero(is_best & is_worst)
    if both.size:
        row = both[0] // (len(is_best) // int(is_best.sum()))
        raise SchemaError(
            f"column {name!r}, row {row}: the best alternative is also the worst; {such_rows(both.size)}. Correct or "
            f"drop them."
        )
    ranks = is_best.astype(np.int64) - is_worst
    return pa.array(ranks, mask=ranks == 0)


def _flags(column: pa.ChunkedArray, codes: Mapping[str, Any], *, name: str, outside: str | None) -> pa.Array:
    """Return 1 for the chosen alternative of each row and 0 for the others. A missing value means the outside option.

    Raises SchemaError if a value does not identify an alternative.
    """
    try:
        value_codes, distinct_values = distinct(column)
        values = [*names(distinct_values), None]  # the last entry is for code -1: missing
        choices = [names(pa.array([code]))[0] for code in codes.values()]
    except (*UNREADABLE, TypeError) as error:
        raise SchemaError(f"column {name!r}: expected text or numbers that identify the alternatives.") from error
    if len(set(choices)) < len(choices) or None in choices:
        raise SchemaError(f"alternatives: expected a distinct value for each label, got {dict(codes)!r}.")
    position: dict[Any, int] = {value: k for k, value in enumerate(choices)}
    if outside is not None:
        position[None] = list(codes).index(outside)
    chosen = np.array([position.get(value, -1) for value in values])[value_codes]
    bad = np.flatnonzero(chosen < 0)
    if bad.size:
        got = values[value_codes[bad[0]]]
        raise SchemaError(
            f"column {name!r}, row {bad[0]}: expected one of {', '.join(map(str, choices))}, "
            f"got {'nothing' if got is None else got}; {such_rows(bad.size)}. "
            f"Drop these rows, or list the value in alternatives."
        )
    return pa.array((chosen[:, None] == np.arange(len(choices))).ravel().astype(np.int8))
