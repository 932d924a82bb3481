"""A table of trips in which price drives the choice, and models fitted to it."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from choice_tables import largest
from pcmcnet import MODELS, ChoiceData
from pcmcnet.models import ChoiceModel
from quick_models import QUICK

LABELS = np.array(["bike", "bus", "car", "train"])


def make_driven_trips(sets: int = 40, *, labels: bool = True, seed: int = 0, **roles: Any) -> ChoiceData:
    """Sets of 2 to 4 alternatives (1 in the first), with positive prices and times, noise and categories.

    Weights are 1 to 3; one set has weight 0.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, sets)
    sizes[0] = 1
    s = np.repeat(np.arange(sets), sizes)
    n = len(s)
    price, time = rng.gamma(2.0, 2.0, n) + 0.5, rng.uniform(10, 60, n)
    took = largest(-0.8 * price - 0.03 * time + rng.gumbel(size=n), s)
    weight = rng.integers(1, 4, sets)
    weight[1] = 0
    table = {
        "trip": s,
        "took": took,
        "mode": LABELS[np.concatenate([rng.permutation(4)[:k] for k in sizes])],
        "price": price,
        "time": time,
        "noise": rng.normal(size=n),
        "comfort": np.array(["low", "high"])[rng.integers(2, size=n)],
        "income": rng.uniform(20, 40, sets)[s],
        "purpose": np.array(["work", "leisure"])[rng.integers(2, size=sets)][s],
        "weight": weight[s],
    }
    given: dict[str, Any] = {
        "choice_set": "trip",
        "chosen": "took",
        "alternative": "mode" if labels else None,
        "features": ["price", "time", "noise", "comfort"],
        "individual": ["income", "purpose"],
        "weight": "weight",
    }
    return ChoiceData.from_long(table, **{**given, **roles})


@pytest.fixture(scope="session")
def make_driven() -> Callable[..., ChoiceData]:
    return make_driven_trips


@pytest.fixture(scope="session")
def driven() -> ChoiceData:
    return make_driven_trips()


# Options of registered models: those that are required, and those that make the fit quick.
OPTIONS: dict[str, dict[str, Any]] = {
    **QUICK,
    "lc-mnl": {"classes": 2, "membership": "income", "starts": 1},
    "cross-nested-mnl": {"nests": {"road": ["car", "bus"], "shared": ["bus", "train"], "light": ["bike"]}},
    "nested-mnl": {"nests": {"car": "road", "bus": "road", "bike": "light", "train": "rail"}},
    "rank-by": {"column": "price"},
}


@pytest.fixture(scope="session")
def fitted(driven: ChoiceData) -> Callable[[str], ChoiceModel]:
    """Return a function that fits a registered model once, by name. Tests must not change the model."""

    @cache
    def fit(name: str) -> ChoiceModel:
        model: ChoiceModel = MODELS[name](**OPTIONS.get(name, {})).fit(driven, progress=False)
        return model

    return fit
