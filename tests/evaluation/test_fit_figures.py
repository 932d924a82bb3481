from dataclasses import replace

import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL, RankBy, Uniform, calibrate_constants
from pcmcnet.errors import NotFittedError
from pcmcnet.evaluation.report import FIT_STATISTICS, TRAINING_STATISTICS, fit_statistics

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


@pytest.mark.parametrize("kind", [MNL, Uniform])
def test_every_figure_refers_to_the_given_sets(kind: type[MNL] | type[Uniform]) -> None:
    """A model fitted to 40 sets of 10 persons, and 20 other sets of 5 persons; one of the sets has weight 0."""
    model, test = kind().fit(DATA[:40]), DATA[40:]
    weighted = replace(test, weights=np.append(0.0, np.full(19, 2.0)))
    for data, sets, persons in ((test, 20, 5), (weighted, 19, 5)):
        result = fit_statistics(model, data)
        assert (result["choice sets"], result["persons"]) == (sets, persons)
        assert result["log-likelihood"] == pytest.approx(data.weights @ np.log(model.chosen_probabilities(data)))
        assert result["null log-likelihood"] == pytest.approx(-data.weights @ np.log(data.sizes))
        assert result["rho-squared"] == pytest.approx(1 - result["log-likelihood"] / result["null log-likelihood"])
        assert [result[name] for name in TRAINING_STATISTICS] == [None] * 4


def test_the_sets_of_the_fit_have_all_figures_of_a_logit() -> None:
    model = MNL().fit(DATA)
    assert fit_statistics(model, DATA) == pytest.approx(fit_statistics(model))
    moved = calibrate_constants(model, DATA, {"A": 0.2, "B": 0.3, "C": 0.4, "D": 0.1})
    result = fit_statistics(moved, DATA)
    assert result["log-likelihood"] == pytest.approx(60 * moved.score(DATA))
    assert result["log-likelihood"] < model.estimates_.log_likelihood - 0.01
    assert result["AIC"] is None


def test_an_unfitted_model_has_no_figures() -> None:
    with pytest.raises(NotFittedError):
        fit_statistics(MNL())
