"""A utility network whose network is 0 is the multinomial logit of its linear part."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pcmcnet.data import ChoiceData
from pcmcnet.models import MNL


@pytest.fixture(scope="module")
def logit(journeys: ChoiceData) -> MNL:
    return MNL(formula="price + minutes | 0", errors="classical").fit(journeys)


def as_logit(model: Any, logit: MNL) -> Any:
    """Set the linear part of a zero network to the coefficients of a logit."""
    codes = model.encoder_.features.numeric
    with torch.no_grad():
        for k, code in enumerate(codes):
            model.network_.utility.slopes[k] = logit.coefficients[code.name] * code.scale
    return model


@pytest.mark.parametrize("name", ["lmnl", "reslogit", "rumnet", "tastenet"])
def test_a_zero_network_is_the_logit(
    name: str, logit: MNL, network_of: Callable[..., Any], journeys: ChoiceData
) -> None:
    model = as_logit(network_of(name), logit)
    # Networks compute in float32.
    np.testing.assert_allclose(model.predict_log_proba(journeys), logit.predict_log_proba(journeys), atol=1e-5)
    assert model.score(journeys) == pytest.approx(logit.score(journeys), abs=1e-6)


def test_the_linear_part_has_the_errors_of_the_logit(
    logit: MNL, network_of: Callable[..., Any], journeys: ChoiceData
) -> None:
    model = as_logit(network_of("lmnl"), logit)
    model.network_.information.copy_(torch.from_numpy(model._information(model._state, journeys)))
    assert model.coefficients == pytest.approx(dict(logit.coefficients), rel=1e-5)
    assert model.standard_errors == pytest.approx(dict(logit.standard_errors()), rel=1e-4)


def test_individuals_have_the_coefficients_of_the_logit(
    logit: MNL, network_of: Callable[..., Any], journeys: ChoiceData
) -> None:
    result = as_logit(network_of("tastenet"), logit).coefficients(journeys)
    for name, value in logit.coefficients.items():
        np.testing.assert_allclose(result[name], np.full(len(journeys), value), rtol=1e-5)
