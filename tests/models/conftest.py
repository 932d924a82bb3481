"""A table of trips with every kind of column, and a model fitted to it once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

import choice_tables
from choice_tables import ROLES
from choice_tables import trips as simulated_trips
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import mlba
from pcmcnet.models import MODELS, PCMCNet

MakeTrips = Callable[..., pa.Table]

# Every option that affects a result, so that tests do not depend on defaults.
QUICK: dict[str, Any] = {
    "hidden": (8,),
    "activation": "leaky_relu",
    "dropout": 0.2,
    "rate": "exp",
    "epsilon": 0.0,
    "utility": "linear",
    "initialisation": "safe",
    "labels": True,
    "epochs": 3,
    "batch_size": 8,
    "lr": 0.02,
    "schedule": "constant",
    "warmup": 0.0,
    "weight_decay": 0.0,
    "clip": 1.0,
    "patience": 5,
    "min_delta": 0.0,
    "refit": False,
    "pair_budget": 200_000,
}


def trips_table(sets: int = 30, seed: int = 0) -> pa.Table:
    """Shuffled rows. Set 0 has one alternative, and the cheapest alternative is chosen."""
    return pa.table(choice_tables.trips(sets, seed, single=True, mixed=True))


@pytest.fixture(scope="session")
def roles() -> dict[str, Any]:
    return ROLES


@pytest.fixture(scope="session")
def quick() -> dict[str, Any]:
    """Return options of a model that trains in a fraction of a second."""
    return QUICK


@pytest.fixture(scope="session")
def make_trips() -> MakeTrips:
    return trips_table


@pytest.fixture(scope="session")
def trips() -> ChoiceData:
    return ChoiceData.from_long(trips_table(), **ROLES)


@pytest.fixture(scope="session")
def fitted(trips: ChoiceData) -> PCMCNet:
    """A fitted model that tests must not change."""
    model: PCMCNet = PCMCNet(**QUICK).fit(trips, progress=False)
    return model


@pytest.fixture(scope="session")
def make_mlba() -> Callable[..., ChoiceData]:
    """A small version of the paper's first experiment: two features, sets of three."""

    def make(sets: int, seed: int = 0) -> ChoiceData:
        table = mlba.simulate(sets, seed=seed)
        return ChoiceData.from_long(table, choice_set="choice_set", chosen="chosen", features=["attr1", "attr2"])

    return make


@pytest.fixture(scope="session")
def saved(fitted: PCMCNet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model that tests copy but must not change."""
    return fitted.save(tmp_path_factory.mktemp("saved") / "model")


# -- One-epoch fits ----------------------------------------------------------------------------------------------------
# Small fits that several files share: numbers, a label and columns of the individual.


JOURNEY_ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "mode",
    "features": ["price", "minutes"],
    "individual": ["income", "purpose"],
}


@pytest.fixture(scope="session")
def journeys() -> ChoiceData:
    return ChoiceData.from_long(simulated_trips(sets=80, sizes=(2, 4), slope=-0.2, seed=3), **JOURNEY_ROLES)


@pytest.fixture
def network_of(journeys: ChoiceData) -> Callable[..., Any]:
    """Return a model that was fitted for one epoch, with weights set to 0 or to random numbers of a given size."""

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
