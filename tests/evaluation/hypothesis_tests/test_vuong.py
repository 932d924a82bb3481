import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL, ChoiceData, MixedMNL, RankBy, Uniform
from pcmcnet.arrays import Floats
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation.hypothesis_tests import vuong
from pcmcnet.models.interface.choice_model import ChoiceModel

TABLE = {**logit_choices(200, {"x": 1.0, "y": 0.5})}
TABLE["weight"] = 1.0 + TABLE["person"] % 3


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(TABLE, features=["x", "y"], person="person")


def log_p(model: ChoiceModel, data: ChoiceData) -> Floats:
    assert data.chosen is not None
    found: Floats = data.from_rows(model.predict_log_proba(data))[data.offsets[:-1] + data.chosen]
    return found


def test_the_statistic_is_the_mean_over_its_error_with_persons_as_units(data: ChoiceData) -> None:
    train, fresh = data.subset(np.arange(100)), data.subset(np.arange(100, 200))
    a, b = MNL(formula="x").fit(train), MNL(formula="y").fit(train)
    m = (log_p(a, fresh) - log_p(b, fresh)).reshape(25, 4).sum(axis=1)  # four trips of each person
    test = vuong(a, b, fresh)
    assert test.statistic == pytest.approx(np.sqrt(25) * m.mean() / m.std(), rel=1e-10)
    assert (test.details["units"], test.details["unit"], test.degrees_of_freedom) == (25, "persons", None)
    assert test.statistic > 0
    assert "MNL (first) fits significantly better than MNL (second)" in str(test)
    assert vuong(b, a, fresh).statistic == pytest.approx(-test.statistic, rel=1e-12)
    assert test.notes == ()  # neither has seen these


def test_weights_multiply_and_a_set_without_weight_is_no_unit() -> None:
    table = {**TABLE, "weight": np.where(TABLE["trip"] < 20, 0.0, TABLE["weight"])}
    data = read(table, features=["x", "y"], weight="weight")
    a, b = MNL(formula="x").fit(data), Uniform().fit(data)
    m = (data.weights * (log_p(a, data) - log_p(b, data)))[20:]
    test = vuong(a, b, data)
    assert test.statistic == pytest.approx(np.sqrt(180) * m.mean() / m.std(), rel=1e-10)
    assert test.details["unit"] == "choice sets"


def test_a_correction_takes_off_what_more_parameters_are_worth(data: ChoiceData) -> None:
    none, two = Uniform().fit(data), MNL(formula="x + y").fit(data)
    plain = vuong(none, two, data)
    error, difference = plain.details["difference"] / plain.statistic, plain.details["difference"]
    aic, bic = (vuong(none, two, data, correction=word) for word in ("aic", "bic"))  # type: ignore[arg-type]
    assert aic.statistic == pytest.approx((difference + 2) / error, rel=1e-12)
    assert bic.statistic == pytest.approx((difference + np.log(50)) / error, rel=1e-12)
    assert "both models were fitted to these choices" in plain.notes[0]
    assert aic.notes == ()


def test_what_has_no_likelihood_to_compare_is_refused(data: ChoiceData) -> None:
    a = MNL(formula="x").fit(data)
    with pytest.raises(InputError, match="RankBy gives no probabilities, and so has no likelihood to compare"):
        vuong(a, RankBy(column="x").fit(data), data)
    with pytest.raises(InputError, match="the two models give the same probabilities"):
        vuong(a, a, data)
    with pytest.raises(InputError, match="expected at least 2 persons, got 1"):
        vuong(a, Uniform().fit(data), data.subset([0, 1, 2]))
    with pytest.raises(ConfigError, match=r"unknown correction .hqc.. Known: aic, bic, none"):
        vuong(a, a, data, correction="hqc")  # type: ignore[arg-type]


def test_a_model_that_joins_the_choices_of_a_person_is_asked_for_them_together(data: ChoiceData) -> None:
    mixed, plain = MixedMNL(random={"x": "normal"}, draws=40).fit(data), MNL().fit(data)
    test = vuong(mixed, plain, data)
    gap = mixed.estimates_.log_likelihood - plain.estimates_.log_likelihood
    assert test.details["difference"] == pytest.approx(gap, rel=1e-8)


def test_a_model_inside_another_is_noted_where_they_were_fitted(data: ChoiceData) -> None:
    small, large = MNL(formula="x").fit(data), MNL(formula="x + y").fit(data)
    for pair in ((small, large), (large, small)):
        (note,) = vuong(*pair, data, correction="aic").notes
        assert note.startswith("by the names of their coefficients, one model contains the other")
        assert note.endswith("use likelihood_ratio")
    assert vuong(small, MNL(formula="y").fit(data), data).notes == ()
    train, fresh = data.subset(np.arange(100)), data.subset(np.arange(100, 200))
    assert vuong(MNL(formula="x").fit(train), MNL(formula="x + y").fit(train), fresh).notes == ()


def test_differences_without_spread_are_refused(data: ChoiceData) -> None:
    """Held near its estimate, y makes no difference, and a correction would be divided by almost nothing."""
    large = MNL(formula="x + y").fit(data)
    small = MNL(formula="x + y", fixed={"y": large.coefficients["y"] + 1e-4}).fit(data)
    with pytest.raises(InputError, match=r"the two models are too similar to test: .* use likelihood_ratio"):
        vuong(small, large, data, correction="aic")
