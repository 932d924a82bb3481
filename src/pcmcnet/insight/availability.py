"""Whether a model has ever seen an alternative missing: else what it says of removals is extrapolation.

In a table whose sets all offer the same alternatives, how people choose without one of them was never observed. What a
model says of it follows from its form alone: proportional shares in a logit, whatever the rates say in a chain.
"""

from __future__ import annotations

from typing import Any

from pcmcnet.data import ChoiceData
from pcmcnet.data.describe import offers_differ
from pcmcnet.models.interface.choice_model import ChoiceModel

_SEEN = {True: "offer the same alternatives", False: "have the same number of alternatives"}  # with labels, and without


def extrapolation(model: Any, data: ChoiceData) -> str | None:
    """Say that removals are extrapolation; None where the training table has sets without some alternative.

    Of a model that does not tell what it was trained on, the table at hand decides.
    """
    seen = model.table_.description.get("offers_differ") if isinstance(model, ChoiceModel) else None
    if offers_differ(data) if seen is None else seen:
        return None
    return (
        f"All choice sets of the training table {_SEEN[data.labels is not None]}. How people choose when one is "
        f"missing was never observed: what is said of removals is extrapolation, by the form of the model."
    )
