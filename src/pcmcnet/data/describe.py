"""Summary of a table as plain JSON values, with the range of each column and example choice sets.

A fitted model saves the summary, so that forms and maps can be created without the table. Sets with weight 0 are left
out. Equal tables have equal summaries.
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

_MAX_ALTERNATIVES = 50  # preferred maximum size of an example set
_MORE_EXAMPLES = 7  # number of further example sets


def describe(data: ChoiceData) -> dict[str, Any]:
    """Summarise the model inputs and labels of a table, with example sets.

    Parameters
    ----------
    data : ChoiceData
        The choice sets.

    Returns
    -------
    dict
        ``columns``
            A dict for each column. A numeric column has ``min``, ``max`` and ``quartiles``, each None if all values are
            missing. A categorical column has ``categories`` (the most frequent ones, sorted), ``most`` (the single most
            frequent one) and ``distinct`` (the number of categories). A content column has ``kind``, ``distinct``, and
            further entries that depend on the kind: ``size`` for vectors, ``min`` and ``max`` for datetimes and ids,
            ``categories`` and ``words`` for lists.
        ``example``
            A set of median size, with entries ``individual``, ``alternatives`` and the position ``chosen``, or None if
            there are no sets.
        ``more_examples``
            Up to seven other sets from the whole table, or an empty list if the table has content columns, such as
            texts or images.
        ``offers_differ``
            Whether the sets offer different alternatives, from :func:`has_varying_offers`.

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
    weighted = data.with_positive_weight()
    columns, sizes = {**_alternative_columns(weighted), **weighted.individual}, weighted.sizes
    # 1. The first example is the first set whose size is nearest to the median, or to the largest size to show.
    size = min(int(np.median(sizes)), _MAX_ALTERNATIVES) if len(weighted) else 0
    positions = [int(np.argmin(np.abs(sizes - size)))] if len(weighted) else []
    # 2. Further examples are equally spaced over the table.
    further = [k for k in np.flatnonzero((sizes > 1) & (sizes <= _MAX_ALTERNATIVES)).tolist() if k not in positions]
    if further and not data.schema.contents:
        spaced = np.linspace(0, len(further) - 1, _MORE_EXAMPLES).round().astype(int)
        positions += [further[k] for k in np.unique(spaced)]
    examples = [_example(weighted, k) for k in positions]
    return {
        "offers_differ": has_varying_offers(weighted),
        "columns": {name: _facts(column) for name, column in columns.items()},
        "example": examples[0] if examples else None,
        "more_examples": examples[1:],
    }


def has_varying_offers(data: ChoiceData) -> bool:
    """Return True if sets offer different alternatives, judged by their labels or, without labels, by their sizes."""
    if data.labels is None:
        return bool((data.sizes != data.sizes[:1]).any())
    counts = np.bincount(data.labels.codes)
    return bool((counts[counts > 0] != len(data)).any())


def _alternative_columns(data: ChoiceData) -> dict[str, Column]:
    """Return the label column, if any, followed by the features."""
    label = data.schema.alternative
    labels = {} if data.labels is None or label is None or label in data.individual else {label: data.labels}
    return {**labels, **data.features}


def _facts(column: Column) -> dict[str, Any]:
    if isinstance(column, Contents):
        return content_facts(column.compact())
    return number_facts(column) if isinstance(column, Numeric) else category_facts(column)


def content_facts(column: Contents) -> dict[str, Any]:
    """Return the kind of a content column, the number of distinct values, and entries that depend on the kind."""
    return {"kind": column.kind, "distinct": len(column.table), **KINDS[column.kind].facts(column)}


def _example(data: ChoiceData, at: int) -> dict[str, Any]:
    """Return the set at position ``at`` as plain values."""
    one = data.subset([at])
    individual = {name: json_values(column)[0] for name, column in one.individual.items()}
    columns = {name: json_values(column) for name, column in _alternative_columns(one).items()}
    alternatives = [{name: values[i] for name, values in columns.items()} for i in range(int(one.sizes[0]))]
    chosen = None if one.chosen is None else int(one.chosen[0])
    return {"individual": individual, "alternatives": alternatives, "chosen": chosen}


def json_values(column: Column) -> list[Any]:
    """Return the values of a column as JSON values, with None for missing values."""
    if isinstance(column, Numeric):
        return [None if np.isnan(value) else json_number(value) for value in column.values]
    plain: NDArray[Any] = column.plain()
    if isinstance(column, Contents):
        return [None if content is None else KINDS[column.kind].to_json(content) for content in plain]
    return [str(name) for name in plain]


# -- Notebook view -----------------------------------------------------------------------------------------------------

_MAX_SETS_SUMMARISED = 20_000  # keeps the output of a notebook cell fast
_MAX_CATEGORIES_LISTED = 5


def to_html(data: ChoiceData) -> str:
    """Return an HTML fragment for notebooks, with all text escaped."""
    schema, some = data.schema, data.subset(range(min(len(data), _MAX_SETS_SUMMARISED)))
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
        columns = some.describe()["columns"].items()
        rows = [[name, roles.get(name, "label"), *_values(about)] for name, about in columns]
        heads = ["column", "of", "kind", "values"]
        if schema.named:
            heads.insert(1, "meaning")
            rows = [[name, schema.names.label(name) if name in schema.named else "", *rest] for name, *rest in rows]
        blocks.append(Table(cells=[heads, *rows]))
    if len(some) < len(data):
        blocks.append(note(f"The values refer only to the first {len(some):,} choice sets."))
    return to_fragment("Choice data", blocks)


def _values(about: dict[str, Any]) -> list[str]:
    """Return the kind of a column and a summary of its values."""
    if "quartiles" in about:
        if about["min"] is None:
            return ["number", "none"]
        return ["number", f"{number(about['min'])} to {number(about['max'])}, median {number(about['quartiles'][1])}"]
    if "categories" not in about or "kind" in about:
        return [str(about["kind"]), f"{about['distinct']:,} different"]
    listed = about["categories"][:_MAX_CATEGORIES_LISTED]
    more = about["distinct"] - len(listed)
    return ["category", f"{', '.join(listed)} and {more:,} more" if more > 0 else ", ".join(listed)]


# -- Saved description -------------------------------------------------------------------------------------------------
# The summary in a saved model is checked before a form or a map uses it. An entry that does not fit the model's schema
# raises a ValueError that names the entry. Missing entries are unknown facts.


def require_description(table: Mapping[str, Any], schema: Schema) -> None:
    """Raise ValueError if a saved summary does not fit the schema. An empty summary is valid."""
    if not table:
        return
    # kinds of the columns of individuals, and of alternatives with their label
    special: dict[str, str] = {**dict.fromkeys(schema.categorical or (), "category"), **schema.contents}
    individual = {name: special.get(name, "number") for name in schema.individual}
    label = {} if schema.alternative in (None, *individual) else {str(schema.alternative): "category"}
    alternative = {**label, **{name: special.get(name, "number") for name in schema.features}}
    kinds = {**alternative, **individual}
    for name, facts in _entries(table.get("columns"), "table, columns").items():
        _require(name in kinds, "table, columns")
        _require_facts(_entries(facts, f"column {name!r}"), kinds[name], f"the facts of column {name!r}")
    first, more = table.get("example"), table.get("more_examples", [])
    _require(isinstance(more, list), "the further examples")
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


def _require_values(entry: Any, kinds: Mapping[str, str]) -> None:
    values = _entries(entry, "the example")
    _require(values.keys() == kinds.keys(), "the example")
    for name, value in values.items():
        kind = kinds[name]
        check = KINDS[kind].is_json if kind in KINDS else is_number if kind == "number" else is_string
        _require(value is None or check(value), f"column {name!r} of the example")


def _entries(value: Any, where: str) -> dict[str, Any]:
    _require(isinstance(value, dict), where)
    entries: dict[str, Any] = value
    return entries


def _require(holds: bool, where: str) -> None:
    if not holds:
        raise ValueError(f"{where}: does not fit the columns of the saved schema")
