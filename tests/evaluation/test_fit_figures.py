import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL, RankBy, Uniform
from pcmcnet.errors import NotFittedError
from pcmcnet.evaluation.report import FIT_STATISTICS, fit_statistics

DATA = read(logit_choices(60, {"x": 1.0}), alternative="mode", features=["x"], person="person")


def test_the_figures_of_a_logit_are_those_of_its_estimates() -> None:
    model = MNL().fit(DATA)
    result = fit_statistics(model)
    assert set(result) == set(FIT_STATISTICS)
    assert result["log-likelihood"] == model.estimates_.log_likelihood == pytest.approx(60 * model.score(DATA))
    assert result["constants-only log-likelihood"] == model.estimates_.constants_log_likelihood
    assert (result["choice sets"], result["persons"], result["parameters"]) == (60, 15, model.num_parameters)
    assert result["BIC"] == model.estimates_.bic


def test_other_models_are_evaluated_on_the_given_sets() -> None:
    model = Uniform().fit(DATA)
    assert fit_statistics(model)["log-likelihood"] is None
    result = fit_statistics(model, DATA)
    assert result["log-likelihood"] == pytest.approx(result["null log-likelihood"])
    assert str(result["rho-squared"]) == "0.0"
    assert result["AIC"] is None
    assert fit_statistics(RankBy(column="x").fit(DATA), DATA)["log-likelihood"] is None


def test_an_unfitted_model_has_no_figures() -> None:
    with pytest.raises(NotFittedError):
        fit_statistics(MNL())
