"""A table of trips with everything a table may have, and a model fitted to it once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import choice_tables
from choice_tables import ROLES
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import mlba
from pcmcnet.models import PCMCNet

MakeTrips = Callable[..., pa.Table]

# Every option that a result depends on, so that no test leans on a default.
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
    """Rows of all sets mixed; set 0 is a singleton; the cheapest is chosen."""
    return pa.table(choice_tables.trips(sets, seed, single=True, mixed=True))


@pytest.fixture(scope="session")
def roles() -> dict[str, Any]:
    return ROLES


@pytest.fixture(scope="session")
def quick() -> dict[str, Any]:
    """Options of a model that trains in a fraction of a second."""
    return QUICK


@pytest.fixture(scope="session")
def make_trips() -> MakeTrips:
    return trips_table


@pytest.fixture(scope="session")
def trips() -> ChoiceData:
    return ChoiceData.from_long(trips_table(), **ROLES)


@pytest.fixture(scope="session")
def fitted(trips: ChoiceData) -> PCMCNet:
    """A model to ask, never to change."""
    model: PCMCNet = PCMCNet(**QUICK).fit(trips, progress=False)
    return model


@pytest.fixture(scope="session")
def make_mlba() -> Callable[..., ChoiceData]:
    """The paper's first experiment, in small: two features, sets of three."""

    def make(sets: int, seed: int = 0) -> ChoiceData:
        table = mlba.simulate(sets, seed=seed)
        return ChoiceData.from_long(table, choice_set="choice_set", chosen="chosen", features=["attr1", "attr2"])

    return make


@pytest.fixture(scope="session")
def saved(fitted: PCMCNet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model to copy, never to change."""
    return fitted.save(tmp_path_factory.mktemp("saved") / "model")
