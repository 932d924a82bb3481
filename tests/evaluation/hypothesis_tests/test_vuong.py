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
    chosen: Floats = data.from_rows(model.predict_log_proba(data))[data.offsets[:-1] + data.chosen]
    return chosen


def test_the_statistic_is_a_mean_over_persons_divided_by_its_error(data: ChoiceData) -> None:
    train, fresh = data.subset(np.arange(100)), data.subset(np.arange(100, 200))
    a, b = MNL(formula="x").fit(train), MNL(formula="y").fit(train)
    m = (log_p(a, fresh) - log_p(b, fresh)).reshape(25, 4).sum(axis=1)  # four trips of each person
    test = vuong(a, b, fresh)
    assert test.statistic == pytest.approx(np.sqrt(25) * m.mean() / m.std(), rel=1e-10)
    assert (test.details["units"], test.details["unit"], test.degrees_of_freedom) == (25, "persons", None)
    assert test.statistic > 0
    assert "MNL (first) fits significantly better than MNL (second)" in str(test)
    assert vuong(b, a, fresh).statistic == pytest.approx(-test.statistic, rel=1e-12)
    assert test.notes == ()  # neither was fitted to these


def test_weights_multiply_and_sets_of_weight_0_do_not_count() -> None:
    table = {**TABLE, "weight": np.where(TABLE["trip"] < 20, 0.0, TABLE["weight"])}
    data = read(table, features=["x", "y"], weight="weight")
    a, b = MNL(formula="x").fit(data), Uniform().fit(data)
    m = (data.weights * (log_p(a, data) - log_p(b, data)))[20:]
    test = vuong(a, b, data)
    assert test.statistic == pytest.approx(np.sqrt(180) * m.mean() / m.std(), rel=1e-10)
    assert test.details["unit"] == "choice sets"
    assert test.notes[0].startswith("the log-likelihoods are weighted, so the models are compared in the population")
    corrected = vuong(a, b, data, correction="aic")
    assert "the AIC correction is not valid for expansion weights" in corrected.notes[0]


def test_a_correction_penalises_additional_parameters(data: ChoiceData) -> None:
    uniform, logit = Uniform().fit(data), MNL(formula="x + y").fit(data)
    plain = vuong(uniform, logit, data)
    error, difference = plain.details["difference"] / plain.statistic, plain.details["difference"]
    aic, bic = (vuong(uniform, logit, data, correction=word) for word in ("aic", "bic"))  # type: ignore[arg-type]
    assert aic.statistic == pytest.approx((difference + 2) / error, rel=1e-12)
    assert bic.statistic == pytest.approx((difference + np.log(50)) / error, rel=1e-12)
    assert "both models were fitted to these choices" in plain.notes[0]
    assert aic.notes == ()


def test_sets_of_one_alternative_do_not_count() -> None:
    """Both models give them probability 1, so they say nothing about the difference."""
    single = np.arange(1000, 1060)
    table = {"trip": np.append(TABLE["trip"], single), "took": np.append(TABLE["took"], np.ones(60, np.int8))}
    table |= {name: np.append(TABLE[name], np.zeros(60)) for name in ("x", "y")}
    plain, longer = (read(t, features=["x", "y"]) for t in (TABLE, table))
    a, b = MNL(formula="x").fit(plain), MNL(formula="x + y").fit(plain)
    for correction in ("none", "bic"):
        one, other = (vuong(a, b, data, correction=correction) for data in (plain, longer))  # type: ignore[arg-type]
        assert other.statistic == pytest.approx(one.statistic, rel=1e-12)
        assert other.details["units"] == 200
    in_sample = vuong(MNL(formula="x").fit(longer), MNL(formula="y").fit(longer), longer)
    assert in_sample.notes == ()
    larger = vuong(MNL(formula="x").fit(longer), b, longer)
    assert "one of the models was fitted to these choices" in larger.notes[-1]
    with pytest.raises(InputError, match="expected at least 2 choice sets with a choice between alternatives, got 0"):
        vuong(a, b, longer.subset(longer.sizes == 1))


def test_models_without_a_likelihood_to_compare_are_refused(data: ChoiceData) -> None:
    a = MNL(formula="x").fit(data)
    with pytest.raises(InputError, match="RankBy gives no probabilities and therefore has no likelihood to compare"):
        vuong(a, RankBy(column="x").fit(data), data)
    with pytest.raises(InputError, match="the two models give the same probabilities"):
        vuong(a, a, data)
    with pytest.raises(InputError, match="expected at least 2 persons with a choice between alternatives, got 1"):
        vuong(a, Uniform().fit(data), data.subset([0, 1, 2]))
    with pytest.raises(ConfigError, match=r"unknown correction .hqc.. Known: aic, bic, none"):
        vuong(a, a, data, correction="hqc")  # type: ignore[arg-type]


def test_panel_models_are_compared_by_their_person_likelihoods(data: ChoiceData) -> None:
    mixed, plain = MixedMNL(random={"x": "normal"}, draws=40).fit(data), MNL().fit(data)
    test = vuong(mixed, plain, data)
    expected = mixed.estimates_.log_likelihood - plain.estimates_.log_likelihood
    assert test.details["difference"] == pytest.approx(expected, rel=1e-8)


def test_nested_models_are_noted_on_their_training_table(data: ChoiceData) -> None:
    small, large = MNL(formula="x").fit(data), MNL(formula="x + y").fit(data)
    for pair in ((small, large), (large, small)):
        (note,) = vuong(*pair, data, correction="aic").notes
        assert note.startswith("the names of the coefficients show that the models are nested")
        assert note.endswith("use likelihood_ratio")
    assert vuong(small, MNL(formula="y").fit(data), data).notes == ()
    train, fresh = data.subset(np.arange(100)), data.subset(np.arange(100, 200))
    assert vuong(MNL(formula="x").fit(train), MNL(formula="x + y").fit(train), fresh).notes == ()


def test_models_that_hardly_differ_are_refused(data: ChoiceData) -> None:
    """y is fixed near its estimate. The models hardly differ, so the correction would be divided by almost 0."""
    large = MNL(formula="x + y").fit(data)
    small = MNL(formula="x + y", fixed={"y": large.coefficients["y"] + 1e-4}).fit(data)
    with pytest.raises(InputError, match=r"the two models are too similar to test: .* use likelihood_ratio"):
        vuong(small, large, data, correction="aic")
