"""Wide table (a row per choice, a group of columns per alternative) -> long table with its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcmcnet.data.schema import Missing, Schema
from pcmcnet.data.table import read_table
from pcmcnet.errors import SchemaError

Place = str | Mapping[str, str | float]  # a template with {alternative}, or label -> column or constant
_OWN = {"choice_set": "choice_set", "chosen": "chosen", "alternative": "alternative", "available": "available"}


def to_long(
    table: Any,
    *,
    chosen: str | None,
    alternatives: Sequence[str] | Mapping[str, Any],
    features: Mapping[str, Place],
    individual: Sequence[str] = (),
    available: Place | None = None,
    weight: str | None = None,
    choice_set: str | None = None,
    categorical: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    missing: Missing = "error",
) -> tuple[pa.Table, Schema]:
    """Interleave the groups of columns: row r * K + k of the result is alternative k of row r."""
    codes = _codes(alternatives)
    places = {name: _resolve(name, place, codes) for name, place in features.items()}
    if available is not None:
        places[_OWN["available"]] = _resolve("available", available, codes)
    carried = [*individual, *keep, *([weight] if weight else [])]
    taken = [name for name in _OWN.values() if name in carried or name in features]
    if taken:
        raise SchemaError(f"the name {taken[0]!r} is used by the long form itself: rename that column or feature.")
    asked = [*carried, *([chosen] if chosen else []), *([choice_set] if choice_set else [])]
    asked += [p for row in places.values() for p in row if isinstance(p, str)]
    arrow = read_table(table, list(dict.fromkeys(asked)))
    repeated = np.repeat(np.arange(arrow.num_rows), len(codes))
    columns: dict[str, Any] = {
        "choice_set": arrow[choice_set].take(repeated) if choice_set else repeated,
        "alternative": np.tile(np.array(list(codes), dtype=object), arrow.num_rows),
        **{name: arrow[name].take(repeated) for name in carried},
        **{name: _interleave(arrow, row, name=name) for name, row in places.items()},
    }
    if chosen:
        columns["chosen"] = _flags(arrow[chosen], codes, name=chosen)
    schema = Schema(
        choice_set="choice_set",
        chosen="chosen" if chosen else None,
        alternative="alternative",
        individual=tuple(individual),
        features=tuple(features),
        categorical=None if categorical is None else tuple(categorical),
        available="available" if available is not None else None,
        weight=weight,
        keep=tuple(keep),
        missing=missing,
    )
    return pa.table(columns), schema


def _codes(alternatives: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Label -> its value in the chosen column."""
    codes = dict(alternatives) if isinstance(alternatives, Mapping) else {name: name for name in alternatives}
    if isinstance(alternatives, str) or not codes or not all(isinstance(label, str) for label in codes):
        raise SchemaError(f"alternatives must be a list of labels or a mapping from labels, got {alternatives!r}.")
    return codes


def _resolve(name: str, place: Place, codes: Mapping[str, Any]) -> list[str | float]:
    """Where each alternative's values of one feature are."""
    if isinstance(place, str):
        if "{alternative}" not in place:
            raise SchemaError(
                f"feature {name!r}: the template {place!r} lacks {{alternative}}. A column that is the same "
                f"for all alternatives belongs in individual."
            )
        return [place.replace("{alternative}", label) for label in codes]
    absent = [label for label in codes if label not in place]
    if absent:
        raise SchemaError(
            f"feature {name!r} says nothing of alternative {absent[0]!r}: name its column, or give a number."
        )
    unknown = [label for label in place if label not in codes]
    if unknown:
        raise SchemaError(f"feature {name!r} names {unknown[0]!r}, which is not among the alternatives.")
    return [place[label] for label in codes]


def _interleave(arrow: pa.Table, places: list[str | float], *, name: str) -> pa.ChunkedArray:
    """Weave one column per alternative into one long column."""
    parts = [
        arrow[p].combine_chunks() if isinstance(p, str) else pa.array(np.full(arrow.num_rows, p)) for p in places
    ]
    kinds = {part.type for part in parts}
    if len(kinds) > 1:
        numbers = all(pa.types.is_integer(k) or pa.types.is_floating(k) or pa.types.is_boolean(k) for k in kinds)
        parts = [_as_float(part) if numbers else part.cast(pa.string()) for part in parts]
    flat = pa.chunked_array(parts) if arrow.num_rows else pa.chunked_array([], type=parts[0].type)
    order = np.arange(arrow.num_rows * len(parts)).reshape(len(parts), arrow.num_rows).T.ravel()
    return flat.take(order)


def _as_float(part: pa.Array) -> pa.Array:
    return (part.cast(pa.int8()) if pa.types.is_boolean(part.type) else part).cast(pa.float64())


def _flags(column: pa.ChunkedArray, codes: Mapping[str, Any], *, name: str) -> pa.Array:
    """1 where the row's choice is the alternative; refuses a value that stands for none."""
    values = column.cast(pa.string()).to_numpy(zero_copy_only=False)
    known = np.array([pc.cast(pa.scalar(code), pa.string()).as_py() for code in codes.values()], dtype=object)
    flags = values[:, None] == known[None, :]
    bad = np.flatnonzero(~flags.any(1))
    if bad.size:
        raise SchemaError(
            f"column {name!r}, row {bad[0]}: expected one of {', '.join(known)}, got {values[bad[0]]}; "
            f"{bad.size} such rows. Drop them or name the alternative they stand for."
        )
    return pa.array(flags.ravel().astype(np.int8))
