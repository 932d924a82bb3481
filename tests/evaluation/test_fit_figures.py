import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL, RankBy, Uniform
from pcmcnet.errors import NotFittedError
from pcmcnet.evaluation.report import FIT_STATISTICS, fit_statistics

DATA = read(logit_choices(60, {"x": 1.0}), alternative="mode", features=["x"], person="person")


def test_the_figures_of_a_logit_are_those_of_its_estimates() -> None:
    model = MNL().fit(DATA)
    found = fit_statistics(model)
    assert set(found) == set(FIT_STATISTICS)
    assert found["log-likelihood"] == model.estimates_.log_likelihood == pytest.approx(60 * model.score(DATA))
    assert found["constants-only log-likelihood"] == model.estimates_.constants_log_likelihood
    assert (found["choice sets"], found["persons"], found["parameters"]) == (60, 15, model.num_parameters)
    assert found["BIC"] == model.estimates_.bic


def test_other_models_are_evaluated_on_the_given_sets() -> None:
    model = Uniform().fit(DATA)
    assert fit_statistics(model)["log-likelihood"] is None
    found = fit_statistics(model, DATA)
    assert found["log-likelihood"] == pytest.approx(found["null log-likelihood"])
    assert str(found["rho-squared"]) == "0.0"
    assert found["AIC"] is None
    assert fit_statistics(RankBy(column="x").fit(DATA), DATA)["log-likelihood"] is None


def test_an_unfitted_model_has_no_figures() -> None:
    with pytest.raises(NotFittedError):
        fit_statistics(MNL())
