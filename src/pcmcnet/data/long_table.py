"""Conversion of choice sets back to a long table, the inverse of ``read_long``.

The table has the column names of the schema and one row per alternative, in the order of the table that was read.
Unavailable alternatives keep their rows, but their features and labels are missing, because they are not stored.
Outside options have rows only if the alternatives have labels. Rankings and markets have one row per alternative, with
its rank or count. The counts of a market include the weight of its set, if there is one, so the weight becomes 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Ints
from pcmcnet.data.column_reader import MISSING_CATEGORY
from pcmcnet.data.columns.arrays import Categorical, Column, Numeric
from pcmcnet.data.counts import markets
from pcmcnet.errors import InputError

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData

EXPANSION = "expansion"  # column of the expansion factors


def long_table(data: ChoiceData) -> pa.Table:
    """Return choice sets as a long table.

    Raises
    ------
    InputError
        If two choice sets have the same id, or if some choices of a ranking are not in the data.
    """
    # 1. Rankings and markets become sets of all their alternatives again.
    ranks = counts = None
    if data.schema.rank is not None:
        data, ranks = _rankings(data)
    elif data.schema.counts is not None:
        data, counts = markets(data)
    if len(np.unique(data.set_ids)) < len(data):
        raise InputError("two choice sets have the same id, so a long table cannot separate them: rename the ids.")
    # 2. Order the rows as in the table: the alternatives, except outside options without a label, and hidden rows.
    schema, outside = data.schema, data.outside
    is_unlabelled = np.zeros(len(data.rows), bool) if outside is None or data.labels is not None else outside
    shown = np.flatnonzero(~is_unlabelled)
    order = np.argsort(np.concatenate([data.rows[shown], data.hidden_rows]), kind="stable")
    alternative = np.concatenate([shown, np.full(len(data.hidden_rows), -1)])[order]
    sets = np.concatenate([data.set_of_alternative[shown], data.hidden_sets])[order]
    is_hidden = alternative < 0
    alternatives, set_rows = pa.array(alternative, mask=is_hidden), pa.array(sets)
    # 3. Columns with a single role. The first role of a column determines its values.
    columns = {schema.choice_set: pa.array(data.set_ids).take(set_rows)}
    if schema.chosen is not None and data.chosen is not None:
        is_chosen = np.zeros(len(data.rows) + 1, np.int8)  # the last entry is for hidden rows
        is_chosen[data.offsets[:-1] + data.chosen] = 1
        columns[schema.chosen] = pa.array(is_chosen[alternative])
    if schema.rank is not None:
        columns[schema.rank] = _ranks(ranks).take(alternatives)
    if schema.counts is not None:
        columns[schema.counts] = pa.array(counts).take(alternatives)
    if schema.alternative is not None and data.labels is not None:
        columns[schema.alternative] = _labels(data, data.labels, alternative, sets)
    if schema.available is not None:
        columns[schema.available] = pa.array((~is_hidden).astype(np.int8))
    if schema.weight is not None:
        columns[schema.weight] = pa.array(data.weights).take(set_rows)
    # 4. Kept columns, individual-level columns and features.
    has_missing = schema.missing == "indicator"
    per_set = {**data.keep, **{name: data.individual[name] for name in schema.individual if name not in data.keep}}
    for name, column in per_set.items():
        columns.setdefault(name, _to_arrow(column, has_missing).take(set_rows))
    no_features = np.zeros(len(data.rows), bool) if outside is None else outside
    with_features = pa.array(alternative, mask=is_hidden | np.append(no_features, True)[alternative])
    for name in schema.table_features:
        columns.setdefault(name, _to_arrow(data.features[name], has_missing).take(with_features))
    table = pa.table({name: columns[name] for name in schema.columns if name in columns})
    # 5. The expansion factors of sampled alternatives.
    if data.expansion is None or EXPANSION in columns:
        return table
    return table.append_column(EXPANSION, pa.array(data.expansion).take(alternatives))


def _to_arrow(column: Column, has_missing: bool) -> pa.Array:
    """Return a column as an Arrow array. With ``has_missing``, the category for missing values becomes null."""
    if isinstance(column, Numeric):
        return pa.array(column.values)
    if isinstance(column, Categorical):
        names = [None if has_missing and name == MISSING_CATEGORY else name for name in column.categories]
        return pa.array(names, pa.string()).take(pa.array(column.codes))
    return pa.array(column.plain().tolist())


def _labels(data: ChoiceData, labels: Categorical, alternative: Ints, sets: Ints) -> pa.Array:
    """Return the labels of rows. In a set without an outside option, the first hidden row is the outside option."""
    names = np.full(len(alternative), None, object)
    names[alternative >= 0] = labels.plain()[alternative[alternative >= 0]]
    if data.outside is not None:
        with_option = np.unique(data.set_of_alternative[data.outside])
        hidden = np.flatnonzero((alternative < 0) & ~np.isin(sets, with_option))
        names[hidden[np.unique(sets[hidden], return_index=True)[1]]] = data.schema.outside
    return pa.array(names.tolist(), pa.string())


# -- Rankings ----------------------------------------------------------------------------------------------------------


def _rankings(data: ChoiceData) -> tuple[ChoiceData, Ints]:
    """Return the first choice set of each ranking with the id of the ranking, and ranks (N,), where 0 means no rank.

    The k-th choice set of a ranking offers the alternatives that were not chosen in the sets before it. Pairs, which
    are smaller, compare each remaining alternative with the worst one, in the order of the alternatives. So the number
    of pairs in which the first alternative is chosen is the position of the worst one.
    """
    parts = [str(name).rpartition("/") for name in data.set_ids]  # ids made by `explode`
    ids, numbers = [part[0] for part in parts], [int(part[2]) for part in parts]
    chosen = data.require_chosen("a ranking")
    is_first = np.array([number == 1 for number in numbers], bool)
    ranks: list[Ints] = []
    left = np.empty(0, np.int64)  # alternatives of the ranking that have no rank yet
    worst: list[int] = []  # choices in the pairs of the next worst alternative
    n_worst = 0
    for s, size in enumerate(data.sizes.tolist()):
        is_next = bool(s) and ids[s] == ids[s - 1] and numbers[s] == numbers[s - 1] + 1
        if is_first[s]:
            ranks.append(np.zeros(size, np.int64))
            left, worst, n_worst = np.arange(size), [], 0
        elif is_next and size == 2 < len(left):
            worst.append(int(chosen[s]))
            if len(worst) == len(left) - 1:
                n_worst += 1
                place = worst.count(0)
                ranks[-1][left[place]] = -n_worst
                left, worst = np.delete(left, place), []
            continue
        elif not is_next or len(left) != size:
            raise InputError(
                f"choice set {data.set_ids[s]} belongs to a ranking whose earlier choices are not in the data: split "
                f"rankings as a whole."
            )
        ranks[-1][left[chosen[s]]] = numbers[s]
        left = np.delete(left, chosen[s])
    firsts = data.subset(is_first)
    names = np.array([name for name, first in zip(ids, is_first, strict=True) if first], object)
    return replace(firsts, set_ids=names), np.concatenate([*ranks, np.empty(0, np.int64)])


def _ranks(ranks: Ints | None) -> pa.Array:
    """Return ranks as an Arrow array, with null for alternatives without a rank."""
    assert ranks is not None
    return pa.array(ranks, mask=ranks == 0)
