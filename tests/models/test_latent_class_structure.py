"""Latent classes with shared coefficients and with coefficients that some classes fix at 0."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from choice_tables import read
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import likelihood_ratio
from pcmcnet.models import LatentClassMNL, load
from pcmcnet.models.interface.latent_classes import Persons
from pcmcnet.models.latent_class_mnl import _mixture_data
from pcmcnet.models.logit.latent_class_likelihood import LatentClassLikelihood, em_steps, split_largest_class
from pcmcnet.models.logit.maximum_likelihood import numerical_hessian

ANA = {"shared": ["cost", "time"], "fixed": {"class 2: cost": 0, "class 3: time": 0}}


def table(persons: int = 250, times: int = 4, seed: int = 0) -> dict[str, Any]:
    """Panel in which 30% of the persons ignore the cost; income raises the probability of this class."""
    rng = np.random.default_rng(seed)
    sets, n = persons * times, 3
    cost, time = rng.normal(size=(2, sets, n))
    income = rng.normal(size=persons)
    ignores = rng.random(persons) < 1 / (1 + np.exp(0.85 - income))
    b = np.where(ignores, 0.0, -1.5)[np.arange(sets) // times]
    took = (b[:, None] * cost - time + rng.gumbel(size=(sets, n))).argmax(1)
    return {
        "trip": np.repeat(np.arange(sets), n),
        "took": (took[:, None] == np.arange(n)).ravel(),
        "mode": np.tile(["car", "bus", "train"], sets),
        "open": np.where(np.arange(sets * n) % 7, True, (took[:, None] == np.arange(n)).ravel()),
        "cost": cost.ravel(),
        "time": time.ravel(),
        "person": np.repeat(np.arange(sets) // times, n),
        "income": np.repeat(income, times * n),
        "weight": np.repeat(1.0 + np.arange(persons) % 2, times * n),
    }


def read_panel(**roles: Any) -> ChoiceData:
    options = {"features": ["cost", "time"], "individual": ["income"], "person": "person", "available": "open"}
    return read(table(), **{**options, **roles})


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read_panel(weight="weight")


def independent_maximum(
    data: ChoiceData, *, by_person: bool, income: bool
) -> tuple[float, np.ndarray]:  # log-likelihood, (cost, time, membership...)
    """Maximise the likelihood of two classes with a common coefficient of time, written without the library.

    Class 1 has the utility b cost + t time, and class 2 the utility t time.
    """
    cost, time = (data.features[name].plain().astype(float) for name in ("cost", "time"))
    begin, chosen = data.offsets[:-1], data.offsets[:-1] + data.chosen
    units = data.groups() if by_person else np.arange(len(data))
    h = data.individual["income"].plain().astype(float) if income else np.zeros(len(data))

    def minus_log_likelihood(x: np.ndarray) -> float:
        b, t, g0, g1 = x
        total = np.zeros((units.max() + 1, 2))
        for c, v in enumerate((b * cost + t * time, t * time)):
            log_p = v[chosen] - np.log(np.add.reduceat(np.exp(v), begin))
            total[:, c] = np.bincount(units, log_p)
        g = (g0 + g1 * h)[np.unique(units, return_index=True)[1]]
        total[:, 0] -= np.log1p(np.exp(g))
        total[:, 1] += g - np.log1p(np.exp(g))
        weights = data.weights[np.unique(units, return_index=True)[1]]
        return float(-(weights @ np.logaddexp(total[:, 0], total[:, 1])))

    best = minimize(minus_log_likelihood, [-1.0, -0.5, -0.5, 0.0], method="BFGS", options={"gtol": 1e-6})
    return -float(best.fun), best.x


@pytest.mark.parametrize(("by", "income"), [("person", True), ("set", False)])
def test_shared_classes_equal_an_independent_likelihood(data: ChoiceData, by: str, income: bool) -> None:
    options = {"by": by, "membership": "income" if income else "1"}
    model = LatentClassMNL(classes=2, shared=["time"], fixed={"class 2: cost": 0}, prior=0, **options).fit(data)
    value, x = independent_maximum(data, by_person=by == "person", income=income)
    assert model.estimates_.log_likelihood == pytest.approx(value, abs=1e-6)
    b = model.coefficients
    membership = [value for name, value in b.items() if name.startswith("membership")]
    # The optimiser of the independent likelihood uses numerical gradients.
    np.testing.assert_allclose(
        [b["class 1: cost"], b["class 1: time"], *membership], x[: 2 + len(membership)], atol=1e-3
    )
    assert b["class 2: time"] == b["class 1: time"]
    assert b["class 2: cost"] == 0
    assert model.num_parameters == 2 + len(membership)


def mixture(data: ChoiceData, classes: int, **options: Any) -> tuple[LatentClassLikelihood, LatentClassMNL]:
    """Return the likelihood of a model with the given structure of classes."""
    model = LatentClassMNL(classes=classes, **options)
    persons = Persons.of(data, "person")
    design = model._learn_design(data, wtp_space=None)
    membership = model._learn_membership(persons)
    problem = _mixture_data(design, membership, data, data.require_chosen("test"), persons)
    within = model._parameters_of_classes(design, membership, model._shared(design, data), classes)
    return LatentClassLikelihood(*problem, classes, 0.05, limits=within), model


def test_gradient_and_hessian_of_the_different_values_agree_with_differences(data: ChoiceData) -> None:
    likelihood, _ = mixture(data, 3, **ANA)
    within = likelihood.within
    u = np.random.default_rng(0).normal(size=len(within.distinct))
    u[within.reduced.fixed] = 0
    T, weights = within.expansion, likelihood.all_weights

    def objective(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ll, scores = likelihood.objective(T @ u)
        return ll, scores @ T

    step = 1e-5 * np.eye(len(u))
    differences = [weights @ (objective(u + h)[0] - objective(u - h)[0]) / 2e-5 for h in step]
    np.testing.assert_allclose(weights @ objective(u)[1], differences, rtol=1e-6, atol=1e-6)
    hessian = T.T @ likelihood.hessian(T @ u) @ T
    np.testing.assert_allclose(hessian, numerical_hessian(objective, u, weights), rtol=1e-6, atol=1e-5)


def test_steps_keep_the_constraints_and_never_lower_the_objective(data: ChoiceData) -> None:
    likelihood, _ = mixture(data, 3, **ANA, bounds={"class 1: cost": (-1, None)})
    start = split_largest_class(likelihood, np.zeros((1, 2)), np.zeros((1, 2)), np.random.default_rng(0))
    at, values = em_steps(likelihood, start, [], 60)
    assert np.all(np.diff(values) >= 0)
    assert len(values) > 5
    np.testing.assert_array_equal(at.x, at.x[likelihood.within.same_as])
    assert at.x[likelihood.within.names.index("class 1: cost")] >= -1


def test_a_shared_coefficient_has_the_prior_of_one_coefficient(data: ChoiceData) -> None:
    shared, _ = mixture(data, 2, shared=["time"])
    within, alone = shared.within, 0.05 * shared.sets.spread**2
    reduced = within.expansion.T @ shared.prior @ within.expansion
    k = within.reduced.names.index("class 1: time")
    assert reduced[k, k] == pytest.approx(alone[1], rel=1e-12)


def test_non_attendance_is_recovered() -> None:
    """30% of the persons ignore the cost, in a panel of 250 persons: within 3 standard errors of the truth."""
    data = read_panel()
    model = LatentClassMNL(classes=2, shared=["time"], fixed={"class 2: cost": 0}, membership="income").fit(data)
    b, errors = model.coefficients, model.standard_errors()
    for name, truth in {"class 1: cost": -1.5, "class 1: time": -1.0, "membership 2: income": 1.0}.items():
        assert abs(b[name] - truth) < 3 * errors[name]
    assert errors["class 1: time"] == errors["class 2: time"]
    free = LatentClassMNL(classes=2, membership="income", start=b).fit(data)
    assert likelihood_ratio(model, free).degrees_of_freedom == 2


def test_bounds_by_class_hold(data: ChoiceData) -> None:
    model = LatentClassMNL(classes=2, shared=["time"], bounds={"class 2: cost": (-0.5, 0)}, membership="1").fit(data)
    assert -0.5 <= model.coefficients["class 2: cost"] <= 0
    assert model.coefficients["class 1: cost"] < -0.5


def test_a_term_shares_all_its_coefficients() -> None:
    data = read_panel(alternative="mode")
    model = LatentClassMNL(classes=2, shared=["1", "time"], membership="1").fit(data)
    assert set(model.estimates_.equal) == {"class 2: constant[bus]", "class 2: constant[train]", "class 2: time"}
    assert "shared by classes" in str(model.summary())


def test_equalities_within_and_between_classes(data: ChoiceData) -> None:
    within = LatentClassMNL(classes=2, equal=["cost = time"], membership="1").fit(data)
    assert within.estimates_.equal == {"class 1: time": "class 1: cost", "class 2: time": "class 2: cost"}
    between = LatentClassMNL(classes=2, equal=["class 1: time = class 2: time"], membership="1").fit(data)
    shared = LatentClassMNL(classes=2, shared=["time"], membership="1").fit(data)
    assert between.estimates_.log_likelihood == pytest.approx(shared.estimates_.log_likelihood, abs=1e-6)


def test_the_number_of_classes_can_be_selected(data: ChoiceData) -> None:
    model = LatentClassMNL(shared=["time"], max_classes=2).fit(data)
    assert list(model.record_.aic) == ["1", "2"]


def test_a_saved_model_keeps_its_classes(data: ChoiceData, tmp_path: Path) -> None:
    model = LatentClassMNL(classes=2, shared=["time"], membership="1").fit(data)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.config.shared == ("time",)
    np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shared": ["tme"]}, "shared: 'tme' is not a coefficient of this model. Did you mean 'time'"),
        ({"shared": ["cost", "time"]}, "the classes do not differ"),
        ({"shared": ["time"], "start": {"class 1: time": -1, "class 2: time": -2}}, "start has the values -1 and -2"),
        ({"shared": ["time"], "bounds": {"class 1: time": (None, -1), "class 2: time": (0, 1)}}, "no interval"),
        ({"equal": ["class 3: time = class 1: time"]}, "'class 3: time' is not a coefficient"),
    ],
)
def test_inconsistent_classes_are_refused(data: ChoiceData, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LatentClassMNL(classes=2, **options).fit(data)


def test_shared_must_be_a_list_of_names() -> None:
    with pytest.raises(ConfigError, match="shared must be a list of names"):
        LatentClassMNL(shared="time")
