"""The hierarchical Bayes logit: recovery, known people, options, checkpoints, and invalid input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from choice_tables import PANEL, logit_choices, normal_tastes, panel, read
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError
from pcmcnet.models import HierarchicalMNL, MixedMNL
from pcmcnet.models.logit import person_posterior
from pcmcnet.models.logit.hierarchical_sampler import (
    DrawStore,
    HierarchicalSampler,
    PopulationPrior,
    SamplerSettings,
    _root_of_inverse,
)
from pcmcnet.models.logit.person_posterior import PersonChoices

QUICK: dict[str, Any] = {"chains": 2, "burn_in": 100, "draws": 200, "thin": 2}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(panel(300, normal_tastes), **PANEL)


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> HierarchicalMNL:
    return HierarchicalMNL(burn_in=300, draws=1000, thin=3).fit(data, seed=1, progress=False)


# -- population and part-worths ------------------------------------------------------------------------------------


def test_a_panel_is_recovered_and_the_chains_agree(model: HierarchicalMNL) -> None:
    """True means 1 and -0.5, standard deviations 0.8 and 0.5, correlation 0: within three posterior deviations."""
    chains = model.chains()
    truth = {"x": 1.0, "y": -0.5, "sd[x]": 0.8, "sd[y]": 0.5, "corr[x, y]": 0.0}
    assert [row.parameter for row in chains.rows] == list(truth)
    for name, value in truth.items():
        assert abs(chains[name].mean - value) < 3 * chains[name].deviation
        assert chains[name].low < chains[name].mean < chains[name].high
    assert chains.worst.rhat < 1.05
    assert chains.smallest_size > 100
    assert model.num_parameters == 5
    assert model.record_.persons == 300


def test_the_posterior_agrees_with_maximum_likelihood(model: HierarchicalMNL, data: ChoiceData) -> None:
    mixed = MixedMNL(correlated=True, draws=200, starts=1).fit(data, progress=False)
    for name in ("x", "y"):
        row = model.chains()[name]
        assert abs(row.mean - mixed.coefficients[name]) < row.deviation
        spread = model.chains()[f"sd[{name}]"]
        assert abs(spread.mean - mixed.tastes()[name].deviation) < spread.deviation
    np.testing.assert_allclose(model.predict_proba(data), mixed.predict_proba(data), atol=0.03)


def test_part_worths_follow_the_true_coefficients(model: HierarchicalMNL) -> None:
    """Eight choices per person: means correlate with the truth, and 90% intervals cover it in 90% of the cases."""
    truth = normal_tastes(np.random.default_rng(0), 300)
    worths = model.part_worths()
    assert worths.names == ("x", "y")
    assert worths.persons.tolist() == [str(n) for n in range(300)]
    for k in range(2):
        assert np.corrcoef(worths.means[:, k], truth[:, k])[0, 1] > 0.6
    low, high = worths.intervals()
    assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(0.9, abs=0.05)  # 600 cases: 1.2% standard error
    table = worths.to_arrow()
    assert table.column_names[:5] == ["person", "x", "sd[x]", "low[x]", "high[x]"]
    assert table.num_rows == 300


def test_known_people_are_predicted_better_than_new_ones(data: ChoiceData) -> None:
    order = np.arange(len(data)) % 8
    history, later = data.subset(order < 7), data.subset(order == 7)
    model = HierarchicalMNL(**{**QUICK, "draws": 400}).fit(history, progress=False)
    picked = later.offsets[:-1] + later.chosen
    new = -np.log(model.chosen_probabilities(later)).mean()
    own = model.predict_proba_given(later)
    again = model.predict_proba_given(later, history)
    for p in (own, again):
        assert -np.log(later.from_rows(p)[picked]).mean() < new - 0.02
    np.testing.assert_allclose(again, own, atol=0.15)  # both are averages over 400 draws of the same posterior
    assert np.abs(again - own).mean() < 0.02


def test_people_without_history_are_predicted_as_new(data: ChoiceData) -> None:
    first, others = data.subset(np.arange(800)), data.subset(np.arange(800, 1200))
    model = HierarchicalMNL(**QUICK).fit(first, progress=False)
    np.testing.assert_array_equal(model.predict_proba_given(others), model.predict_proba(others))
    history = others.subset(np.arange(8))
    given = others.from_rows(model.predict_proba_given(others, history))
    unknown = others.from_rows(model.predict_proba(others))
    rows = others.offsets[8]
    assert np.abs(given[:rows] - unknown[:rows]).max() > 0.01
    np.testing.assert_array_equal(given[rows:], unknown[rows:])


def test_conditioning_a_mixed_logit_beats_predictions_of_new_people(data: ChoiceData) -> None:
    order = np.arange(len(data)) % 8
    history, later = data.subset(order < 7), data.subset(order == 7)
    mixed = MixedMNL(draws=200, starts=1).fit(history, progress=False)
    p = later.from_rows(mixed.predict_proba_given(later, history))
    np.testing.assert_allclose(np.add.reduceat(p, later.offsets[:-1]), 1, rtol=1e-9)
    known = -np.log(p[later.offsets[:-1] + later.chosen]).mean()
    assert known < -mixed.score(later) - 0.02
    with pytest.raises(InputError, match="by='person'"):
        MixedMNL(draws=20, by="set", starts=1).fit(history, progress=False).predict_proba_given(later, history)


def test_conditional_weights_by_hand() -> None:
    """Two draws, b = 0 and b = log 3, and one choice of the first of two alternatives with x = 1 and 0.

    P = 1/2 and 3/4, so the weights are 2/5 and 3/5, and the next choice has probability 2/5 * 1/2 + 3/5 * 3/4 = 0.65.
    """
    from pcmcnet.models.logit.person_draws import mean_probabilities, posterior_weights

    x, offsets, person = np.array([[1.0], [0.0]]), np.array([0, 2]), np.array([0])
    coefficients = np.array([[[0.0, np.log(3)]]])
    weights = posterior_weights(x, offsets, np.array([0]), coefficients, person)
    np.testing.assert_allclose(weights, [[0.4, 0.6]], rtol=1e-12)
    np.testing.assert_allclose(mean_probabilities(x, offsets, coefficients, person, weights), [0.65, 0.35], rtol=1e-12)


# -- options -------------------------------------------------------------------------------------------------------


def test_a_constrained_sign_holds_for_everyone(data: ChoiceData) -> None:
    model = HierarchicalMNL(signs={"y": "-"}, **QUICK).fit(data, progress=False)
    assert (model.part_worths().draws[:, 1] < 0).all()
    assert model.tastes()["y"].below_0 == 1.0
    assert model.tastes()["y"].mean == pytest.approx(-0.5, abs=0.15)
    assert "-y; parameters of the logarithm of their size" in str(model.summary())


def test_a_declared_sign_is_obeyed() -> None:
    data = read(panel(60, normal_tastes), signs={"x": "+"}, **PANEL)
    model = HierarchicalMNL(**QUICK).fit(data, progress=False)
    assert (model.part_worths().draws[:, 0] > 0).all()


@pytest.mark.parametrize("way", ["compiled", "numpy"])
def test_a_sign_that_contradicts_the_data_has_a_caveat(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coefficients of x are about 1, so a negative one is as close to 0 as the prior allows: exp(b) with b << 0."""
    if way == "numpy":
        monkeypatch.setattr(person_posterior, "compiled_library", lambda: None)
    elif person_posterior.compiled_library() is None:
        pytest.skip("the library is not compiled")
    data = read(panel(40, normal_tastes, sets=5), **PANEL)
    model = HierarchicalMNL(signs={"x": "-"}, burn_in=300, draws=200, thin=2).fit(data, seed=0, progress=False)
    assert "coefficient of x is close to 0" in model.caveats[0]
    assert "the sign '-' may contradict the data. Fit without it" in str(model.summary())
    assert np.isfinite(model.part_worths().draws).all()
    assert np.abs(model.part_worths().means[:, 0]).max() < 0.5
    assert np.isfinite(model.predict_proba(data)).all()
    right = HierarchicalMNL(signs={"x": "+"}, **QUICK).fit(data, progress=False)
    assert not any("contradict" in caveat for caveat in right.caveats)


def test_a_proposal_has_a_floor_on_its_curvature() -> None:
    """[[1, 2], [2, 4 - 4e-9]] has the eigenvalues 2 and -5e-10 in units in which its diagonal is 1.

    The second one is replaced by 1e-6, so the variance along (1, -1) / sqrt(2) is 1e6 in these units.
    """
    root = _root_of_inverse(np.array([[1.0, 2.0], [2.0, 4 - 4e-9]]))
    variance = root @ root.T * np.outer([1, 2], [1, 2])
    np.testing.assert_allclose(np.linalg.eigvalsh(variance), [0.5, 1e6], rtol=1e-6)


def test_covariates_move_the_means() -> None:
    """The mean of x is 0.5 + 1.5 z for z of 0 or 1; units of the column do not matter."""
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], 150)

    def tastes(_: np.random.Generator, persons: int) -> Any:
        return np.column_stack([0.5 + 1.5 * z + 0.3 * rng.standard_normal(persons), np.full(persons, -0.5)])

    table = panel(300, tastes)
    table["old"] = 40.0 + 20.0 * z[table["person"]]
    model = HierarchicalMNL(covariates="old", **{**QUICK, "burn_in": 200, "draws": 400}).fit(
        read(table, individual=["old"], **PANEL), progress=False
    )
    slope = model.chains()["mean[x]:old"]
    assert slope.mean == pytest.approx(1.5 / 20, abs=4 * slope.deviation)
    assert slope.deviation < 0.01
    with pytest.raises(InputError, match="depend on old: pass data"):
        model.tastes()
    means = {}
    for age in (40.0, 60.0):
        people = read({**table, "old": np.full(len(table["old"]), age)}, individual=["old"], **PANEL)
        means[age] = model.tastes(people)
    assert means[60.0]["x"].mean - means[40.0]["x"].mean == pytest.approx(1.5, abs=0.4)


@pytest.mark.parametrize("prior", ["half-t", "inverse-wishart"])
def test_draws_without_data_have_the_prior(prior: Any) -> None:
    """Persons without choices: correlations are uniform with the half-t prior, and E S = (K + 3) / 2 I with the other.

    K = 2. The inverse Wishart with 5 degrees of freedom and scale 5 I has mean 5 / (5 - 2 - 1) I = 2.5 I, and half-t
    standard deviations with scale 5 have the median 0.8165 * 5 = 4.08 (t with 2 degrees of freedom).
    """
    choices = PersonChoices.of(np.zeros((0, 2)), np.zeros(1, np.int64), np.zeros(0, np.int64), 3, np.zeros(2, np.int64))
    settings = SamplerSettings(chains=100, burn_in=100, kept=300, thin=1, person_draws=1)
    sampler = HierarchicalSampler(choices, np.ones((3, 1)), np.ones(3), PopulationPrior(prior, 2), settings)
    rng = np.random.default_rng(0)
    state = sampler.start(rng, np.zeros(2))
    sampler.burn_in(state, rng, lambda sweep: None)
    draws = sampler.draw(state, rng, DrawStore.of(sampler), lambda sweep: None)
    variances = np.diagonal(draws.covariances, axis1=2, axis2=3)
    correlation = draws.covariances[..., 0, 1] / np.sqrt(variances.prod(-1))
    assert np.mean(correlation) == pytest.approx(0, abs=0.05)  # three persons mix slowly: about 1,000 effective draws
    if prior == "half-t":
        assert np.quantile(correlation, [0.25, 0.75]) == pytest.approx([-0.5, 0.5], abs=0.06)
        assert np.median(np.sqrt(variances)) == pytest.approx(4.08, rel=0.15)
    else:
        assert np.median(variances) == pytest.approx(np.median(5 / rng.chisquare(4, 100_000)), rel=0.15)


@pytest.mark.parametrize(("kept", "person_draws"), [(10, 10), (10, 3), (7, 5), (1, 1)])
def test_part_worths_are_kept_at_equal_distances(kept: int, person_draws: int) -> None:
    choices = PersonChoices.of(np.ones((2, 1)), np.array([0, 1, 2]), np.array([0, 1]), 2, np.zeros(1, np.int64))
    settings = SamplerSettings(chains=2, burn_in=10, kept=kept, thin=2, person_draws=person_draws)
    sampler = HierarchicalSampler(choices, np.ones((2, 1)), np.ones(2), PopulationPrior("half-t", 1), settings)
    rng = np.random.default_rng(0)
    state, store = sampler.start(rng, np.zeros(1)), DrawStore.of(sampler)
    store.persons[:] = np.nan
    draws = sampler.draw(state, rng, store, lambda sweep: None)
    assert np.isfinite(draws.persons).all()
    np.testing.assert_array_equal(draws.persons[-1], state.persons.b[:, :, choices.lane].transpose(0, 2, 1))


def test_weights_count_persons() -> None:
    """Persons with weight 0 have no effect; doubling all weights has none either."""
    table = panel(60, normal_tastes)
    table["weight"] = np.where(table["person"] < 40, 1.0, 0.0)
    few = {name: column[table["person"] < 40] for name, column in table.items()}
    double = {**few, "weight": 2 * few["weight"]}
    tables = (read(t, weight="weight", **PANEL) for t in (table, few, double))
    fits = [HierarchicalMNL(**QUICK).fit(data, progress=False) for data in tables]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.part_worths().draws, fits[0].part_worths().draws)


def test_the_reference_has_no_part_worth() -> None:
    table = logit_choices(400, {"x": 1.0}, constants=[0.5, 0.0, -0.5, 0.2], sizes=(3, 4))
    data = read(table, features=["x"], alternative="mode", person="person")
    model = HierarchicalMNL(reference="B", **QUICK).fit(data, progress=False)
    assert "constant[A]" in model.part_worth_names_
    assert "constant[B]" not in model.part_worth_names_


def test_slopes_are_derivatives(model: HierarchicalMNL) -> None:
    """Exact derivatives against central differences of the predictions, in one choice set."""
    table = {"trip": [1, 1], "took": [1, 0], "x": [0.2, -0.4], "y": [0.0, 0.5], "person": [1, 1]}
    exact = model._slopes(read(table, **PANEL), "x")
    assert exact is not None

    def log_p(step: float) -> Any:
        return np.log(model.predict_proba(read({**table, "x": [0.2 + step, -0.4]}, **PANEL)))

    step = 2.0**-8  # exact in float32, which stores the column
    by_differences = (log_p(step) - log_p(-step)) / (2 * step)
    moves = exact.reshape(2, 2)
    assert min(np.abs(moves[:, 0] - by_differences).max(), np.abs(moves[0] - by_differences).max()) < 1e-5  # O(step^2)


# -- checkpoints ---------------------------------------------------------------------------------------------------


def test_an_interrupted_fit_resumes_bit_for_bit(
    data: ChoiceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = data.subset(np.arange(160))
    whole = HierarchicalMNL(**QUICK).fit(few, progress=False)
    monkeypatch.setattr("pcmcnet.models.logit.hierarchical_checkpoint._SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    written = []

    def interrupt(path: Path, content: bytes) -> None:
        path.write_bytes(content)
        written.append(path)
        if len(written) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pcmcnet.models.logit.hierarchical_checkpoint.write_bytes", interrupt)
        with pytest.raises(KeyboardInterrupt):
            HierarchicalMNL(**QUICK).fit(few, progress=False, run_folder=tmp_path / "run")
    with pytest.raises(InputError, match="unfinished run"):
        HierarchicalMNL(**QUICK).fit(few, progress=False, run_folder=tmp_path / "run")
    with pytest.raises(ArtifactError, match="belongs to another run"):
        HierarchicalMNL(**QUICK).fit(few, seed=5, progress=False, run_folder=tmp_path / "run", resume=True)
    resumed = HierarchicalMNL(**QUICK).fit(few, progress=False, run_folder=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.part_worths().draws, whole.part_worths().draws)
    np.testing.assert_array_equal(resumed.chains()["x"].mean, whole.chains()["x"].mean)
    written[0].write_bytes(b"damaged")
    with pytest.raises(ArtifactError, match="is damaged"):
        HierarchicalMNL(**QUICK).fit(few, progress=False, run_folder=tmp_path / "run", resume=True)


# -- invalid and extreme input -------------------------------------------------------------------------------------


def test_one_person_is_refused() -> None:
    with pytest.raises(InputError, match=r"column 'person' has one person.*Use mnl for one person"):
        HierarchicalMNL(**QUICK).fit(read(panel(1, normal_tastes), **PANEL), progress=False)


def test_people_with_one_task_are_fitted_with_a_caveat() -> None:
    model = HierarchicalMNL(**QUICK).fit(read(panel(80, normal_tastes, sets=1), **PANEL), progress=False)
    assert any("have one choice set" in caveat for caveat in model.caveats)
    assert np.isfinite(model.part_worths().means).all()


def test_separated_people_have_finite_part_worths() -> None:
    """Every second person always chooses the largest x: the population keeps their part-worths finite."""
    table = panel(60, normal_tastes)
    separated = table["person"] % 2 == 0
    for trip in np.unique(table["trip"][separated]):
        rows = np.flatnonzero(table["trip"] == trip)
        table["took"][rows] = 0
        table["took"][rows[np.argmax(table["x"][rows])]] = 1
    model = HierarchicalMNL(**QUICK).fit(read(table, **PANEL), progress=False)
    means = model.part_worths().means[:, 0]
    assert np.isfinite(means).all()
    assert np.abs(means).max() < 100
    assert means[::2].min() > np.median(means[1::2])


def test_a_few_persons_have_a_caveat() -> None:
    model = HierarchicalMNL(**QUICK).fit(read(panel(3, normal_tastes), **PANEL), progress=False)
    assert any("few for 2 coefficients" in caveat for caveat in model.caveats)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"signs": {"x": "minus"}}, r"signs\['x'\]"),
        ({"signs": "x"}, "signs must map coefficients to signs"),
        ({"prior": "normal"}, "prior"),
        ({"chains": 1}, "chains"),
        ({"draws": 10}, "draws"),
        ({"burn_in": 0}, "burn_in"),
        ({"formula": 3}, "formula"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HierarchicalMNL(**options)


def test_names_and_columns_are_checked(model: HierarchicalMNL, data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match="signs: 'z' is not a coefficient"):
        HierarchicalMNL(signs={"z": "-"}, **QUICK).fit(data, progress=False)
    with pytest.raises(ConfigError, match="Box-Cox"):
        HierarchicalMNL(formula="boxcox(exp_x)", **QUICK).fit(positive(), progress=False)
    table = panel(20, normal_tastes)
    table["mood"] = (table["trip"] % 3).astype(float)
    with pytest.raises(InputError, match="covariates: column 'mood' varies within a person"):
        HierarchicalMNL(covariates="mood", **QUICK).fit(read(table, individual=["mood"], **PANEL), progress=False)
    with pytest.raises(SchemaError, match="covariates: 'mod' is not an individual-level column"):
        HierarchicalMNL(covariates="mod", **QUICK).fit(read(table, individual=["mood"], **PANEL), progress=False)
    with pytest.raises(InputError, match="no parameter 'z'"):
        model.chains()["z"]


def positive() -> ChoiceData:
    table = panel(20, normal_tastes)
    return read({**table, "exp_x": np.exp(table["x"])}, features=["exp_x"], person="person")


def test_traces_are_plotted(model: HierarchicalMNL) -> None:
    axes = model.plot_traces("sd[x]")
    assert len(axes.lines) == 4
    assert axes.get_ylabel() == "sd[x]"
    with pytest.raises(InputError, match="Did you mean"):
        model.plot_traces("sd[X]")


def test_a_stack_passes_the_history_on(data: ChoiceData) -> None:
    few = data.subset(np.arange(160))
    stack = pn.Stacking([HierarchicalMNL(**QUICK), pn.MNL()], folds=2).fit(few, progress=False)
    assert np.abs(stack.predict_proba_given(few, few) - stack.predict_proba(few)).max() > 1e-3
