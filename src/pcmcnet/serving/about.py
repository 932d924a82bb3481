"""What a client should know of the served models: their columns with ranges, an example, the limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pcmcnet.data.kinds import KINDS
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving.columns import Input, inputs_of
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.worker import shows_rates
from pcmcnet.storage.files import json_bytes
from pcmcnet.storage.versions import package_version

_FACTS = ("min", "max", "quartiles", "categories", "distinct", "size")


def about(models: Mapping[str, ChoiceModel], settings: ServeSettings) -> dict[str, Any]:
    """Describe what is served, as plain values."""
    main, baseline = models["main"], models.get("baseline")
    return {
        "version": package_version("pcmcnet"),
        "title": settings.title or type(main).__name__,
        "choice_set": main.schema.choice_set,
        **_model(main),
        "label": main.schema.alternative,
        "columns": [_column(main, column) for column in inputs_of(main.schema).values()],
        "limits": {
            "sets": settings.max_sets,
            "alternatives": settings.max_alternatives,
            "pairs": settings.max_pairs,
            "points": settings.max_points,
            "body": settings.max_body,
            "values": settings.max_values,
            "depth": settings.max_depth,
            "seconds": settings.deadline,
            "pixels": settings.max_pixels,
        },
        "has_baseline": baseline is not None,
        "baseline": None if baseline is None else _model(baseline),
    }


def _model(model: ChoiceModel) -> dict[str, Any]:
    return {
        "model": model.name,
        "class": type(model).__name__,
        "options": json.loads(json_bytes(asdict(model.config))),
        "gives": model.gives,
        "caveats": list(model.caveats),
        "has_rates": shows_rates(model),
        "trained_on": {key: getattr(model.table_, key) for key in ("choice_sets", "alternatives")},
    }


def _column(model: ChoiceModel, column: Input) -> dict[str, Any]:
    """Describe a column; what the training table is not known to have is None."""
    found = column_facts(model, column.name)
    facts: dict[str, Any] = dict.fromkeys((*_FACTS, "typical"))
    facts |= {key: found[key] for key in _FACTS if key in found}
    if column.kind in KINDS:
        facts["distinct"] = found.get(KINDS[column.kind].choices)
    facts["typical"] = found["quartiles"][1] if found.get("quartiles") else found.get("most")
    if column.kind == "flag":
        facts["typical"] = True
    missing = model.schema.missing == "indicator" and column.role in ("individual", "feature")
    optional = column.role == "available"
    field = KINDS[column.kind].page_field if column.kind in KINDS else column.kind
    words = {"title": model.schema.names[column.name], "unit": model.schema.names.unit(column.name)}
    if column.kind == "category":
        facts["categories"] = _all_categories(model, column.name, facts)
    return {**asdict(column), **words, "field": field, "required": not optional, "may_be_null": missing, **facts}


def _all_categories(model: ChoiceModel, name: str, facts: Mapping[str, Any]) -> list[str] | None:
    """Return the categories of the training table; a network saved with fewer has those it knows in its encoder."""
    listed: list[str] | None = facts["categories"]
    if listed is not None and facts["distinct"] is not None and len(listed) < facts["distinct"]:
        encoder: Any = getattr(model, "encoder_", None)
        sides = [getattr(encoder, side).categorical for side in ("features", "individual") if hasattr(encoder, side)]
        known = {code.name: code.categories for side in sides for code in side}
        return sorted({*known.get(name, ()), *listed})
    return listed


def column_facts(model: ChoiceModel, name: str) -> dict[str, Any]:
    """Return what is known of a column of the training table."""
    facts: dict[str, Any] = model.table_.columns.get(name, {})
    return facts


def sizes_of(model: ChoiceModel) -> dict[str, int]:
    """Return the sizes of the model's vectors, as far as they are known."""
    sizes = {name: column_facts(model, name).get("size") for name in model.schema.kinds}
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


def examples(model: ChoiceModel) -> list[dict[str, Any]]:
    """Return choice sets of the training table as requests give them, a typical one first."""
    description = model.table_.description
    sets = [one for one in (description.get("example"), *description.get("more_examples", ())) if one is not None]
    return [{key: one[key] for key in ("individual", "alternatives")} for one in sets]
