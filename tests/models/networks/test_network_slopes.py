"""Both methods for the Jacobian of a network agree with central differences in float64."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pcmcnet.data import Batch, ChoiceData
from pcmcnet.data.kinds.number import NumericCode
from pcmcnet.models import PCMCNet, PointerNetwork
from pcmcnet.models.networks.network_slopes import NumericInput, jacobian_by_output, jacobian_by_pairs
from pcmcnet.models.networks.neural_model import NeuralModel
from pcmcnet.models.networks.pairwise_network import PCMCNetwork

FEATURE, INDIVIDUAL = NumericInput(individual=False, k=0), NumericInput(individual=True, k=0)
SMOOTH: dict[str, Any] = {"hidden": (8, 8), "activation": "tanh", "epochs": 3, "weight_decay": 0.0, "batch_size": 8}
ONE_NEURON: dict[str, Any] = {"hidden": (), "rate": "softplus"}  # with exp, the individual would only scale all rates


@pytest.fixture(scope="module")
def model(trips: ChoiceData) -> PCMCNet:
    fitted: PCMCNet = PCMCNet(**SMOOTH).fit(trips, progress=False)
    return fitted


def double_batch(model: NeuralModel, data: ChoiceData) -> Batch:
    """All sets in one batch, in float64."""
    batch = model.encoder_.encode(data).batch(np.arange(len(data)))
    return replace(batch, numeric=batch.numeric.double(), individual_numeric=batch.individual_numeric.double())


def by_differences(network: torch.nn.Module, batch: Batch, at: NumericInput, step: float = 1e-5) -> torch.Tensor:
    """Return (B, J, J) or (B, J) differences: each input is moved up and down."""

    def moved(place: int, by: float) -> torch.Tensor:
        name = "individual_numeric" if at.individual else "numeric"
        x = getattr(batch, name).clone()
        x[(slice(None), at.k) if at.individual else (slice(None), place, at.k)] += by
        changed: dict[str, torch.Tensor] = {name: x}
        with torch.no_grad():
            return torch.as_tensor(network(replace(batch, **changed)))

    places = [0] if at.individual else range(batch.mask.shape[1])
    slopes = [(moved(k, step) - moved(k, -step)).nan_to_num(0) / (2 * step) for k in places]
    return slopes[0] if at.individual else torch.stack(slopes, 2)


def real(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    return values[batch.mask if values.ndim == 2 else batch.mask.unsqueeze(2) & batch.mask.unsqueeze(1)]


@pytest.mark.parametrize("at", [FEATURE, INDIVIDUAL], ids=["feature", "individual"])
@pytest.mark.parametrize("options", [{}, {"rate": "softplus"}, {"rate": "relu", "epsilon": 0.5}, ONE_NEURON])
def test_both_methods_agree_with_differences_in_float64(
    trips: ChoiceData, at: NumericInput, options: dict[str, Any]
) -> None:
    model = PCMCNet(**{**SMOOTH, **options}).fit(trips, progress=False)
    network = model.network_.double().eval()
    assert isinstance(network, PCMCNetwork)
    batch = double_batch(model, trips)
    expected = real(by_differences(network, batch, at), batch)
    assert expected.abs().max() > 1e-4
    # The error of second order, and kinks of rates max(0, f) + 0.5 within the step.
    for jacobian in (jacobian_by_pairs(network, batch, at), jacobian_by_output(network, batch, at)):
        torch.testing.assert_close(real(jacobian, batch), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("at", [FEATURE, INDIVIDUAL], ids=["feature", "individual"])
def test_a_pointer_network_has_exact_derivatives(trips: ChoiceData, at: NumericInput) -> None:
    model = PointerNetwork(hidden=8, epochs=2, weight_decay=0.0, batch_size=8).fit(trips, progress=False)
    network, batch = model.network_.double().eval(), double_batch(model, trips)
    result = real(jacobian_by_output(network, batch, at), batch)
    torch.testing.assert_close(result, real(by_differences(network, batch, at), batch), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("column", ["price", "minutes", "income"])
def test_slopes_are_in_units_and_order_of_the_table(model: PCMCNet, trips: ChoiceData, column: str) -> None:
    """A change of the raw column by 0.3 % changes the float32 probabilities as predicted by the derivative."""
    result = model._slopes(trips, column)
    individual = column == "income"
    s = int(np.argmax(trips.sizes))
    inside = np.arange(trips.offsets[s], trips.offsets[s + 1])
    n, k = len(inside), 1
    columns = trips.individual if individual else trips.features
    x = columns[column].values.astype(np.float64)  # type: ignore[union-attr]
    place = s if individual else inside[k]
    logs = []
    for by in (0.003 * x[place], -0.003 * x[place]):
        moved = x.copy()
        moved[place] += by
        role = "individual" if individual else "features"
        new: dict[str, Any] = {role: {**columns, column: replace(columns[column], values=moved.astype(np.float32))}}
        logs.append(trips.from_rows(model.predict_log_proba(replace(trips, **new)))[inside])
    expected = (logs[0] - logs[1]) / (0.006 * x[place])
    if individual:
        got = result[inside]
    else:
        start = int((trips.sizes[:s] ** 2).sum())
        got = result[start : start + n * n].reshape(n, n)[:, k]
    # As elasticities: float32 has errors of about 1e-7 in log p, divided by the step of 0.3 %.
    np.testing.assert_allclose(got * x[place], expected * x[place], rtol=1e-3, atol=1e-4)


def test_slopes_do_not_depend_on_the_pair_budget(model: PCMCNet, trips: ChoiceData) -> None:
    small = PCMCNet(**SMOOTH, pair_budget=40)
    small.__dict__.update({**model.__dict__, "config": small.config})
    # Float32 matrix products round differently for other shapes.
    np.testing.assert_allclose(small._slopes(trips, "price"), model._slopes(trips, "price"), rtol=1e-4, atol=1e-7)


def test_a_column_that_is_not_an_input_has_no_slope(
    trips: ChoiceData, make_trips: Callable[..., Any], roles: dict[str, Any]
) -> None:
    fewer = {**roles, "features": ["price", "comfort"], "individual": ["purpose"]}
    model = PCMCNet(**SMOOTH).fit(ChoiceData.from_long(make_trips(), **fewer), progress=False)
    assert not model._slopes(trips, "minutes").any()
    assert not model._slopes(trips, "income").any()
    assert model._slopes(trips, "price").any()


def test_an_empty_table_has_no_slopes(model: PCMCNet, trips: ChoiceData) -> None:
    assert model._slopes(trips.subset([]), "price").shape == (0,)


@pytest.mark.parametrize("bend", [0.0, 2.5])
def test_the_slope_of_a_bent_number_is_its_derivative(bend: float) -> None:
    """d asinh(x / b) / dx = 1 / sqrt(x^2 + b^2), also at 0."""
    code = NumericCode("price", mean=1.5, scale=0.7, indicator=False, bend=bend)
    x = np.array([-4.0, 0.0, 1e-3, 3.0, 80.0])
    expected = (code.standardise(x + 1e-6) - code.standardise(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(code.slope(x), expected, rtol=1e-7)
    assert code.slope(np.array([np.nan])).tolist() == [0.0]
    assert NumericCode("price", 1.0, 0.0, indicator=False).slope(x).tolist() == [0.0] * 5


@pytest.mark.gpu
@pytest.mark.parametrize(
    "model", [PCMCNet(**SMOOTH), PointerNetwork(hidden=8, epochs=2, weight_decay=0.0)], ids=["pcmcnet", "dpn"]
)
@pytest.mark.parametrize("column", ["price", "income"])
def test_slopes_on_a_gpu_agree_with_a_cpu(model: NeuralModel, column: str, trips: ChoiceData) -> None:
    model.fit(trips, device="cpu", progress=False)
    expected = model._slopes(trips, column)
    model.network_.cuda()
    # float32 products and sums in another order
    np.testing.assert_allclose(model._slopes(trips, column), expected, rtol=1e-3, atol=1e-5)
