"""The logit of the Swissmetro study against published estimates and other packages."""

from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.datasets import packaged
from pcmcnet.errors import DatasetError


def wide_columns() -> dict[str, Any]:
    """Return the columns of the table; with an annual pass, train and Swissmetro cost nothing."""
    try:
        table = packaged.load("swissmetro")
    except DatasetError as error:
        pytest.skip(str(error))
    columns: dict[str, Any] = {name: table[name].to_numpy() for name in table.column_names}
    pays = columns["GA"] == 0
    columns["TRAIN_CO"] = columns["TRAIN_CO"] * pays
    columns["SM_CO"] = columns["SM_CO"] * pays
    return columns


def read(columns: dict[str, Any], **roles: Any) -> pn.ChoiceData:
    return pn.ChoiceData.from_wide(
        columns,
        chosen="CHOICE",
        alternatives={"TRAIN": 1, "SM": 2, "CAR": 3},
        features={"time": "{alternative}_TT", "cost": "{alternative}_CO"},
        available="{alternative}_AV",
        **roles,
    )


@pytest.fixture(scope="module")
def data() -> pn.ChoiceData:
    """6,768 choices; the formulas divide times and costs by 100."""
    return read(wide_columns(), keep=["ID"])


@pytest.fixture(scope="module")
def model(data: pn.ChoiceData) -> pn.MNL:
    fitted: pn.MNL = pn.MNL(formula="time/100 + cost/100", reference="SM", cluster="ID").fit(data)
    return fitted


ESTIMATES = {"constant[CAR]": -0.155, "constant[TRAIN]": -0.701, "cost/100": -1.08, "time/100": -1.28}
ROBUST = {"constant[CAR]": 0.0582, "constant[TRAIN]": 0.0826, "cost/100": 0.0682, "time/100": 0.104}


def test_the_log_likelihood_matches_the_published_one(data: pn.ChoiceData, model: pn.MNL) -> None:
    assert len(data) == 6768
    assert model.estimates_.log_likelihood == pytest.approx(-5331.252, abs=5e-4)
    assert model.estimates_.null_log_likelihood == pytest.approx(-6964.663, abs=5e-4)
    assert model.score(data) * len(data) == pytest.approx(-5331.252, abs=5e-4)


def test_estimates_match_published_ones_to_three_digits(model: pn.MNL) -> None:
    assert {k: float(f"{v:.3g}") for k, v in model.coefficients.items()} == ESTIMATES


def test_robust_errors_match_published_ones_to_three_digits(model: pn.MNL) -> None:
    assert {k: float(f"{v:.3g}") for k, v in model.standard_errors("robust").items()} == ROBUST


def test_clustered_errors_exceed_robust_ones(model: pn.MNL) -> None:
    assert model.estimates_.clusters == 752
    robust, clustered = model.standard_errors("robust"), model.standard_errors("clustered")
    assert all(1 < clustered[name] / robust[name] < 3 for name in robust)  # 3 is the square root of 9


def test_the_value_of_time_is_the_ratio_of_coefficients(model: pn.MNL) -> None:
    value_of_time = model.willingness_to_pay("time/100", "cost/100")
    assert -value_of_time.value == pytest.approx(1.28 / 1.08, abs=0.01)  # francs per minute, from rounded figures
    assert np.isfinite(value_of_time.error)


def test_the_box_cox_exponent_matches_biogeme(data: pn.ChoiceData) -> None:
    """Biogeme's test of its example b08boxcox expects this log-likelihood; time is in hundreds of minutes.

    Biogeme 3.3.2 gives .510059 (robust error .0773) for lambda.
    """
    model = pn.MNL(formula="boxcox(time) + cost/100", reference="SM").fit(data)
    assert model.estimates_.log_likelihood == pytest.approx(-5292.0954108, abs=1e-5)
    assert model.coefficients["lambda[time]"] == pytest.approx(0.510059, abs=2e-6)  # two optimisers
    assert model.standard_errors("robust")["lambda[time]"] == pytest.approx(0.0773, abs=5e-5)
    assert model.coefficients["boxcox(time)"] * 100**0.51 == pytest.approx(-1.675, abs=5e-3)
    assert model.coefficients["cost/100"] == pytest.approx(-1.079, abs=5e-4)


def test_scales_by_group_match_biogeme(data: pn.ChoiceData) -> None:
    """Biogeme's example b03scale, with a scale of group 2 relative to group 3: log-likelihood -4976.691."""
    data = read(wide_columns(), individual=["GROUP"])
    model = pn.MNL(formula="time/100 + cost/100", reference="SM", scale="GROUP", base={"GROUP": "3"}).fit(data)
    assert model.estimates_.log_likelihood == pytest.approx(-4976.691, abs=5e-4)


def test_shared_coefficients_of_classes_match_biogeme(data: pn.ChoiceData) -> None:
    """Biogeme's test of its example b07discrete_mixture: the second class ignores time, classes of choices."""
    options = {"shared": ["1", "cost/100"], "fixed": {"class 2: time/100": 0}, "by": "set", "prior": 0}
    model = pn.LatentClassMNL(formula="time/100 + cost/100", reference="SM", classes=2, membership="1", **options)
    model.fit(data)
    assert model.estimates_.log_likelihood == pytest.approx(-5208.4980304812725, abs=1e-6)
    assert model.num_parameters == 5


def test_weighted_robust_errors_use_weighted_scores() -> None:
    """The weights of Biogeme's example b02weight, whose log-likelihood is -5273.743.

    The meat of the sandwich is the sum of the outer products of w s, where s is the score of a choice. With w s s'
    the error of the constant of the train is .083257, and with s s' it is .084541. Biogeme 3.3.2 reports .084540.
    """
    columns = wide_columns()
    columns["weight"] = 0.8890991 * np.where(columns["GROUP"] == 2, 1.0, 1.2)
    data = read(columns, weight="weight")
    model = pn.MNL(formula="time/100 + cost/100", reference="SM", errors="robust").fit(data)
    assert model.estimates_.log_likelihood == pytest.approx(-5273.743, abs=5e-4)
    # 1. The design in the order of the coefficients, and the score of each choice.
    label = data.labels.plain()  # type: ignore[union-attr]
    columns_of_design = [data.features["time"].plain() / 100, data.features["cost"].plain() / 100]
    x = np.column_stack([*columns_of_design, label == "CAR", label == "TRAIN"]).astype(np.float64)
    p = np.exp(data.from_rows(model.predict_log_proba(data)))
    means = np.add.reduceat(p[:, None] * x, data.offsets[:-1])
    scores = x[data.offsets[:-1] + data.chosen] - means
    # 2. The Hessian of the weighted log-likelihood, and the sandwich.
    hessian = (x * (p * data.weights[data.set_of_alternative])[:, None]).T @ x - (
        means * data.weights[:, None]
    ).T @ means
    weighted = scores * data.weights[:, None]
    sandwich = np.linalg.inv(hessian) @ weighted.T @ weighted @ np.linalg.inv(hessian)
    assert list(model.standard_errors().values()) == pytest.approx(np.sqrt(np.diag(sandwich)), rel=1e-6)
    assert model.standard_errors()["constant[TRAIN]"] == pytest.approx(0.082335, abs=1e-6)


# -- numbers of other packages, run on the same table: Biogeme 3.2.14 and xlogit 0.2.7 ------------------------------

PANEL = {"constant[CAR]": 0.128908, "constant[TRAIN]": 0.183470, "cost/100": 0.161169, "time/100": 0.237727}


def test_clustered_errors_match_biogeme(model: pn.MNL) -> None:
    """log(PanelLikelihoodTrajectory(...)) with database.panel("ID"); it has no factor G / (G - 1), G = 752 persons."""
    errors = {name: error * np.sqrt(751 / 752) for name, error in model.standard_errors("clustered").items()}
    assert errors == pytest.approx(PANEL, abs=1e-6)


def test_the_likelihood_ratio_of_a_nest_matches_biogeme(data: pn.ChoiceData, model: pn.MNL) -> None:
    """lognested with train and car in one nest: -5236.900015; likelihood_ratio_test: 188.703984."""
    nests = {"TRAIN": "existing", "CAR": "existing", "SM": "new"}
    nested = pn.NestedMNL(formula="time/100 + cost/100", reference="SM", nests=nests).fit(data)
    assert nested.estimates_.log_likelihood == pytest.approx(
        -5236.900015, abs=2e-5
    )  # two optimisers stop at slightly different points
    assert pn.likelihood_ratio(model, nested).statistic == pytest.approx(188.703984, abs=1e-4)


def test_a_fixed_coefficient_matches_xlogit_with_an_offset(data: pn.ChoiceData) -> None:
    """MultinomialLogit with addit = -cost."""
    held = pn.MNL(formula="time/100 + cost/100", reference="SM", fixed={"cost/100": -1.0}).fit(data)
    assert held.estimates_.log_likelihood == pytest.approx(-5332.577102, abs=1e-5)
    assert held.coefficients["time/100"] == pytest.approx(-1.261126, abs=1e-4)  # the optimiser of xlogit stops earlier


def test_shares_with_higher_car_costs_match_other_packages(data: pn.ChoiceData, model: pn.MNL) -> None:
    shares = pn.scenario(model, data, "cost *= 1.1 where alternative == 'CAR'").shares
    before = {"TRAIN": 0.134161, "SM": 0.604314, "CAR": 0.261525}
    after = {"TRAIN": 0.136650, "SM": 0.615868, "CAR": 0.247482}
    assert {label: shares[label].before for label in before} == pytest.approx(before, abs=2e-6)
    assert {label: shares[label].after for label in after} == pytest.approx(after, abs=2e-6)
