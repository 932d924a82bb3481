"""What to know before trusting a scenario: what the model has not seen, and what its answers are worth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Categorical, Column, Numeric
from pcmcnet.evaluation.predictions import gives_of
from pcmcnet.insight.scenarios.offers import Offer
from pcmcnet.models.interface.choice_model import ChoiceModel

_WORTH = {
    "scores": "gives scores that sum to 1, not probabilities: read the shares as an order of size",
    "ranking": "gives a ranking: the shares are those of first places",
}


def caveats(model: Any, first: ChoiceData, offer: Offer) -> Iterator[str]:
    """Yield a sentence for each thing to know."""
    yield from offer.notes
    if first.schema.rank is not None:
        yield "the table holds rankings: the first choices alone count, each among all alternatives"
    seen = model.table_.columns if isinstance(model, ChoiceModel) else {}
    for role in ("features", "individual"):
        after = getattr(offer.data, role)
        for name, column in getattr(first, role).items():
            yield from _unseen(name, column, after[name], seen.get(name, {}))
    yield from _never_without(first, offer)
    if (gives := gives_of(model)) in _WORTH:
        yield f"{type(model).__name__} {_WORTH[gives]}"


def _unseen(name: str, before: Column, after: Column, seen: dict[str, Any]) -> Iterator[str]:
    """Say which categories are new to the model, and which numbers lie beyond those of training."""
    if isinstance(after, Categorical) and seen.get("distinct") == len(seen.get("categories", [])):
        new = sorted({*after.plain()} - {*seen["categories"], *before.plain()})
        if new:
            yield f"the model has not seen {name} {', '.join(map(repr, new))}: it takes it for unknown"
    if isinstance(after, Numeric) and isinstance(before, Numeric) and seen.get("min") is not None:
        low, high = np.nanmin(after.values), np.nanmax(after.values)
        if low < min(seen["min"], np.nanmin(before.values)) or high > max(seen["max"], np.nanmax(before.values)):
            span = f"{seen['min']:g} to {seen['max']:g}"
            yield f"{name} goes from {low:g} to {high:g}, beyond the {span} of training: the model extrapolates"


def _never_without(first: ChoiceData, offer: Offer) -> Iterator[str]:
    """Say which alternatives are taken away that every choice set offers."""
    if first.labels is None or not offer.lost.any():
        return
    counts = np.bincount(first.labels.codes, minlength=len(first.labels.categories))
    lost = np.unique(first.labels.codes[offer.lost])
    always = [first.labels.categories[k] for k in lost if counts[k] == len(first)]
    if always:
        them = "it" if len(always) == 1 else "them"
        yield (
            f"all choice sets of the table offer {', '.join(map(repr, always))}: how people choose without {them} is "
            f"the model's form, not something seen"
        )
