"""The description of a training table, read back from a saved model: checked before a form or a map relies on it.

What :func:`pcmcnet.data.describe.describe` wrote fits the model's own schema. Whatever does not is refused by a
ValueError that says where; facts that are not there are not known, as in a model saved by an earlier version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pcmcnet.data.kinds import KINDS, category, number
from pcmcnet.data.kinds.json_checks import is_count, is_number, is_string
from pcmcnet.data.schema import Schema


def require_description(table: Mapping[str, Any], schema: Schema) -> None:
    """Refuse facts that no table of this schema has; no facts at all are fine."""
    if not table:
        return
    alternative, individual = _kinds(schema)
    kinds = {**alternative, **individual}
    for name, found in _entries(table.get("columns"), "table, columns").items():
        _require(name in kinds, "table, columns")
        _require_facts(_entries(found, f"column {name!r}"), kinds[name], f"the facts of column {name!r}")
    if table.get("example") is not None:
        _require_example(_entries(table["example"], "the example"), alternative, individual)
    more = table.get("more_examples", [])
    _require(isinstance(more, list), "the other examples")
    for one in more:
        _require_example(_entries(one, "the example"), alternative, individual)


def _kinds(schema: Schema) -> tuple[dict[str, str], dict[str, str]]:
    """Return the kinds of the columns of alternatives, the labels among them, and of individuals."""
    special: dict[str, str] = {**dict.fromkeys(schema.categorical or (), "category"), **schema.contents}
    individual = {name: special.get(name, "number") for name in schema.individual}
    label = {} if schema.alternative in (None, *individual) else {str(schema.alternative): "category"}
    return {**label, **{name: special.get(name, "number") for name in schema.features}}, individual


def _require_facts(facts: Mapping[str, Any], kind: str, where: str) -> None:
    checks = number.FACT_CHECKS if kind == "number" else category.FACT_CHECKS
    for name, check in ({"distinct": is_count, **KINDS[kind].fact_checks} if kind in KINDS else checks).items():
        _require(facts.get(name) is None or check(facts[name]), where)
    if kind == "number" and any(facts.get(name) is not None for name in number.FACT_CHECKS):
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
        _require(value is None or _is_value(kinds[name], value), f"column {name!r} of the example")


def _is_value(kind: str, value: Any) -> bool:
    """Tell a value that the example may have in a column of a kind."""
    if kind in KINDS:
        return KINDS[kind].is_json(value)
    return is_number(value) if kind == "number" else is_string(value)


def _entries(found: Any, where: str) -> dict[str, Any]:
    _require(isinstance(found, dict), where)
    entries: dict[str, Any] = found
    return entries


def _require(holds: bool, where: str) -> None:
    if not holds:
        raise ValueError(f"{where}: not what a fit notes of a table with these columns")
