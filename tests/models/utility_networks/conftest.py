"""Small fits that several tests ask: numbers, a label, columns of the individual; one epoch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from choice_tables import trips
from pcmcnet.data import ChoiceData
from pcmcnet.models import MODELS

ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "mode",
    "features": ["price", "minutes"],
    "individual": ["income", "purpose"],
}


@pytest.fixture(scope="session")
def journeys() -> ChoiceData:
    return ChoiceData.from_long(trips(sets=80, sizes=(2, 4), slope=-0.2, seed=3), **ROLES)


@pytest.fixture
def network_of(journeys: ChoiceData) -> Callable[..., Any]:
    """Return a model fitted for one epoch, whose weights a test may set: zeros, or random ones of a size."""

    def fit(name: str, *, spread: float | None = None, seed: int = 0, **options: Any) -> Any:
        given = {"epochs": 1, "weight_decay": 1.0, "tails": "keep", **options}
        model: Any = MODELS[name](**given).fit(journeys, progress=False)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weights in model.network_.parameters():
                drawn = torch.randn(weights.shape, generator=generator)
                weights.copy_(drawn * (spread or 0.0))
            for part in model.network_.sign_constrained:
                part.project_()
        return model

    return fit
