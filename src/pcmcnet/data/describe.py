"""What a table looks like, in a few plain values: the range of each column, and some choice sets to show.

The description travels with a fitted model, so that a form can be filled in and a map can be drawn without the table.
Sets of weight 0 take no part. Plain values only, the same for the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data.columns.arrays import Column, Contents, Numeric
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds import category as category_kind
from pcmcnet.data.kinds import number as number_kind
from pcmcnet.data.kinds.category import category_facts
from pcmcnet.data.kinds.kind import is_count, is_number, is_string, json_number
from pcmcnet.data.kinds.number import number_facts
from pcmcnet.data.schema import Schema
from pcmcnet.reports.formats import to_fragment
from pcmcnet.reports.sections import Facts, Table, note
from pcmcnet.reports.tables import number

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData

_SHOWN = 50  # alternatives of a set that is shown, where there is one so small
_MORE = 7  # further sets, of a table without contents such as pictures


def describe(data: ChoiceData) -> dict[str, Any]:
    """Describe each model input and the labels, and show some sets.

    Returns
    -------
    dict
        ``columns``: by name, for numbers ``min``, ``max`` and ``quartiles`` (None where there is no number at all), for
        categories ``categories`` (the most frequent ones, sorted), ``most`` (the most frequent) and ``distinct`` (how
        many there are), for contents their ``kind``, ``distinct`` and what their kind has (``size`` of vectors, ``min``
        and ``max`` of instants and ids, ``categories`` and ``words`` of lists); ``example``: the ``individual`` and
        the ``alternatives`` of a set of median size, and which of them was ``chosen``; ``more_examples``: up to seven
        others, from all over the table, unless it has contents such as pictures;
        ``has_varying_offers``: see :func:`has_varying_offers`.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> table = {"trip": [1, 1], "took": [0, 1], "price": [3.0, 4.5], "mode": ["bus", "car"]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["price"])
    >>> about = describe(data)
    >>> about["columns"]["price"]
    {'min': 3.0, 'max': 4.5, 'quartiles': [3.375, 3.75, 4.125]}
    >>> about["example"]
    {'individual': {}, 'alternatives': [{'mode': 'bus', 'price': 3.0}, {'mode': 'car', 'price': 4.5}], 'chosen': 1}
    """
    counted = data if data.weights.all() else data.subset(data.weights > 0)
    columns, sizes = {**_of_alternatives(counted), **counted.individual}, counted.sizes
    # the first set whose size is nearest to the median, or to what can be shown
    examples = [int(np.argmin(np.abs(sizes - min(int(np.median(sizes)), _SHOWN))))] if len(counted) else []
    # others at equal distances in the table
    others = [k for k in np.flatnonzero((sizes > 1) & (sizes <= _SHOWN)).tolist() if k not in examples]
    if others and not data.schema.contents:
        examples += [others[k] for k in np.unique(np.linspace(0, len(others) - 1, _MORE).round().astype(int))]
    shown = [_example(counted, k) for k in examples]
    return {
        "offers_differ": has_varying_offers(counted),
        "columns": {name: _facts(column) for name, column in columns.items()},
        "example": shown[0] if shown else None,
        "more_examples": shown[1:],
    }


def has_varying_offers(data: ChoiceData) -> bool:
    """Tell whether some sets offer other alternatives than others: other labels, or another number without labels."""
    if data.labels is None:
        return bool((data.sizes != data.sizes[:1]).any())
    counts = np.bincount(data.labels.codes)
    return bool((counts[counts > 0] != len(data)).any())


def _of_alternatives(data: ChoiceData) -> dict[str, Column]:
    """Return features and labels, the labels first as in a table."""
    label = data.schema.alternative
    labels = {} if data.labels is None or label is None or label in data.individual else {label: data.labels}
    return {**labels, **data.features}


def _facts(column: Column) -> dict[str, Any]:
    if isinstance(column, Contents):
        return content_facts(column.compact())
    return number_facts(column) if isinstance(column, Numeric) else category_facts(column)


def content_facts(column: Contents) -> dict[str, Any]:
    """Say of contents in use how many there are, and what a form needs to know of their kind."""
    return {"kind": column.kind, "distinct": len(column.table), **KINDS[column.kind].facts(column)}


def _example(data: ChoiceData, at: int) -> dict[str, Any]:
    """Show one set."""
    one = data.subset([at])
    individual = {name: json_values(column)[0] for name, column in one.individual.items()}
    columns = {name: json_values(column) for name, column in _of_alternatives(one).items()}
    alternatives = [{name: values[i] for name, values in columns.items()} for i in range(int(one.sizes[0]))]
    chosen = None if one.chosen is None else int(one.chosen[0])
    return {"individual": individual, "alternatives": alternatives, "chosen": chosen}


def json_values(column: Column) -> list[Any]:
    """Return numbers, names or contents as JSON has them; None where one is missing."""
    if isinstance(column, Numeric):
        return [None if np.isnan(value) else json_number(value) for value in column.values]
    plain: NDArray[Any] = column.plain()
    if isinstance(column, Contents):
        return [None if content is None else KINDS[column.kind].to_json(content) for content in plain]
    return [str(name) for name in plain]


# -- Notebook view -----------------------------------------------------------------------------------------------------

_LOOKED_AT = 20_000  # choice sets: a cell is not to wait for its output
_NAMED = 5  # categories of a column


def to_html(data: ChoiceData) -> str:
    """Return a part of a page; every text is escaped."""
    schema, some = data.schema, data.subset(range(min(len(data), _LOOKED_AT)))
    each = f", {data.sizes.min()} to {data.sizes.max()} in a set" if len(data) else ""
    facts: dict[str, object] = {
        "choice sets": f"{len(data):,}",
        "alternatives": f"{data.n_alternatives:,}{each}",
        "choices": "unknown" if data.chosen is None else f"known ({schema.chosen})",
    }
    if schema.person is not None:
        facts["persons"] = f"{len(set(data.groups().tolist())):,} ({schema.person})"
    if schema.weight is not None:
        facts["weights"] = schema.weight
    blocks: list[Any] = [Facts(facts)]
    if len(some):
        roles = {**dict.fromkeys(data.features, "alternative"), **dict.fromkeys(data.individual, "individual")}
        rows = [[name, roles.get(name, "label"), *_values(about)] for name, about in some.describe()["columns"].items()]
        blocks.append(Table(cells=[["column", "of", "kind", "values"], *rows]))
    if len(some) < len(data):
        blocks.append(note(f"Values are those of the first {len(some):,} choice sets."))
    return to_fragment("Choice data", blocks)


def _values(about: dict[str, Any]) -> list[str]:
    """Say of which kind a column is, and what is in it."""
    if "quartiles" in about:
        if about["min"] is None:
            return ["number", "none"]
        return ["number", f"{number(about['min'])} to {number(about['max'])}, median {number(about['quartiles'][1])}"]
    if "categories" not in about or "kind" in about:
        return [str(about["kind"]), f"{about['distinct']:,} different"]
    named = ", ".join(about["categories"][:_NAMED])
    more = about["distinct"] - min(len(about["categories"]), _NAMED)
    return ["category", f"{named} and {more:,} more" if more > 0 else named]


# -- Saved description -------------------------------------------------------------------------------------------------
# A description that is read back from a saved model is checked before a form or a map relies on it. What `describe`
# wrote fits the model's own schema. Whatever does not is refused by a ValueError that says where; facts that are not
# there are not known.


def require_description(table: Mapping[str, Any], schema: Schema) -> None:
    """Refuse facts that no table of this schema has; no facts at all are fine."""
    if not table:
        return
    # the kinds of the columns of individuals, and of alternatives, the labels among them
    special: dict[str, str] = {**dict.fromkeys(schema.categorical or (), "category"), **schema.contents}
    individual = {name: special.get(name, "number") for name in schema.individual}
    label = {} if schema.alternative in (None, *individual) else {str(schema.alternative): "category"}
    alternative = {**label, **{name: special.get(name, "number") for name in schema.features}}
    kinds = {**alternative, **individual}
    for name, found in _entries(table.get("columns"), "table, columns").items():
        _require(name in kinds, "table, columns")
        _require_facts(_entries(found, f"column {name!r}"), kinds[name], f"the facts of column {name!r}")
    first, more = table.get("example"), table.get("more_examples", [])
    _require(isinstance(more, list), "the other examples")
    for example in [*([] if first is None else [first]), *more]:
        _require_example(_entries(example, "the example"), alternative, individual)


def _require_facts(facts: Mapping[str, Any], kind: str, where: str) -> None:
    checks = number_kind.FACT_CHECKS if kind == "number" else category_kind.FACT_CHECKS
    for name, check in ({"distinct": is_count, **KINDS[kind].fact_checks} if kind in KINDS else checks).items():
        _require(facts.get(name) is None or check(facts[name]), where)
    if kind == "number" and any(facts.get(name) is not None for name in number_kind.FACT_CHECKS):
        quartiles = facts.get("quartiles") or ()
        _require(len(quartiles) == 3 and None not in (facts.get("min"), facts.get("max")), where)
        ascending = [facts["min"], *quartiles, facts["max"]]
        _require(ascending == sorted(ascending), where)


def _require_example(example: Mapping[str, Any], alternative: dict[str, str], individual: dict[str, str]) -> None:
    rows, chosen = example.get("alternatives"), example.get("chosen")
    _require_values(example.get("individual"), individual)
    _require(isinstance(rows, list) and len(rows) > 0, "the example")
    for row in rows or ():
        _require_values(row, alternative)
    _require(chosen is None or (is_count(chosen) and chosen < len(rows or ())), "the example")


def _require_values(found: Any, kinds: Mapping[str, str]) -> None:
    values = _entries(found, "the example")
    _require(values.keys() == kinds.keys(), "the example")
    for name, value in values.items():
        kind = kinds[name]
        check = KINDS[kind].is_json if kind in KINDS else is_number if kind == "number" else is_string
        _require(value is None or check(value), f"column {name!r} of the example")


def _entries(found: Any, where: str) -> dict[str, Any]:
    _require(isinstance(found, dict), where)
    entries: dict[str, Any] = found
    return entries


def _require(holds: bool, where: str) -> None:
    if not holds:
        raise ValueError(f"{where}: not what a fit notes of a table with these columns")
