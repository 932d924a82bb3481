import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models import ResLogit

ROLES: dict[str, Any] = {"choice_set": "s", "chosen": "took", "alternative": "mode", "features": ["x"]}


def modes(labels: int, sets: int = 12) -> dict[str, Any]:
    """Return sets of all labels. The first is chosen."""
    n = sets * labels
    took = np.tile(np.arange(labels) == 0, sets)
    names = [f"m{k}" for k in range(labels)]
    x = np.random.default_rng(0).normal(size=n)
    return {"s": np.repeat(np.arange(sets), labels), "took": took, "mode": names * sets, "x": x}


def test_a_residual_lowers_a_utility_as_computed_by_hand() -> None:
    """V = (1, 0), an entry of 2 from the first to the second: h_2 = 0 - (log(1 + exp(2 * 1)) - log 2), h_1 = 1."""
    data = ChoiceData.from_long(modes(2), **ROLES)
    model = ResLogit(layers=1, epochs=1, weight_decay=1.0).fit(data, progress=False)
    network: Any = model.network_
    with torch.no_grad():
        for weights in network.parameters():
            weights.zero_()
        network.utility.constants[0][1] = 1.0  # of m0
        network.crossing[0, 2, 1] = 2.0  # effect of m0 on m1
    labels, crossing = model.crossing()
    assert (labels, crossing.tolist()) == (("m0", "m1"), [[0, 0], [2, 0]])
    p = model.predict_proba(data)[:2]
    assert math.log(p[1] / p[0]) == pytest.approx(-math.log(1 + math.exp(2)) + math.log(2) - 1, abs=1e-6)


def test_only_alternatives_of_the_set_have_effects(network_of: Callable[..., Any], journeys: ChoiceData) -> None:
    """A third alternative changes the odds of two. Padding in a batch with larger sets does not."""
    model = network_of("reslogit", spread=0.5)
    whole = journeys.from_rows(model.predict_log_proba(journeys))
    small = int(np.argmin(journeys.sizes))
    alone = journeys.subset([small])
    inside = slice(journeys.offsets[small], journeys.offsets[small + 1])
    np.testing.assert_allclose(model.predict_log_proba(alone), whole[inside], atol=1e-6)


def test_labels_are_required_and_limited_in_number() -> None:
    with pytest.raises(InputError, match="declare an alternative column with labels"):
        ResLogit().fit(ChoiceData.from_long(modes(2), **{**ROLES, "alternative": None}), progress=False)
    with pytest.raises(InputError, match="declare an alternative column"):
        ResLogit(labels=False).fit(ChoiceData.from_long(modes(2), **ROLES), progress=False)
    with pytest.raises(InputError, match="expected 2 to 200 labels that occur in several sets, got 201"):
        ResLogit(weight_decay=1.0).fit(ChoiceData.from_long(modes(201, sets=5), **ROLES), progress=False)
    with pytest.raises(ConfigError, match="layers"):
        ResLogit(layers=0)
