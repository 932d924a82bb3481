from functools import partial

import numpy as np
import pytest

from choice_tables import read, trips
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.estimation.nested_likelihood import Nests
from pcmcnet.models.logits.estimation.nonlinear_likelihood import CurvedLogit, CurvedNestedSets


@pytest.mark.parametrize("cost", [None, "price/10"])
def test_scores_are_the_derivatives_of_the_log_probabilities(cost: str | None) -> None:
    data = read(trips(40, single=True), alternative="mode", features=["price", "minutes", "comfort"])
    formula = "price/10 + comfort:boxcox(minutes)/60 + minutes[car] | 1 | boxcox(minutes)/60"
    design = Design.learn(formula, data, cost=cost)
    chosen = data.require_chosen("a test")
    logit = CurvedLogit(partial(design.linearised, data), data.offsets, chosen)
    theta = np.random.default_rng(0).normal(size=len(design.names)) / 4
    theta[-1] = 0.7
    ll, scores = logit.objective(theta)
    assert scores.shape == (40, len(theta))
    v = design.utilities(data, theta)
    at = data.offsets[:-1] + chosen
    by_hand = [v[i] - np.log(np.exp(v[a:b]).sum()) for i, a, b in zip(at, data.offsets, data.offsets[1:], strict=False)]
    np.testing.assert_allclose(ll, by_hand, rtol=1e-10, atol=1e-12)
    for k, step in enumerate(1e-5 * np.eye(len(theta))):
        numeric = (logit.objective(theta + step)[0] - logit.objective(theta - step)[0]) / 2e-5
        np.testing.assert_allclose(scores[:, k], numeric, atol=1e-7, err_msg=design.names[k])


def test_scores_of_nested_sets_are_the_derivatives_of_the_log_probabilities() -> None:
    data = read(trips(30), features=["price", "minutes"])
    design = Design.learn("price/10 + boxcox(minutes)/60", data, cost="price/10")
    chosen = np.isin(np.arange(len(data.rows)), data.offsets[:-1] + data.require_chosen("a test"))
    nests = Nests.find(np.arange(len(data.rows)) % 2, data.offsets)
    logit = CurvedNestedSets(partial(design.linearised, data), 3, nests, chosen, np.eye(2))
    values = np.array([-0.4, 0.3, 0.6, 0.7, 0.9])
    _, scores = logit.evaluate(values)
    for k, step in enumerate(1e-5 * np.eye(5)):
        numeric = (logit.evaluate(values + step)[0] - logit.evaluate(values - step)[0]) / 2e-5
        np.testing.assert_allclose(scores[:, k], numeric, atol=1e-7)
    assert (logit.evaluate(np.array([-0.4, 0.3, 900.0, 0.7, 0.9]))[0] == -np.inf).all()


def test_exponents_beyond_any_number_are_out_of_bounds() -> None:
    data = read(trips(20), features=["price", "minutes"])
    design = Design.learn("boxcox(minutes) + price", data)
    logit = CurvedLogit(partial(design.linearised, data), data.offsets, data.require_chosen("a test"))
    ll, scores = logit.objective(np.array([-0.1, -0.1, 900.0]))
    assert (ll == -np.inf).all()
    assert (scores == 0).all()
    assert (logit.spread(np.array([0.0, 0.0, 1.0])) > 0).all()
