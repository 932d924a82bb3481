from typing import Any

import numpy as np
import pytest
import torch

from pcmcnet import PCMC, LinearPCMC, PCMCNet, Stacking
from pcmcnet.data import ChoiceData
from pcmcnet.errors import NotFittedError
from pcmcnet.layers import stationary_distribution
from pcmcnet.models import MODELS, ChainModel

CHAINS: dict[str, Any] = {
    "pcmcnet": lambda quick: PCMCNet(**quick),
    "pcmcnet, paper": lambda quick: PCMCNet(**{**quick, "rate": "relu", "epsilon": 0.5, "initialisation": "paper"}),
    "pcmc": lambda _: PCMC(restarts=1, ridge=1.0),
    "pcmc of cells": lambda _: PCMC(restarts=1, ridge=1.0, bins={"price": 2, "minutes": 2}),
    "pcmc-linear": lambda _: LinearPCMC(ridge=1.0),
}


@pytest.fixture(scope="module", params=CHAINS)
def model(request: pytest.FixtureRequest, trips: ChoiceData, quick: dict[str, Any]) -> ChainModel:
    fitted: ChainModel = CHAINS[request.param](quick).fit(trips, progress=False)
    return fitted


def test_the_stationary_distribution_of_the_rates_gives_probabilities(model: ChainModel, trips: ChoiceData) -> None:
    p, rates = trips.from_rows(model.predict_proba(trips)), model.rates(trips)
    assert len(rates) == len(trips)
    for s, q in enumerate(rates):
        probabilities = stationary_distribution(torch.from_numpy(q)).numpy()
        np.testing.assert_allclose(probabilities, p[trips.offsets[s] : trips.offsets[s + 1]], rtol=0, atol=1e-6)


def test_rates_are_scaled_with_a_diagonal_of_0(model: ChainModel, trips: ChoiceData) -> None:
    for n, q in zip(trips.sizes, model.rates(trips), strict=True):
        assert q.shape == (n, n)
        assert q.dtype == np.float64
        assert (np.diag(q) == 0).all()
        assert q.max() == (1 if n > 1 else 0)
        assert (q[~np.eye(n, dtype=bool)] > 0).all()


def test_tables_and_empty_parts_have_rates(model: ChainModel, make_trips: Any, trips: ChoiceData) -> None:
    for ours, theirs in zip(model.rates(trips), model.rates(make_trips().drop_columns(["took"])), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert model.rates(trips.subset([])) == []


def test_an_unfitted_chain_has_no_rates(trips: ChoiceData) -> None:
    chains = {name for name, kind in MODELS.items() if issubclass(kind, ChainModel)}
    assert chains == {"pcmc", "pcmc-linear", "pcmcnet", "stacking"}
    for model in (PCMCNet(), PCMC(), LinearPCMC(), Stacking()):
        with pytest.raises(NotFittedError):
            model.rates(trips)


def test_rates_of_items_are_those_of_the_universe(trips: ChoiceData) -> None:
    model = PCMC(restarts=1, ridge=1.0).fit(trips)
    s = int(np.argmax(trips.sizes))
    assert trips.labels is not None
    names = trips.labels.plain()[trips.offsets[s] : trips.offsets[s + 1]]
    index = [model.universe_.items.index(name) for name in names]
    expected = model.rates_[np.ix_(index, index)]
    np.testing.assert_allclose(model.rates(trips)[s], expected / expected.max(), rtol=1e-12)
