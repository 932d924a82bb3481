"""Latent class logit: recovery of simulated classes, monotone EM, and finite results for any data."""

import itertools
import json
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from choice_tables import logit_choices
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import packaged
from pcmcnet.errors import (
    ArtifactError,
    ConfigError,
    DatasetError,
    InputError,
    NotFittedError,
    SchemaError,
    TrainingError,
)
from pcmcnet.models import MNL, LatentClassMNL, latent_class_mnl, load
from pcmcnet.models.interface.saving import state_files
from pcmcnet.models.logit import latent_class_likelihood
from pcmcnet.models.logit.latent_class_likelihood import ClassSearch, LatentClassLikelihood, split_largest_class
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import numerical_hessian

# Two classes: the first is sensitive to cost, the second to time. Income raises the share of the second.
TRUTH = {"class 1: cost": -2.0, "class 1: time": -0.5, "class 2: cost": -0.3, "class 2: time": -2.5}
SHARES = (0.6, 0.4)


def trips(sets: int, seed: int = 0, *, income: float = 0.0) -> dict[str, Any]:
    """Return sets of four alternatives. A unit of income adds ``income`` to the log-odds of the second class."""
    rng = np.random.default_rng(seed)
    x, individual = rng.normal(size=(sets, 4, 2)), rng.normal(size=sets)
    second = rng.random(sets) < 1 / (1 + np.exp(-(np.log(SHARES[1] / SHARES[0]) + income * individual)))
    b = np.where(second[:, None], [[-0.3, -2.5]], [[-2.0, -0.5]])
    took = ((x * b[:, None]).sum(2) + rng.gumbel(size=(sets, 4))).argmax(1)
    return {
        "trip": np.repeat(np.arange(sets), 4),
        "took": (took[:, None] == np.arange(4)).ravel(),
        "cost": x[..., 0].ravel(),
        "time": x[..., 1].ravel(),
        "income": np.repeat(individual, 4),
        "home": np.repeat(np.where(second, "town", "land"), 4),
        "person": np.repeat(np.arange(sets) // 3, 4),
        "weight": np.repeat(1 + np.arange(sets) % 3, 4),
    }


def read(table: dict[str, Any], individual: tuple[str, ...] = (), **roles: Any) -> ChoiceData:
    roles = {"choice_set": "trip", "chosen": "took", "features": ["cost", "time"], "keep": ["person"]} | roles
    return ChoiceData.from_long(table, individual=list(individual), **roles)


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(trips(600, income=1.5), ("income", "home"))


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> LatentClassMNL:
    fitted: LatentClassMNL = LatentClassMNL(classes=2, membership="income", cluster="person").fit(data)
    return fitted


def mixture_of(model: LatentClassMNL, data: ChoiceData) -> LatentClassLikelihood:
    """Return the objective that the model maximised."""
    sets = LogitLikelihood.from_matrix(model.design_.matrix(data), data.offsets, data.require_chosen("test"))
    persons = np.arange(len(data))
    return LatentClassLikelihood(
        sets, persons, model.membership_design_.matrix(data), data.weights, model.n_classes_, model.config.precision
    )


# -- known answers -------------------------------------------------------------------------------------------------


def test_two_simulated_classes_are_recovered() -> None:
    data = read(trips(4000))
    model = LatentClassMNL(classes="auto", max_classes=3, membership="1", prior=0).fit(data)
    aic = model.record_.aic
    assert model.n_classes_ == 2
    assert min(aic, key=aic.get) == "2"
    assert list(aic) == ["1", "2", "3"]
    # A share has a standard error of some 0.015 here.
    np.testing.assert_allclose(model.membership(data).mean(0), SHARES, atol=0.03)
    errors = model.standard_errors()
    for name, value in TRUTH.items():
        assert abs(model.coefficients[name] - value) < 3 * errors[name]
        assert errors[name] < 0.3


def test_effects_on_class_membership_are_recovered() -> None:
    model = LatentClassMNL(classes=2, membership="income", prior=0).fit(read(trips(4000, income=1.5), ("income",)))
    assert abs(model.coefficients["membership 2: income"] - 1.5) < 3 * model.standard_errors()["membership 2: income"]


def test_one_class_is_the_multinomial_logit(data: ChoiceData) -> None:
    one, plain = LatentClassMNL(classes=1, prior=0).fit(data), MNL().fit(data)
    assert one.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(one.predict_log_proba(data), plain.predict_log_proba(data), rtol=1e-5, atol=1e-6)
    for kind in ("classical", "robust"):
        np.testing.assert_allclose(one.covariance(kind), plain.covariance(kind), rtol=1e-5)
    assert list(one.coefficients) == ["class 1: cost", "class 1: time"]
    np.testing.assert_array_equal(one.membership(data), 1)


def test_probabilities_are_weighted_by_membership(model: LatentClassMNL, data: ChoiceData) -> None:
    b = model.coefficients
    x = np.column_stack([data.features[name].plain() for name in ("cost", "time")])[:4].astype(float)
    odds = np.exp(b["membership 2: constant"] + b["membership 2: income"] * float(data.individual["income"].plain()[0]))
    classes = [np.exp(x @ [b[f"class {c}: cost"], b[f"class {c}: time"]]) for c in (1, 2)]
    first, second = (v / v.sum() for v in classes)
    np.testing.assert_allclose(model.predict_proba(data)[:4], (first + odds * second) / (1 + odds), rtol=1e-10)
    np.testing.assert_allclose(model.membership(data)[0], [1 / (1 + odds), odds / (1 + odds)], rtol=1e-10)


def test_the_posterior_is_bayes_rule(model: LatentClassMNL, data: ChoiceData) -> None:
    b, pi = model.coefficients, model.membership(data)[0]
    x = np.column_stack([data.features[name].plain() for name in ("cost", "time")])[:4].astype(float)
    chosen = int(data.require_chosen("test")[0])
    likelihoods = []
    for c in (1, 2):
        v = np.exp(x @ [b[f"class {c}: cost"], b[f"class {c}: time"]])
        likelihoods.append(v[chosen] / v.sum())
    np.testing.assert_allclose(model.posterior(data)[0], pi * likelihoods / (pi @ likelihoods), rtol=1e-10)
    for shares in (model.posterior(data), model.membership(data)):
        assert shares.shape == (600, 2)
        np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-12)


def test_a_posterior_needs_choices_but_membership_does_not(model: LatentClassMNL, data: ChoiceData) -> None:
    table = {name: values for name, values in trips(20, income=1.5).items() if name != "took"}
    assert model.membership(table).shape == (20, 2)
    with pytest.raises(InputError, match="the shares given the choices needs the choices"):
        model.posterior(read(table, ("income", "home"), chosen=None))


# -- the maximum and its errors ------------------------------------------------------------------------------------


def test_the_estimate_is_a_maximum_with_errors_from_the_hessian(model: LatentClassMNL, data: ChoiceData) -> None:
    mixture, x = mixture_of(model, data), model.estimates_.values
    # Steps end where another would gain 1e-12 of the log-likelihood.
    np.testing.assert_allclose(mixture.all_weights @ mixture.objective(x)[1], 0, atol=1e-3)
    near = numerical_hessian(mixture.objective, x, np.append(mixture.weights, 0.0))  # without the prior
    result = model.covariance("classical")
    np.testing.assert_allclose(result, np.linalg.inv(-near), rtol=1e-4, atol=1e-8)  # central differences
    scores = mixture.objective(x)[1][:-1]
    outer = np.sqrt(np.diag(np.linalg.inv(scores.T @ scores)))
    # Equal in expectation if the model is correct; 600 sets leave differences of some tens of per cent.
    np.testing.assert_allclose(outer, list(model.standard_errors("classical").values()), rtol=0.4)


def test_classes_are_sorted_by_share() -> None:
    for seed in range(4):
        data = read(trips(300, seed))
        shares = LatentClassMNL(classes=3, starts=2).fit(data, seed=seed).membership(data).mean(0)
        assert (np.diff(shares) <= 0).all()


@settings(max_examples=12)
@given(seed=st.integers(0, 2**16), prior=st.sampled_from([0.0, 0.1]), classes=st.integers(2, 3))
def test_em_never_lowers_the_likelihood(seed: int, prior: float, classes: int) -> None:
    data = read(trips(80, seed), ("income",))
    try:
        model = LatentClassMNL(classes=classes, starts=2, prior=prior).fit(data, seed=seed)
    except TrainingError:  # without a prior there may be no maximum
        assert prior == 0
        return
    em = model.record_.em
    assert len(em) > 1
    assert (np.diff(em) >= 0).all()
    if prior == 0:
        assert em[-1] <= model.estimates_.log_likelihood + 1e-9


def test_fits_are_reproducible_and_more_starts_are_no_worse(data: ChoiceData) -> None:
    options: dict[str, Any] = {"classes": 3, "membership": "income"}
    first, again = (LatentClassMNL(**options).fit(data, seed=3) for _ in range(2))
    assert first.coefficients == again.coefficients
    one = LatentClassMNL(**options, starts=1, em_steps=1).fit(data, seed=3)
    assert one.estimates_.log_likelihood <= first.estimates_.log_likelihood + 0.1


def test_starts_on_a_sample_lead_to_the_same_maximum(
    data: ChoiceData, model: LatentClassMNL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latent_class_mnl, "_SAMPLE", len(data) // 3)
    result = LatentClassMNL(**asdict(model.config)).fit(data)
    assert result.score(data) == pytest.approx(model.score(data), abs=1e-6)
    np.testing.assert_allclose(result.predict_proba(data), model.predict_proba(data), atol=1e-3)  # both have converged


@pytest.mark.parametrize("column", ["promotion", "brand", "children"])
def test_columns_that_are_constant_in_the_sample_are_estimated(monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    """A feature, a level or an individual column varies only in sets outside the sample of the first steps."""
    monkeypatch.setattr(latent_class_mnl, "_SAMPLE", 200)
    table = trips(600)
    others = np.setdiff1d(np.arange(600), np.random.default_rng(0).choice(600, 200, replace=False))[:12]
    rare, first = np.isin(table["trip"], others), np.arange(2400) % 4 == 0
    table["promotion"] = np.where(rare & first, 1.5, 0.0)
    table["brand"] = np.where(rare & table["took"], "rare", np.array(["A", "B"])[np.arange(2400) % 2])
    table["children"] = np.where(rare, table["trip"] % 3, 7)
    more: dict[str, Any] = {} if column == "children" else {"features": ["cost", "time", column]}
    data = read(table, ("children",) * (column == "children"), **more)
    model = LatentClassMNL(classes=2).fit(data)
    assert any(column in name for name in model.coefficients)
    assert np.isfinite(model.estimates_.values).all()
    whole = mixture_of(model, data)
    # Steps end where another would gain 1e-12 of the log-likelihood.
    slopes = whole.all_weights @ whole.objective(model.estimates_.values)[1] / whole.spread
    np.testing.assert_allclose(slopes, 0, atol=1e-3)


@pytest.mark.parametrize("classes", [3, "auto"])
@pytest.mark.parametrize("sample", [200, 4000])
def test_the_best_start_is_kept(data: ChoiceData, monkeypatch: pytest.MonkeyPatch, classes: Any, sample: int) -> None:
    """At most three maxima continue on a large table. On a small one all starts do, and one more splits a class."""
    monkeypatch.setattr(latent_class_mnl, "_SAMPLE", sample)
    begun, begin = [], ClassSearch._run_starts

    def note(self: ClassSearch, mixture: LatentClassLikelihood, *more: Any) -> Any:
        runs, failed = begin(self, mixture, *more)
        begun.append((mixture, runs))
        return list(runs), failed

    monkeypatch.setattr(ClassSearch, "_run_starts", note)
    model = LatentClassMNL(classes=classes, max_classes=3, membership="income", starts=5).fit(data)
    whole = (len(data), model.n_classes_)
    followed = [run for mixture, runs in begun if (mixture.sets.n_sets, mixture.classes) == whole for run in runs]
    if sample == 200:
        assert 1 <= len(followed) <= 3
        assert model.summary().facts["starts"].endswith("compared on a sample of 200 choice sets")
    else:
        assert len(followed) == 5 + (classes == "auto")
        assert model.record_.starts.starts == len(followed)
    _, em = max(followed, key=lambda run: run[0].value)
    assert model.record_.em[: len(em)] == tuple(em)


def test_splitting_a_class_leaves_the_others_unchanged(model: LatentClassMNL, data: ChoiceData) -> None:
    """The gradient of the other classes is 0 at a maximum."""
    two, (b, g) = mixture_of(model, data), model._state.split()
    three = LatentClassLikelihood(two.sets, two.persons, two.covariates, two.weights, 3, two.strength)
    after, _ = three.split(split_largest_class(three, b, g, np.random.default_rng(0)).x)
    np.testing.assert_allclose(after[2], b[1], atol=1e-5)  # both have converged to 1e-12 of the log-likelihood
    assert (np.abs(after[0] - after[1]) > 0.01).all()
    unsplit = split_largest_class(two, b, g, np.random.default_rng(0))
    np.testing.assert_allclose(unsplit.x, model.estimates_.values, rtol=1e-12)


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_results_do_not_depend_on_the_number_of_threads(
    data: ChoiceData, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr("pcmcnet.models.logit.logit_likelihood._PART", 256)
    monkeypatch.setattr("pcmcnet.models.logit.latent_class_likelihood._PERSONS", 64)
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    with threadpool_limits(threads):
        result = LatentClassMNL(classes=2, starts=2).fit(data)
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    assert LatentClassMNL(classes=2, starts=2).fit(data).coefficients == result.coefficients


def test_the_prior_shrinks_coefficients(data: ChoiceData) -> None:
    free, pulled = (LatentClassMNL(classes=2, membership="1", prior=prior).fit(data) for prior in (0, 100))
    assert np.abs(pulled.estimates_.values[:4]).max() < np.abs(free.estimates_.values[:4]).max()
    assert pulled.estimates_.log_likelihood < free.estimates_.log_likelihood


def test_errors_do_not_depend_on_the_prior() -> None:
    """With one class, the information is that of the multinomial logit at the same coefficients."""
    data = read(trips(300))
    model = LatentClassMNL(classes=1, prior=50).fit(data)
    sets = LogitLikelihood.from_matrix(model.design_.matrix(data), data.offsets, data.require_chosen("test"))
    _, p, mean = sets.evaluate(model.estimates_.values)
    np.testing.assert_allclose(model.covariance(), np.linalg.inv(-sets.hessian(p, mean, np.ones(300))), rtol=1e-9)
    assert model.summary().facts["prior"].startswith("normal, precision 50 per standardised column")
    assert "prior" not in LatentClassMNL(classes=1, prior=0).fit(data).summary().facts


@pytest.mark.parametrize(("options", "precision"), [({}, 0.1), ({"classes": 2}, 1e-3), ({"prior": 3}, 3.0)])
def test_the_prior_is_weak_for_a_given_number_of_classes(options: dict[str, Any], precision: float) -> None:
    assert LatentClassMNL(**options).config.precision == precision


def test_the_default_prior_hardly_moves_estimates(data: ChoiceData) -> None:
    weak, none = (LatentClassMNL(classes=2, membership="income", prior=p).fit(data) for p in ("auto", 0))
    moved = np.abs(weak.estimates_.values - none.estimates_.values) / list(none.standard_errors().values())
    assert 0 < moved.max() < 0.05


# -- class membership ----------------------------------------------------------------------------------------------


def test_profiles_describe_the_members_of_a_class(model: LatentClassMNL, data: ChoiceData) -> None:
    facts = model.summary().facts
    posterior = model.posterior(data)
    income = data.individual["income"].plain().astype(float)
    for c in (0, 1):
        mean = posterior[:, c] @ income / posterior[:, c].sum()
        assert f"{posterior[:, c].mean():.1%} of the choices, income {mean:.4g}, home" in facts[f"class {c + 1}"]
    assert "home land" in facts["class 1"]
    assert "home town" in facts["class 2"]


def test_collinear_columns_are_named_in_the_summary() -> None:
    table = trips(200, income=1.0)
    table["double"], table["still"] = 2 * table["income"], np.ones(800)
    data = read(table, ("income", "double", "still"))
    model = LatentClassMNL(classes=2).fit(data)
    left_out = "standardise(double), standardise(still): not identified"
    assert model.summary().facts["left out of membership"] == left_out
    assert model.num_parameters == 6
    with pytest.raises(InputError, match="membership: 'double' is a linear combination of 'income' for everyone"):
        LatentClassMNL(classes=2, membership="income + double").fit(data)


def test_shares_are_constant_without_individual_columns() -> None:
    data = read(trips(200))
    model = LatentClassMNL(classes=2).fit(data)
    assert list(model.coefficients)[4:] == ["membership 2: constant"]
    shares = model.membership(data)
    np.testing.assert_array_equal(shares, np.tile(shares[0], (200, 1)))
    assert model.summary().facts["class 1"].endswith("of the choices")


def test_unseen_categories_and_missing_values_have_probabilities() -> None:
    table = trips(200, income=1.0)
    table["income"] = np.where(table["trip"] % 7 == 0, np.nan, table["income"])
    data = read(table, ("income", "home"), missing="indicator")
    model = LatentClassMNL(classes=2).fit(data)
    assert any(name.endswith("[missing]") for name in model.coefficients)
    unseen = read({**table, "home": np.full(800, "sea")}, ("income", "home"), missing="indicator")
    assert np.isfinite(model.predict_log_proba(unseen)).all()
    whole = LatentClassMNL(classes=2).fit(read(trips(200), ("income", "home")))
    with pytest.raises(SchemaError, match="column 'income' has 29 missing values, but had none in the training data"):
        whole.predict_proba(data)


# -- weights, clusters, saved form ---------------------------------------------------------------------------------


def test_weights_count_like_copies() -> None:
    """A set of weight 3 counts as three sets. Random starts differ but lead to the same maximum."""
    table = trips(200)
    row = np.concatenate([np.arange(800)[table["weight"] > k] for k in range(3)])
    copies = {name: values[row] for name, values in table.items()} | {"trip": np.repeat(np.arange(len(row) // 4), 4)}
    one = LatentClassMNL(classes=2, prior=0).fit(read(table, weight="weight"))
    other = LatentClassMNL(classes=2, prior=0).fit(read(copies))
    assert one.estimates_.log_likelihood == pytest.approx(other.estimates_.log_likelihood, rel=1e-8)
    # The maximum is found to 1e-12 of the log-likelihood.
    np.testing.assert_allclose(one.estimates_.values, other.estimates_.values, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(one.covariance("classical"), other.covariance("classical"), rtol=1e-3, atol=1e-6)


def test_three_kinds_of_errors_are_available(model: LatentClassMNL) -> None:
    kinds = [model.standard_errors(kind)["class 1: cost"] for kind in ("classical", "robust", "clustered")]
    assert len(set(kinds)) == 3
    assert all(0.01 < error < 1 for error in kinds)
    assert model.summary("clustered").facts["standard errors"] == "clustered, 200 clusters by person"


def test_a_saved_model_is_loaded_unchanged(model: LatentClassMNL, data: ChoiceData, tmp_path: Path) -> None:
    back = load(model.save(tmp_path / "model"))
    assert isinstance(back, LatentClassMNL)
    np.testing.assert_array_equal(back.posterior(data), model.posterior(data))
    assert str(back.summary()) == str(model.summary())


def test_an_altered_file_is_refused(model: LatentClassMNL, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    (tmp_path / "model" / "classes.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"classes.json was truncated or altered"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "change", [{"classes": 3}, {"classes": "many"}, {"profiles": []}, {"profiles": [{}, {}]}, {"who": {}}]
)
def test_inconsistent_entries_are_refused(change: dict[str, Any], model: LatentClassMNL) -> None:
    files = state_files(model)
    files["classes.json"] = json.dumps(json.loads(files["classes.json"]) | change).encode()
    with pytest.raises(
        (ArtifactError, ValueError, KeyError, TypeError)
    ):  # load turns all of them into an ArtifactError
        model._restore(files, model.record_, model.table_)


# -- persons with several choice sets ------------------------------------------------------------------------------


def panel(persons: int, seed: int = 0, *, income: float = 0.0, sets: int = 6) -> dict[str, Any]:
    """Return persons of the two classes with several sets each. The length of the trip varies within a person."""
    rng = np.random.default_rng(seed)
    x, individual = rng.normal(size=(persons, sets, 4, 2)), rng.normal(size=persons)
    second = rng.random(persons) < 1 / (1 + np.exp(-(np.log(SHARES[1] / SHARES[0]) + income * individual)))
    b = np.where(second[:, None], [[-0.3, -2.5]], [[-2.0, -0.5]])
    took = ((x * b[:, None, None]).sum(3) + rng.gumbel(size=(persons, sets, 4))).argmax(2)
    n = persons * sets
    return {
        "trip": np.repeat(np.arange(n), 4),
        "took": (took[..., None] == np.arange(4)).ravel(),
        "cost": x[..., 0].ravel(),
        "time": x[..., 1].ravel(),
        "person": np.repeat(np.arange(persons), 4 * sets),
        "income": np.repeat(individual, 4 * sets),
        "km": np.repeat(rng.normal(size=n), 4),
        "second": np.repeat(second, 4 * sets),
    }


def read_panel(table: dict[str, Any], **roles: Any) -> ChoiceData:
    return read(table, ("income", "km"), **{"keep": [], "person": "person", **roles})


@pytest.fixture(scope="module")
def panel_model() -> tuple[LatentClassMNL, ChoiceData]:
    data = read_panel(panel(400, income=1.5))
    return LatentClassMNL(classes=2, prior=0).fit(data), data


def test_two_classes_of_a_simulated_panel_are_recovered(panel_model: tuple[LatentClassMNL, ChoiceData]) -> None:
    """400 persons made 2,400 choices. Coefficients are more precise than those of independent sets."""
    model, data = panel_model
    truth = TRUTH | {"membership 2: constant": np.log(SHARES[1] / SHARES[0])}
    errors = model.standard_errors()
    for name, value in truth.items():
        assert abs(model.coefficients[name] - value) < 3 * errors[name]
    alone = LatentClassMNL(classes=2, by="set", prior=0).fit(data)
    for name in TRUTH:
        assert errors[name] < alone.standard_errors()[name]
    assert model.estimates_.log_likelihood > alone.estimates_.log_likelihood + 100
    assert model.summary().facts["persons"] == "400, each in the same class in all choice sets"
    assert "persons" not in alone.summary().facts


def test_the_likelihood_of_a_panel_is_a_product_over_persons(panel_model: tuple[LatentClassMNL, ChoiceData]) -> None:
    """Computed set by set: log sum_c pi_c prod_t P_c(chosen), summed over persons."""
    model, data = panel_model
    b, g = model._state.split()
    x = np.column_stack([data.features[name].plain() for name in ("cost", "time")]).astype(float).reshape(400, 6, 4, 2)
    v = np.exp(x @ b.T)  # (persons, sets, alternatives, classes)
    p = np.take_along_axis(v / v.sum(2, keepdims=True), data.require_chosen("test").reshape(400, 6, 1, 1), 2)[:, :, 0]
    odds = np.exp(model.membership_design_.matrix(data)[::6] @ g.T)
    joint = odds / odds.sum(1, keepdims=True) * p.prod(1)
    assert model.estimates_.log_likelihood == pytest.approx(np.log(joint.sum(1)).sum(), rel=1e-10)
    np.testing.assert_allclose(model.posterior(data), np.repeat(joint / joint.sum(1, keepdims=True), 6, axis=0))


def test_every_seed_leads_to_the_best_of_100_starts() -> None:
    """One start in six ends at the best maximum with three classes, so five starts often miss it, by 2.6."""
    data = read_panel(panel(150, income=1.5))
    best = LatentClassMNL(classes=3, starts=100).fit(data)
    for seed in range(3):
        model = LatentClassMNL(classes=3).fit(data, seed=seed)
        assert model.estimates_.log_likelihood == pytest.approx(best.estimates_.log_likelihood, abs=0.01)
    # The summary shows that the maximum is not the only one.
    starts = best.record_.starts
    assert 5 < starts.at_maximum < 50
    assert starts.next_best < best.estimates_.log_likelihood - 1
    assert best.summary().facts["starts"] == (
        f"{starts.at_maximum} of 100 starts ended at this maximum; next best {starts.next_best:.3f}"
    )


@pytest.mark.parametrize("seed", [0, 5])
def test_every_seed_selects_the_classes_of_the_best_maximum(seed: int) -> None:
    """With 5 starts per number, three classes end in a local maximum with these seeds, so that two are selected."""
    data = read_panel(panel(150, income=1.5))
    few, model = (LatentClassMNL(max_classes=3, prior=0.001, starts=n).fit(data, seed=seed) for n in (5, "auto"))
    assert (few.n_classes_, model.n_classes_) == (2, 3)
    assert model.record_.starts.starts > 20
    assert model.estimates_.log_likelihood == pytest.approx(-724.19576, abs=1e-4)  # of 100 starts with three classes


def test_all_starts_converge_if_coefficients_are_at_bounds() -> None:
    """This panel has one maximum with two classes: with bounds between the coefficients of the classes, too."""
    data = read_panel(panel(150, income=1.5))
    for bounds in ({"cost": (-1.0, None)}, {"cost": (-1.0, None), "time": (-1.0, None)}, {"cost": (0.0, None)}):
        starts = LatentClassMNL(classes=2, bounds=bounds).fit(data).record_.starts
        assert (starts.starts, starts.at_maximum, starts.next_best) == (20, 20, None)


def test_more_starts_are_run_while_they_find_different_maxima() -> None:
    """20 starts at one maximum suffice: expected are 1 (20 - 1) / (20 - 1 - 2) = 1.1 maxima, of which 1 is known.

    With three maxima after 20 starts, 3 (20 - 1) / (20 - 3 - 2) = 3.8 are expected, so the search continues.
    """
    one = LatentClassMNL(classes=2).fit(read_panel(panel(100))).record_.starts
    assert (one.starts, one.at_maximum, one.next_best) == (20, 20, None)
    assert LatentClassMNL(classes=3).fit(read_panel(panel(150, income=1.5))).record_.starts.starts > 20


def test_expensive_steps_have_fewer_starts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(latent_class_likelihood, "_MAX_WORK", 100)
    with caplog.at_level(logging.INFO, logger="pcmcnet"):
        model = LatentClassMNL(classes=2).fit(read_panel(panel(100)))
    assert model.record_.starts.starts == 5
    assert "5 of 5 starts ended at this maximum" in caplog.text


def test_a_complete_start_is_not_repeated(panel_model: tuple[LatentClassMNL, ChoiceData]) -> None:
    model, data = panel_model
    again = LatentClassMNL(classes=2, prior=0, start=model.coefficients).fit(data)
    assert again.record_.starts.starts == 1
    assert again.estimates_.log_likelihood == pytest.approx(model.estimates_.log_likelihood, abs=1e-6)


def test_errors_of_a_panel_are_over_persons(panel_model: tuple[LatentClassMNL, ChoiceData]) -> None:
    model, data = panel_model
    sets = LogitLikelihood.from_matrix(model.design_.matrix(data), data.offsets, data.require_chosen("test"))
    number = np.arange(2400) // 6
    mixture = LatentClassLikelihood(sets, number, model.membership_design_.matrix(data)[::6], np.ones(400), 2, 0.0)
    x = model.estimates_.values
    bend, scores = numerical_hessian(mixture.objective, x, mixture.all_weights), mixture.objective(x)[1][:-1]
    np.testing.assert_allclose(model.covariance("classical"), np.linalg.inv(-bend), rtol=1e-4, atol=1e-8)
    robust = np.linalg.inv(bend) @ (scores.T @ scores) @ np.linalg.inv(bend)
    np.testing.assert_allclose(model.covariance("robust"), robust, rtol=1e-3, atol=1e-8)  # central differences
    clustered = LatentClassMNL(classes=2, prior=0, cluster="person").fit(data)
    np.testing.assert_allclose(clustered.covariance("clustered"), robust * 400 / 399, rtol=1e-3, atol=1e-8)


def test_the_electricity_panel_has_the_known_likelihoods() -> None:
    """Two classes of 361 customers: -4526.8 by person and -4940.9 by choice set; `loc` of class 2 is unclear."""
    try:
        table, schema = packaged.long_form("electricity")
    except DatasetError as error:
        pytest.skip(str(error))
    data = ChoiceData.from_schema(table, schema)
    model = LatentClassMNL(classes=2).fit(data)
    assert model.num_parameters == 13
    assert model.estimates_.log_likelihood == pytest.approx(-4526.83, abs=0.01)
    alone = LatentClassMNL(classes=2, by="set", prior=0).fit(data)
    assert alone.estimates_.log_likelihood == pytest.approx(-4940.90, abs=0.01)
    assert alone.coefficients["class 2: loc"] == pytest.approx(5.43, abs=0.01)
    assert alone.standard_errors("classical")["class 2: loc"] == pytest.approx(8.43, abs=0.01)
    weak = LatentClassMNL(classes=2, by="set").fit(data)
    moved = abs(weak.coefficients["class 2: loc"] - alone.coefficients["class 2: loc"])
    assert moved < 0.05 * alone.standard_errors("classical")["class 2: loc"]
    assert weak.standard_errors("classical")["class 2: loc"] > 5  # it would be 1.26 if the prior counted as information


@settings(max_examples=8)
@given(seed=st.integers(0, 2**16), prior=st.sampled_from([0.0, 0.1]), classes=st.integers(2, 3))
def test_em_never_lowers_the_likelihood_of_a_panel(seed: int, prior: float, classes: int) -> None:
    data = read_panel(panel(25, seed, sets=3))
    try:
        model = LatentClassMNL(classes=classes, starts=2, prior=prior).fit(data, seed=seed)
    except TrainingError:  # without a prior there may be no maximum
        assert prior == 0
        return
    assert (np.diff(model.record_.em) >= 0).all()


def test_columns_that_vary_within_a_person_are_omitted_or_refused(
    panel_model: tuple[LatentClassMNL, ChoiceData],
) -> None:
    model, data = panel_model
    assert model.membership_design_.names == ("constant", "standardise(income)")
    assert model.summary().facts["left out of membership"] == "km: varies within a person"
    with pytest.raises(InputError, match="membership: column 'km' varies within a person, first in choice set 1,"):
        LatentClassMNL(membership="income + km").fit(data)
    alone = LatentClassMNL(classes=2, membership="income + km", by="set").fit(data)
    assert "membership 2: km" in alone.coefficients


def test_earlier_choices_improve_later_predictions(
    panel_model: tuple[LatentClassMNL, ChoiceData], tmp_path: Path
) -> None:
    model, data = panel_model
    later = np.arange(2400) % 6 == 5
    history, future = data.subset(~later), data.subset(later)
    informed, plain = model.predict_proba_given(future, history), model.predict_proba(future)
    picked = future.offsets[:-1] + future.require_chosen("test")
    assert np.log(informed[picked]).mean() > np.log(plain[picked]).mean() + 0.05
    b, shares = model._state.split()[0], model.posterior(history)[::5]
    x = np.column_stack([future.features[name].plain() for name in ("cost", "time")]).astype(float).reshape(400, 4, 2)
    v = np.exp(x @ b.T)
    np.testing.assert_allclose(informed.reshape(400, 4), ((v / v.sum(1, keepdims=True)) * shares[:, None]).sum(2))
    unknown = model.predict_proba_given(future, history.subset(np.arange(5)))  # of the first person only
    np.testing.assert_allclose(unknown[:4], informed[:4], rtol=1e-12)
    np.testing.assert_allclose(unknown[4:], plain[4:], rtol=1e-12)
    table = {k: v for k, v in panel(400, income=1.5).items() if k != "took"}
    back = load(model.save(tmp_path / "model"))
    assert isinstance(back, LatentClassMNL)
    reloaded = back.predict_proba_given(table, history).reshape(2400, 4)[later]
    np.testing.assert_allclose(reloaded, informed.reshape(400, 4), rtol=1e-12)
    assert str(back.summary()) == str(model.summary())


def test_earlier_choices_need_persons(panel_model: tuple[LatentClassMNL, ChoiceData], model: LatentClassMNL) -> None:
    fitted, data = panel_model
    without_persons = read_panel(panel(400, income=1.5), person=None)
    with pytest.raises(InputError, match="the table has no person column: read it with person='person'"):
        fitted.predict_proba_given(without_persons, data)
    with pytest.raises(InputError, match="earlier choices can be used only if"):
        model.predict_proba_given(data, data)


def test_the_sample_of_the_first_steps_has_whole_persons(
    panel_model: tuple[LatentClassMNL, ChoiceData], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = panel_model
    seen, search = [], latent_class_mnl.ClassSearch

    def note(**parts: Any) -> Any:
        seen.append(np.bincount(parts["few"].persons))
        return search(**parts)

    monkeypatch.setattr(latent_class_mnl, "_SAMPLE", 600)
    monkeypatch.setattr(latent_class_mnl, "ClassSearch", note)
    result = LatentClassMNL(classes=2, prior=1e-6).fit(data)
    assert seen[0].tolist() == [6] * 100
    assert result.estimates_.log_likelihood == pytest.approx(model.estimates_.log_likelihood, abs=1e-3)


# -- fixed, bounded and starting values ----------------------------------------------------------------------------


def test_a_coefficient_can_be_fixed_in_one_or_all_classes(data: ChoiceData) -> None:
    options: dict[str, Any] = {"classes": 2, "membership": "income"}
    one = LatentClassMNL(**options, fixed={"class 2: cost": -0.3}).fit(data)
    assert one.coefficients["class 2: cost"] == -0.3
    assert one.estimates_.fixed == ("class 2: cost",)
    assert one.num_parameters == 5
    both = LatentClassMNL(**options, fixed={"cost": -1.0}).fit(data)
    assert both.coefficients["class 1: cost"] == both.coefficients["class 2: cost"] == -1.0
    free = LatentClassMNL(**options).fit(data)
    assert free.estimates_.log_likelihood > one.estimates_.log_likelihood > both.estimates_.log_likelihood
    again = LatentClassMNL(**options, fixed=free.coefficients).fit(data)
    assert again.num_parameters == 0
    np.testing.assert_array_equal(again.estimates_.values, free.estimates_.values)


def test_a_named_class_keeps_its_number(data: ChoiceData) -> None:
    """The classes can be named in either order."""
    options: dict[str, Any] = {"classes": 2, "membership": "1", "prior": 0}
    first = LatentClassMNL(**options, fixed={"class 1: cost": -2.0}).fit(data)
    second = LatentClassMNL(**options, fixed={"class 2: cost": -2.0}).fit(data)
    assert first.estimates_.log_likelihood == pytest.approx(second.estimates_.log_likelihood, abs=1e-6)
    assert first.coefficients["class 2: time"] == pytest.approx(second.coefficients["class 1: time"], abs=1e-4)
    shares = [m.membership(data)[0] for m in (first, second)]
    np.testing.assert_allclose(shares[0], shares[1][::-1], atol=1e-4)


def test_other_parameters_are_at_their_maximum_given_a_bound(data: ChoiceData) -> None:
    options: dict[str, Any] = {"classes": 2, "membership": "1", "prior": 0}
    model = LatentClassMNL(**options, bounds={"cost": (-1.0, None)}).fit(data)
    (name,) = model.estimates_.at_bound
    assert name in ("class 1: cost", "class 2: cost")
    assert np.isnan(model.standard_errors()[name])
    assert (np.diff(model.record_.em) >= 0).all()
    start = {other: value for other, value in model.coefficients.items() if other != name}
    fixed = LatentClassMNL(**options, fixed={name: -1.0}, start=start).fit(data)  # other starts leave the bounds
    assert model.estimates_.log_likelihood == pytest.approx(fixed.estimates_.log_likelihood, abs=1e-6)


def test_the_search_begins_at_the_given_start(data: ChoiceData) -> None:
    options: dict[str, Any] = {"classes": 2, "membership": "1", "starts": 1}
    free = LatentClassMNL(**options).fit(data)
    begun = LatentClassMNL(**options, start=free.coefficients).fit(data)
    assert begun.record_.em[0] == pytest.approx(free.estimates_.log_likelihood, abs=0.05)  # minus the weak prior
    swapped = {name.replace("class 1", "class 9"): value for name, value in free.coefficients.items()}
    swapped = {name.replace("class 2", "class 1").replace("class 9", "class 2"): v for name, v in swapped.items()}
    swapped["membership 2: constant"] *= -1
    other = LatentClassMNL(**options, start=swapped).fit(data)
    assert other.coefficients["class 1: time"] == pytest.approx(free.coefficients["class 2: time"], abs=1e-4)


def test_a_collinear_column_may_be_fixed(data: ChoiceData) -> None:
    collinear = replace(data, features={**data.features, "twin": data.features["cost"]})
    with pytest.raises(InputError, match="singular design"):
        LatentClassMNL(classes=2).fit(collinear)
    with pytest.raises(InputError, match="singular design"):
        LatentClassMNL(classes=2, fixed={"class 1: twin": 0.5}).fit(collinear)
    model = LatentClassMNL(classes=2, membership="1", fixed={"twin": 0.5}).fit(collinear)
    plain = LatentClassMNL(classes=2, membership="1", prior=0).fit(data)
    for c in (1, 2):
        expected = plain.coefficients[f"class {c}: cost"] - 0.5
        assert model.coefficients[f"class {c}: cost"] == pytest.approx(expected, abs=0.01)  # the prior is weak


def test_an_offset_has_a_coefficient_of_1_in_every_class(data: ChoiceData) -> None:
    model = LatentClassMNL(classes=2, membership="1", offset="cost").fit(data)
    fixed = LatentClassMNL(classes=2, membership="1", fixed={"cost": 1.0}).fit(data)
    assert model.coefficients == fixed.coefficients
    assert model.coefficients["class 2: cost"] == 1.0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"classes": 2, "fixed": {"class 3: cost": 0.0}}, "fixed: 'class 3: cost' is not a coefficient"),
        ({"classes": 2, "start": {"class 1: csot": 0.0}}, r"Did you mean 'class 1: cost'\?"),
        ({"fixed": {"class 1: cost": 0.0}}, "set the number of classes, as in classes=2"),
        ({"bounds": {"csot": (None, 0)}}, "'csot' is not a coefficient of all classes.* mean 'cost'"),
    ],
)
def test_names_of_coefficients_are_checked(data: ChoiceData, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        LatentClassMNL(**options).fit(data)


def test_the_constants_only_likelihood_is_shown() -> None:
    table = trips(200)
    data = read(table | {"mode": np.tile(["a", "b", "c", "d"], 200)}, alternative="mode")
    alone, plain = LatentClassMNL(classes=2).fit(data), MNL().fit(data)
    assert alone.estimates_.constants_log_likelihood == plain.estimates_.constants_log_likelihood
    assert "constants-only log-likelihood" in alone.summary().facts


# -- difficult data and invalid input ------------------------------------------------------------------------------


@pytest.mark.parametrize("sets", [2, pytest.param(5, marks=pytest.mark.slow), 12])
@pytest.mark.parametrize("prior", [0.0, 0.1])
@pytest.mark.parametrize("classes", [1, 4, "auto"])
def test_fewer_sets_than_parameters_give_finite_results(sets: int, prior: float, classes: Any) -> None:
    data = read(trips(sets), ("income", "home"))
    model = LatentClassMNL(classes=classes, prior=prior, min_chosen=0, em_steps=20).fit(data)
    assert np.isfinite(model.predict_log_proba(data)).all()
    assert np.isfinite(model.estimates_.values).all()
    assert not np.isnan(list(model.standard_errors().values())).any()
    assert "nan" not in str(model.summary())


@pytest.mark.parametrize("sample", [200, 4000])
@pytest.mark.parametrize("step", ["em_steps", "split_largest_class"])
def test_failed_starts_are_skipped_if_another_succeeds(
    data: ChoiceData, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, step: str, sample: int
) -> None:
    monkeypatch.setattr(latent_class_mnl, "_SAMPLE", sample)
    take, calls, failing = getattr(latent_class_likelihood, step), itertools.count(), {0, 2}

    def fail_at_times(*arguments: Any) -> Any:
        if next(calls) in failing:
            raise TrainingError("it is not finite.")
        return take(*arguments)

    monkeypatch.setattr(latent_class_likelihood, step, fail_at_times)
    with caplog.at_level(logging.INFO, logger="pcmcnet"):
        model = LatentClassMNL(classes=2, starts=4).fit(data)
    assert caplog.text.count("2 classes: a start failed: it is not finite.") == 2
    assert np.isfinite(model.estimates_.values).all()
    failing |= set(range(1000))
    with pytest.raises(TrainingError, match="the log-likelihood is not finite from any start with 2 classes"):
        LatentClassMNL(classes=2, starts=4).fit(data)


def test_numbers_of_classes_that_do_not_converge_are_skipped(
    data: ChoiceData, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    climb = ClassSearch.of

    def fail_for_two(self: ClassSearch, classes: int, *more: Any) -> Any:
        if classes == 2:
            raise TrainingError("it has not settled.")
        return climb(self, classes, *more)

    monkeypatch.setattr(ClassSearch, "of", fail_for_two)
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        model = LatentClassMNL(max_classes=2).fit(data)
    assert model.n_classes_ == 1
    assert "models with 2 classes are skipped: it has not settled." in caplog.text
    with pytest.raises(TrainingError, match="it has not settled"):
        LatentClassMNL(classes=2).fit(data)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"classes": 0}, "classes"),
        ({"classes": "some"}, "classes"),
        ({"max_classes": 0}, "max_classes"),
        ({"starts": 0}, "starts"),
        ({"em_steps": 1.5}, "em_steps"),
        ({"prior": -1}, "prior"),
        ({"prior": "none"}, "prior"),
        ({"by": "household"}, "by"),
        ({"membership": ""}, "membership must be a formula"),
        ({"membership": "income | 1"}, "membership must be a formula"),
    ],
)
def test_options_are_checked(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        LatentClassMNL(**options)


def test_a_missing_column_is_named(data: ChoiceData) -> None:
    with pytest.raises(SchemaError, match="membership: 'incom' is not an individual-level column"):
        LatentClassMNL(membership="incom").fit(data)


def test_an_unfitted_model_has_no_shares(data: ChoiceData) -> None:
    for ask in (LatentClassMNL().membership, LatentClassMNL().posterior):
        with pytest.raises(NotFittedError):
            ask(data)


@pytest.mark.parametrize("em_steps", [1, 3, 30])
def test_em_steps_limits_the_number_of_steps(data: ChoiceData, em_steps: int) -> None:
    model = LatentClassMNL(classes=2, starts=2, em_steps=em_steps).fit(data)
    assert 1 <= len(model.record_.em) - 1 <= em_steps


def test_the_constants_only_model_is_that_of_the_multinomial_logit() -> None:
    data = read(logit_choices(100, {"x": 1.0}, constants=[0.0, 1.0, -1.0, 0.5]), alternative="mode", features=["x"])
    model = LatentClassMNL(classes=2, starts=2).fit(data)
    expected = MNL().fit(data).estimates_.constants_log_likelihood
    assert model.estimates_.constants_log_likelihood == pytest.approx(expected, rel=1e-12)
