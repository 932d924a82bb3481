"""Every registered model can be served with its own predictions, also far from its training values."""

import copy
from typing import Any

import numpy as np
import pytest

from choice_tables import ROLES
from pcmcnet.data import ChoiceData
from pcmcnet.models import MNL, MODELS
from quick_models import QUICK

OPTIONS: dict[str, dict[str, Any]] = {
    **QUICK,
    "rank-by": {"column": "price"},
    "cross-nested-mnl": {"nests": {"own": ["bike", "walk", "car"], "shared": ["bus", "train", "car"]}},
    "nested-mnl": {"nests": {"bike": "own", "walk": "own", "bus": "shared", "train": "shared", "car": "own"}},
}
FAR = [
    *(("price", value) for value in (3.4e38, -3.4e38, 1e-45, 0)),
    *(("minutes", value) for value in (1e30, -1e38)),
    *(("comfort", value) for value in ("never seen", "", 3, True)),
    *(("mode", value) for value in ("never seen", "x" * 10_000)),
]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_served(name: str, make_trips: Any, as_requests: Any, make_client: Any) -> None:
    data = ChoiceData.from_long(make_trips(100), **{**ROLES, "weight": None})
    model = MODELS[name](**OPTIONS.get(name, {})).fit(data, progress=False)
    client, table = make_client(model), make_trips(4, seed=3)
    sets = as_requests(table)
    answers = client.post("/v1/probabilities", json={"sets": sets}).json()["sets"]
    every = np.concatenate([entry["probabilities"] for entry in answers])
    np.testing.assert_allclose(every, model.predict_proba(table), rtol=0, atol=1e-6)
    for column, value in FAR:
        one = copy.deepcopy(sets[0])
        one["alternatives"][0] |= {column: value, "open": True}
        one["alternatives"][1] |= {"open": True}
        grid = {"x": "price", "y": "minutes", "place": 0, "between": [0, 1], "points": 2}
        for path, body in (
            ("/v1/probabilities", {"sets": [one]}),
            ("/v1/rates", {"set": one}),
            ("/v1/map", {"set": one, **grid}),
        ):
            answer = client.post(path, json=body)
            assert answer.status_code in (200, 422), answer.text
            assert len(answer.text) < 1_000


# -- labels that were not in training ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_constants(make_trips: Any) -> MNL:
    roles = {"choice_set": "trip", "chosen": "took", "alternative": "mode", "features": ["price", "minutes"]}
    data = ChoiceData.from_long(make_trips(), **roles, available="open")
    model: MNL = MNL(formula="price | 1").fit(data, progress=False)
    return model


def offers(*modes: str) -> dict[str, Any]:
    """Return a set whose first alternative is not available."""
    return {"alternatives": [{"mode": m, "price": 3, "minutes": 9 + k, "open": k > 0} for k, m in enumerate(modes)]}


@pytest.mark.parametrize("batch_sets", [1, 1_000])
def test_an_unseen_label_is_reported_with_its_place(batch_sets: int, with_constants: MNL, make_client: Any) -> None:
    """This holds for chunks, too. Positions count all alternatives of the request, including unavailable ones."""
    client = make_client(with_constants, batch_sets=batch_sets)
    sets = [offers("bike", "bus"), offers("bike", "car"), offers("walk", "bus", "tram")]
    error = client.post("/v1/probabilities", json={"sets": sets}).json()["error"]
    assert error.startswith(
        "set 2, alternative 2: the label 'tram' was not in the training data, so it has no constant"
    )
    request = {"set": sets[2], "x": "price", "y": "minutes", "place": 1, "between": [1, 2], "points": 2}
    error = client.post("/v1/map", json=request).json()["error"]
    assert error.startswith("set 0, alternative 2: the label 'tram' was not in the training data")
