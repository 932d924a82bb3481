"""Conversion of a table of choosers and a table of items to the fields of a ``CatalogueData``, with all checks.

Each table is read as a long table: the choosers as choice sets of one row, and the items as a single choice set. So
columns have the same kinds, checks and messages as in ``ChoiceData.from_long``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.catalogue_data import CHOICE_SET, CHOSEN, Assortments, PairFeatures
from pcmcnet.data.columns.arrays import array_to_numpy
from pcmcnet.data.columns.distinct import UNREADABLE, distinct, names
from pcmcnet.data.files.tabular import folder_of, names_of, read_table
from pcmcnet.data.pair_features import PairFeature
from pcmcnet.data.read_long import read_long
from pcmcnet.data.schema import Schema
from pcmcnet.errors import SchemaError, did_you_mean, such_rows

_SET = "choice set of the row"  # column that is added to both tables; no table has a column of this name
_SET_IN_MESSAGE = re.compile(r" \(choice set \d+\)(?=:)")  # both tables are read as choice sets with numbers
CHOOSERS, CATALOGUE = "choosers", "catalogue"  # names of the tables in messages


def read_catalogue(
    choosers: Any,
    catalogue: Any,
    *,
    item: str,
    chosen: str | None,
    offered: str | None,
    features: Sequence[str],
    pair_features: Mapping[str, PairFeature],
    choice_set: str | None,
    labels: bool,
    **roles: Any,
) -> dict[str, Any]:
    """Read and check both tables.

    The parameters are those of ``ChoiceData.from_catalogue``. ``roles`` are the roles that a long table has, too.

    Returns
    -------
    dict
        The fields of a ``CatalogueData``.

    Raises
    ------
    SchemaError
        If a table does not fit the declared roles.
    """
    # 1. The roles of the columns of the product, and of both tables.
    _require_names(item=item, chosen=chosen, offered=offered, choice_set=choice_set)
    pairs = _checked_pair_features(pair_features)
    _require_their_table(choosers, catalogue, _tuple(roles["individual"]), _tuple(features))
    schema = Schema(
        choice_set=CHOICE_SET if choice_set is None else choice_set,
        chosen=None if chosen is None else CHOSEN,
        alternative=item if labels else None,
        features=(*_tuple(features), *pairs),
        **roles,
    )
    _require_apart(schema, pairs, item=item, chosen=chosen, offered=offered)
    of_choosers = _roles_of(schema, schema.individual, weight=schema.weight, person=schema.person, keep=schema.keep)
    table_features = tuple(name for name in schema.features if name not in pairs)
    of_items = _roles_of(schema, table_features)
    # 2. The catalogue: one set, whose alternatives are the items.
    with _errors_name(CATALOGUE):
        item_table = _read(catalogue, of_items, [item], names=[item])
        if not item_table.num_rows:
            raise SchemaError("the table has no rows: expected at least one item.")
        item_ids = _item_ids(item_table, item)
        items = _read_rows(item_table, of_items, np.zeros(item_table.num_rows, np.int64), folder_of(catalogue))
    # 3. The choosers: one row is one set.
    extra = [name for name in (chosen, offered, choice_set) if name is not None]
    with _errors_name(CHOOSERS):
        table = _read(choosers, of_choosers, extra, names=[name for name in (chosen, offered) if name is not None])
        if not table.num_rows and chosen is not None:
            raise SchemaError("the table has no rows: expected at least one chooser.")
        fields = _read_rows(table, of_choosers, np.arange(table.num_rows), folder_of(choosers))
        place = {name: row for row, name in enumerate(item_ids)}
        chosen_items = None if chosen is None else _chosen_items(table, chosen, place)
        offers = None if offered is None else _offers(table, offered, place)
        if offers is not None and chosen_items is not None:
            _require_offered(offers, chosen_items, f"column {chosen!r}", f"column {offered!r}", item_ids)
        set_ids = fields["set_ids"] if choice_set is None else _set_ids(table, choice_set)
    # 4. Features of pairs read any columns of both tables.
    categorical = (*fields["schema"].categorical, *items["schema"].categorical)
    sources = (read_table(choosers), read_table(catalogue)) if pairs else None
    return {
        "schema": replace(schema, categorical=categorical),
        "set_ids": set_ids,
        "chosen_items": chosen_items,
        "weights": fields["weights"],
        "individual": fields["individual"],
        "keep": fields["keep"],
        "items": items["features"],
        "item_ids": tuple(item_ids),
        "offers": offers,
        "pair_features": None if sources is None else PairFeatures(pairs, *sources),
        "rows": np.arange(table.num_rows),
    }


# -- Roles -------------------------------------------------------------------------------------------------------------


def _tuple(values: Any) -> tuple[Any, ...]:
    """Return a list of names as a tuple. The schema rejects a single string."""
    return Schema(choice_set=_SET, features=values).features


def _require_names(**roles: Any) -> None:
    """Raise SchemaError unless each role is the name of a column or None, and ``item`` is given."""
    for role, name in roles.items():
        if not isinstance(name, str) and (name is not None or role == "item"):
            raise SchemaError(f"{role} must be the name of a column, got {name!r}.")


def _checked_pair_features(pair_features: Any) -> dict[str, PairFeature]:
    """Return pair features as a dict, or raise SchemaError unless they map names to functions."""
    if not isinstance(pair_features, Mapping) or not all(
        isinstance(name, str) and callable(function) for name, function in pair_features.items()
    ):
        raise SchemaError(
            f"pair_features must map names to functions of (choosers, items) or to pn.PairTable, as in "
            f"{{'distance': distance}}, got {pair_features!r}."
        )
    return dict(pair_features)


def _require_their_table(choosers: Any, catalogue: Any, individual: tuple[str, ...], features: tuple[str, ...]) -> None:
    """Raise SchemaError if a column is declared for the wrong table, or for both."""
    if both := [name for name in individual if name in features]:
        raise SchemaError(
            f"column {both[0]!r} is listed twice, in individual (columns of the choosers) and in features (columns of "
            f"the catalogue): keep one, or rename the column in one of the tables."
        )
    of_choosers, of_catalogue = names_of(choosers), names_of(catalogue)
    for role, columns, present, others, other in (
        ("individual", individual, of_choosers, of_catalogue, "the catalogue: declare it in features"),
        ("features", features, of_catalogue, of_choosers, "the choosers: declare it in individual"),
    ):
        for name in columns:
            if name not in present and name in others:
                raise SchemaError(f"column {name!r} is declared in {role}, but it is a column of {other}.")


def _require_apart(
    schema: Schema, pairs: Mapping[str, Any], *, item: str, chosen: str | None, offered: str | None
) -> None:
    """Raise SchemaError if a column has two roles that exclude each other."""
    inputs = {*schema.individual}
    for role, name in (("chosen", chosen), ("offered", offered)):
        if name in inputs:
            raise SchemaError(
                f"column {name!r} is declared as {role} and also as a model input: remove it from individual."
            )
    reserved = [name for name in (CHOSEN, CHOICE_SET, _SET) if name in (*inputs, *schema.features)]
    if reserved:
        raise SchemaError(f"the name {reserved[0]!r} is reserved for the choice sets: rename that column or feature.")
    wrong = [name for name in pairs if name in (schema.categorical or ()) or name in schema.contents]
    if wrong:
        raise SchemaError(
            f"pair feature {wrong[0]!r}: pair features are numbers. Remove it from categorical and kinds."
        )


def _roles_of(schema: Schema, inputs: tuple[str, ...], **roles: Any) -> Schema:
    """Return the schema of one of the two tables, whose model inputs are ``inputs``."""
    side = "individual" if inputs is schema.individual else "features"
    categorical = None if schema.categorical is None else tuple(name for name in schema.categorical if name in inputs)
    options: dict[str, Any] = {side: inputs, "missing": schema.missing, "categorical": categorical, **roles}
    kinds = {name: kind for name, kind in schema.kinds.items() if name in inputs}
    return Schema(choice_set=_SET, kinds=kinds, **options)


# -- Tables ------------------------------------------------------------------------------------------------------------


@contextmanager
def _errors_name(table: str) -> Iterator[None]:
    """Put the name of the table in front of messages, and leave out the numbers of choice sets."""
    try:
        yield
    except SchemaError as error:
        raise SchemaError(f"{table}: {_SET_IN_MESSAGE.sub('', str(error))}") from error


def _read(table: Any, schema: Schema, extra: Sequence[str], *, names: Sequence[str]) -> pa.Table:
    """Read the columns that have a role; ``names`` are columns of item ids."""
    columns = [name for name in dict.fromkeys([*extra, *schema.columns]) if name != _SET]
    text = {*schema.text_columns, *names}
    arrow = read_table(table, columns, text=text, ids=schema.id_columns - {_SET}, compact=True)
    return arrow


def _read_rows(table: pa.Table, schema: Schema, sets: Ints, folder: Any) -> dict[str, Any]:
    """Return the fields of choice data that has the given set for each row."""
    return read_long(table.append_column(_SET, pa.array(sets)), schema, folder=folder)


def _texts(column: pa.ChunkedArray, name: str, noun: str) -> tuple[NDArray[np.int32], list[str | None]]:
    """Return the code of each row and the text of each code, with None at the end for rows without a value."""
    try:
        codes, values = distinct(column)
        return codes, [*names(values), None]
    except UNREADABLE as error:
        raise SchemaError(f"column {name!r}: expected {noun} as text or numbers, got {column.type}.") from error


def _item_ids(table: pa.Table, item: str) -> list[str]:
    """Return the ids of the items as text, or raise SchemaError if one is missing or repeated."""
    codes, texts = _texts(table[item], item, "ids of items")
    ids = [texts[code] for code in codes]
    first: dict[str | None, int] = {}
    repeated = [(row, name) for row, name in enumerate(ids) if first.setdefault(name, row) != row and name is not None]
    missing = [row for row, name in enumerate(ids) if name is None]
    if missing:
        raise SchemaError(
            f"column {item!r}, row {missing[0]}: expected the id of an item, got nothing; {such_rows(len(missing))}. "
            f"Fill in the id or drop these rows."
        )
    if repeated:
        row, name = repeated[0]
        raise SchemaError(
            f"column {item!r}, row {row}: the id {name!r} also occurs in row {first[name]}; "
            f"{such_rows(len(repeated))}. Each item needs one row: drop the duplicates."
        )
    return [str(name) for name in ids]


def _chosen_items(table: pa.Table, chosen: str, place: Mapping[str, int]) -> Ints:
    """Return the row of each chooser's item in the catalogue."""
    codes, texts = _texts(table[chosen], chosen, "ids of items")
    rows = np.array([-1 if name is None else place.get(name, -1) for name in texts], np.int64)[codes]
    if (rows < 0).any():
        _raise_unknown(chosen, np.flatnonzero(rows < 0), [texts[code] for code in codes], place, "chosen item")
    return rows


def _offers(table: pa.Table, offered: str, place: Mapping[str, int]) -> Assortments:
    """Return the items on offer to each chooser."""
    column = table[offered]
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise SchemaError(f"column {offered!r}: expected lists of item ids, got {column.type}.")
    lists = column.combine_chunks()
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
    sizes = array_to_numpy(lists.value_lengths().fill_null(0)).astype(np.int64)
    empty = np.flatnonzero(sizes == 0)
    if empty.size:
        raise SchemaError(
            f"column {offered!r}, row {empty[0]}: expected a list of item ids, got no item; {such_rows(empty.size)}. "
            f"Drop these choosers, or read the tables without offered."
        )
    codes, texts = _texts(pa.chunked_array([lists.flatten()]), offered, "lists of item ids")
    items = np.array([-1 if name is None else place.get(name, -1) for name in texts], np.int32)[codes]
    owners = np.repeat(np.arange(len(sizes)), sizes)
    if (items < 0).any():
        unknown = np.flatnonzero(items < 0)
        _raise_unknown(offered, owners[unknown[:1]], {int(owners[unknown[0]]): texts[codes[unknown[0]]]}, place, "item")
    order = np.lexsort((items, owners))
    items = items[order]
    twice = np.flatnonzero((items[1:] == items[:-1]) & (owners[1:] == owners[:-1]))
    if twice.size:
        name = list(place)[items[twice[0]]]
        raise SchemaError(
            f"column {offered!r}, row {owners[twice[0]]}: item {name!r} is listed twice; {twice.size} such entries. "
            f"Remove the duplicates."
        )
    return Assortments(np.append(0, np.cumsum(sizes)), items)


def _raise_unknown(column: str, rows: Ints, found: Any, place: Mapping[str, int], noun: str) -> None:
    """Raise SchemaError for rows whose item is missing or not in the catalogue."""
    name = found[int(rows[0])]
    if name is None:
        problem = f"expected the id of the {noun}, got nothing"
        remedy = "Drop these choosers: a model learns nothing from a chooser without a choice."
    else:
        problem = f"the {noun} {name!r} is not in the catalogue"
        remedy = "Add it to the catalogue, or drop these choosers." + did_you_mean(name, place)
    count = f"; {such_rows(len(rows))}" if len(rows) > 1 else ""
    raise SchemaError(f"column {column!r}, row {rows[0]}: {problem}{count}. {remedy}")


def _require_offered(
    offers: Assortments, chosen_items: Ints, chosen: str, offered: str, item_ids: Sequence[str]
) -> None:
    """Raise SchemaError if a chosen item is not on offer."""
    owners = np.repeat(np.arange(len(chosen_items)), np.diff(offers.offsets))
    is_offered = np.zeros(len(chosen_items), bool)
    is_offered[owners[offers.items == chosen_items[owners]]] = True
    wrong = np.flatnonzero(~is_offered)
    if wrong.size:
        raise SchemaError(
            f"{chosen}, row {wrong[0]}: the chosen item {item_ids[chosen_items[wrong[0]]]!r} is not among the items in "
            f"{offered}; {such_rows(wrong.size)}. Add it to the list, or correct the choice."
        )


def _set_ids(table: pa.Table, choice_set: str) -> NDArray[Any]:
    """Return the ids of the choice sets, or raise SchemaError if one is missing or repeated."""
    codes, values = distinct(table[choice_set])
    if (codes < 0).any() or len(values) < len(codes):
        problem = "expected the id of a choice set, got nothing" if (codes < 0).any() else "ids are repeated"
        raise SchemaError(f"column {choice_set!r}: {problem}. Each row needs its own id, or leave out choice_set.")
    ids = array_to_numpy(values)[codes]
    return ids.astype(np.int64) if ids.dtype.kind == "i" else ids
