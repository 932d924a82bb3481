"""Distributions of tastes, and those of each person."""

import math

import numpy as np
import pytest

from choice_tables import PANEL, ROLES, normal_tastes, panel, read, trips
from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.slopes import slopes
from pcmcnet.models import MixedMNL
from pcmcnet.models.logits.tastes import Tastes


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(panel(120, normal_tastes), **PANEL)


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> MixedMNL:
    return MixedMNL(random={"x": "normal", "y": "-lognormal"}, correlated=True, draws=100).fit(data, progress=False)


def test_tastes_by_hand() -> None:
    """Four people, of whom one dislikes it: mean 1, deviation sqrt(3.5), a quarter below 0."""
    found = Tastes.of(["x", "y"], ["normal", "uniform"], np.array([[-2.0, 1.0, 2.0, 3.0], [4.0, 1.0, 0.0, -1.0]]))
    assert found["x"].mean == 1
    assert found["x"].deviation == pytest.approx(math.sqrt(3.5))
    assert (found["x"].below_0, found["x"].median) == (0.25, 1.5)
    np.testing.assert_allclose(found.correlations, [[1, -1], [-1, 1]], atol=1e-12)
    assert "25.0%" in str(found)
    assert found.to_arrow().column_names[:2] == ["name", "distribution"]
    with pytest.raises(InputError, match="no random coefficient is called 'z'"):
        found["z"]


def test_tastes_of_a_model_are_those_of_its_estimates(model: MixedMNL) -> None:
    tastes, b = model.tastes(), model.coefficients
    assert tastes["x"].mean == pytest.approx(b["x"], abs=0.01)
    assert tastes["x"].deviation == pytest.approx(b["cholesky[x, x]"], rel=0.02)
    assert tastes["y"].below_0 == 1
    assert tastes["y"].median == pytest.approx(-math.exp(b["y"]), rel=0.02)
    logs = np.corrcoef(tastes.draws[0], np.log(-tastes.draws[1]))[0, 1]
    size = math.hypot(b["cholesky[y, x]"], b["cholesky[y, y]"])
    assert logs == pytest.approx(b["cholesky[y, x]"] / size, abs=0.02)


def test_coefficients_given_choices_average_to_the_population_and_know_the_persons(
    data: ChoiceData, model: MixedMNL
) -> None:
    """At the maximum, the mean over persons of their means is the population's, but for simulation."""
    found = model.conditional(data)
    assert found.names == ("x", "y")
    assert found.means.shape == (120, 2)
    assert found.means[:, 0].mean() == pytest.approx(model.tastes()["x"].mean, abs=0.05)
    assert (found.means[:, 1] < 0).all()
    truth = normal_tastes(np.random.default_rng(0), 120)[:, 0]
    assert np.corrcoef(truth, found.means[:, 0])[0, 1] > 0.6
    assert (found.deviations > 0).all()
    assert found.to_arrow().num_rows == 120
    assert found.to_arrow().column_names == ["person", "x", "sd[x]", "y", "sd[y]"]
    backwards = model.conditional(data.subset(np.arange(len(data))[::-1]))
    order = [backwards.persons.tolist().index(person) for person in found.persons]
    np.testing.assert_allclose(backwards.means[order], found.means, rtol=1e-8)


def test_ratios_to_a_cost_are_those_of_the_draws(data: ChoiceData, model: MixedMNL) -> None:
    found = model.conditional(data, cost="y")
    assert found.names == ("wtp[x]",)
    assert (found.means[:, 0] > 0).mean() > 0.7  # x attracts, y repels
    with pytest.raises(InputError, match=r"no coefficient is called 'why'"):
        model.conditional(data, cost="why")


def test_a_ratio_of_parameters_that_are_no_means_is_refused(data: ChoiceData, model: MixedMNL) -> None:
    with pytest.raises(InputError, match=r"the coefficient of 'y' is lognormal.*wtp_space='y' estimates them"):
        model.willingness_to_pay("x", "y")
    plain = MixedMNL(random={"x": "normal"}, draws=20).fit(data, progress=False)
    b = plain.coefficients
    assert plain.willingness_to_pay("x", "y").value == pytest.approx(-b["x"] / b["y"])


def test_who_made_no_choice_is_anybody(model: MixedMNL) -> None:
    single = {"trip": [1], "took": [1], "x": [0.3], "y": [0.1], "person": ["new"]}
    found = model.conditional(read(single, **PANEL))
    assert found.means[0, 0] == pytest.approx(model.tastes()["x"].mean, abs=0.1)
    assert found.deviations[0, 0] == pytest.approx(model.tastes()["x"].deviation, rel=0.1)


def test_willingness_to_pay_space_estimates_the_worths_themselves() -> None:
    """Everyone minds the cost y, by a lognormal; a unit of x is worth 1 unit of it, give or take 0.5."""

    def tastes(rng: np.random.Generator, persons: int) -> Floats:
        cost = -np.exp(0.3 * rng.standard_normal(persons))
        return np.column_stack([-cost * (1 + 0.5 * rng.standard_normal(persons)), cost])

    data = read(panel(250, tastes), **PANEL)
    model = MixedMNL(random={"x": "normal", "y": "lognormal"}, wtp_space="y", draws=150).fit(data, progress=False)
    errors = model.standard_errors()
    for name, truth in {"wtp[x]": 1.0, "y": 0.0, "sd[wtp[x]]": 0.5, "sd[y]": 0.3}.items():
        assert abs(model.coefficients[name] - truth) < 3 * errors[name]
    assert model.tastes()["wtp[x]"].mean == pytest.approx(model.coefficients["wtp[x]"], abs=0.01)
    assert "wtp in units of" in str(model.summary())
    with pytest.raises(InputError, match="worths in units of 'y' already"):
        model.conditional(data, cost="y")
    np.testing.assert_allclose(np.bincount(data.set_of_alternative, data.from_rows(model.predict_proba(data))), 1)


def test_tastes_that_depend_on_people_need_people() -> None:
    data = ChoiceData.from_long(trips(sets=60, seed=3, slope=-0.2), **ROLES)
    model = MixedMNL(formula="price | 0", random={"price": "normal"}, means={"price": "income"}, draws=20)
    model.fit(data, progress=False)
    with pytest.raises(InputError, match="tastes depend on income: give the data of the people who are meant"):
        model.tastes()
    income = data.individual["income"].values  # type: ignore[attr-defined]
    expected = model.coefficients["price"] + model.coefficients["mean[price]:income"] * float(income.mean())
    assert model.tastes(data)["price"].mean == pytest.approx(expected, abs=0.05 * abs(expected) + 0.02)


@pytest.mark.parametrize("column", ["price", "minutes", "income"])
def test_derivatives_are_those_of_differences(column: str) -> None:
    """With and without means that depend on the individual; the step of differences is one of float32 numbers."""
    data = ChoiceData.from_long(trips(sets=40, seed=3, slope=-0.2), **ROLES)
    for options in ({}, {"means": {"price": "income"}}):
        model = MixedMNL(formula="price + log(minutes) + price:income", random={"price": "normal"}, draws=20, **options)
        model.fit(data, progress=False)
        own, numeric = slopes(model, data, column), slopes(model, data, column, method="differences")
        np.testing.assert_allclose(own, numeric, rtol=2e-3, atol=2e-4 * np.abs(numeric).max())
        assert (model._slopes(data, column) is None) == (bool(options) and column == "income")
