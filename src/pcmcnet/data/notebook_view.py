"""What a notebook shows of choice data: how much there is, and the columns with their roles and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pcmcnet.reports.html import to_fragment
from pcmcnet.reports.sections import Facts, Table, note
from pcmcnet.reports.tables import number

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData

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
