import json
import logging

import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import MNL, BootstrapErrors, ChoiceData, LatentClassMNL, Uniform, bootstrap_errors, calibrate_constants
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation.bootstrap_errors import relabelled

TABLE = logit_choices(400, {"x": 1.0, "y": 0.5})


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(TABLE, features=["x", "y"], keep=["person"])


def test_a_draw_weighs_sets_by_how_often_they_were_drawn(data: ChoiceData) -> None:
    """The second draw of seed 7, made by hand: rows repeated as often as their sets were drawn."""
    found = bootstrap_errors(MNL().fit(data), data, draws=2, seed=7, progress=False)
    picked = np.random.default_rng(np.random.SeedSequence(7).spawn(2)[1]).integers(400, size=400)
    rows = [np.flatnonzero(TABLE["trip"] == trip) for trip in picked]
    drawn = {name: TABLE[name][np.concatenate(rows)] for name in ("took", "x", "y")}
    drawn["trip"] = np.repeat(np.arange(400), list(map(len, rows)))
    again = MNL().fit(read(drawn, features=["x", "y"]))
    assert found.samples[1] == pytest.approx(again.estimates_.values, rel=1e-8)  # ends of two searches


def test_errors_come_near_to_those_of_the_likelihood_where_the_model_holds(data: ChoiceData) -> None:
    """A standard deviation of 200 draws is known to 1 / sqrt(400) = 5%, so 20% is four times that."""
    model = MNL().fit(data)
    found = bootstrap_errors(model, data, progress=False)
    for name, error in model.standard_errors("classical").items():
        assert found.standard_errors[name] == pytest.approx(error, rel=0.2)
        low, high = found.intervals[name]
        assert low < model.coefficients[name] < high
    assert np.sqrt(np.diag(found.covariance)) == pytest.approx(list(found.standard_errors.values()), rel=1e-12)
    assert found.failed == 0


def test_persons_are_drawn_whole_where_they_are_declared() -> None:
    """Each choice four times, as if by one person: by person, errors are twice those by set."""
    table = logit_choices(150, {"x": 1.0}, 1)
    times = {name: np.concatenate([column] * 4) for name, column in table.items()}
    times["who"] = times["trip"]
    times["trip"] = np.concatenate([table["trip"] + 1000 * k for k in range(4)])
    data = read(times, features=["x"], person="who")
    model = MNL().fit(data)
    by_person = bootstrap_errors(model, data, draws=200, progress=False)
    by_set = bootstrap_errors(model, data, draws=200, by="trip", progress=False)
    assert (by_person.unit, by_person.n_units) == ("persons", 150)
    assert (by_set.unit, by_set.n_units) == ("choice sets", 600)
    ratio = by_person.standard_errors["x"] / by_set.standard_errors["x"]
    assert ratio == pytest.approx(2.0, rel=0.25)  # of two standard deviations, each known to 5%
    assert by_person.standard_errors["x"] == pytest.approx(model.standard_errors("clustered")["x"], rel=0.2)


def test_the_seed_decides_and_more_draws_begin_with_the_same(data: ChoiceData) -> None:
    model = MNL(formula="x").fit(data)
    few, more = (bootstrap_errors(model, data, draws=n, seed=3, progress=False) for n in (2, 4))
    assert (few.samples == more.samples[:2]).all()


def test_it_prints_and_gives_frames_and_json(data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pandas")
    model = MNL(formula="x").fit(data)
    with caplog.at_level(logging.INFO, logger="pcmcnet"):
        found = bootstrap_errors(model, data, draws=3, by="person")
    assert "draw 3: done" in caplog.text
    assert str(found).splitlines()[:3] == ["Bootstrap errors", "=" * 16, "draws  3 of 100 groups by person"]
    assert found.to_frame().loc["x", "std_error"] == found.standard_errors["x"]
    assert json.loads(json.dumps(found.to_dict()))["intervals"]["x"] == list(found.intervals["x"])
    assert "std err" in found.to_latex()


def test_levels_stay_those_of_the_model_and_draws_without_estimates_are_counted() -> None:
    """A level chosen three times is missing from one draw in twenty, or so: then it has no finite estimate."""
    table = logit_choices(60, {"x": 1.0}, 2, sizes=(2, 2))
    rare = np.isin(table["trip"], [0, 1, 2]) & (table["took"] == 1) | (table["trip"] == 3) & (table["took"] == 0)
    table["kind"] = np.where(rare, "rare", "usual")
    data = read(table, features=["x", "kind"])
    model = MNL(min_chosen=1).fit(data)
    found = bootstrap_errors(model, data, draws=40, progress=False)
    assert 0 < found.failed < 30
    assert len(found.samples) == 40 - found.failed
    assert f"{found.failed}, left out" in str(found)


def test_a_latent_class_logit_keeps_its_number_of_classes(data: ChoiceData) -> None:
    model = LatentClassMNL(formula="x", classes="auto", max_classes=1).fit(data)
    found = bootstrap_errors(model, data, draws=2, progress=False)
    assert isinstance(found, BootstrapErrors)
    assert found.names == model.estimates_.names


def test_what_cannot_be_drawn_is_refused(data: ChoiceData) -> None:
    model = MNL().fit(data)
    with pytest.raises(InputError, match="bootstrap errors are those of the coefficients of a logit; got Uniform"):
        bootstrap_errors(Uniform().fit(data), data)
    with pytest.raises(InputError, match="expected the choice sets that the model was fitted to"):
        bootstrap_errors(model, data.subset(np.arange(50)))
    with pytest.raises(ConfigError, match="draws must be a whole number of at least 2"):
        bootstrap_errors(model, data, draws=1)
    tiny = read(logit_choices(3, {"x": 5.0}, 5), features=["x"])
    with pytest.raises(InputError, match="draws lead to no finite estimates of all coefficients"):
        bootstrap_errors(MNL().fit(tiny), tiny, draws=10, progress=False)


def test_classes_in_another_order_are_numbered_as_in_the_model(data: ChoiceData) -> None:
    """Classes 1, 2, 3 as 3, 1, 2: shares against class 1 become those against the class that has its coefficients."""
    model = LatentClassMNL(formula="x + y", classes=3, membership="1", starts=2, prior=0.1).fit(data)
    b, g = model.estimates_.values[:6].reshape(3, 2), np.array([0.0, *model.estimates_.values[6:]])
    turned = np.concatenate([b[[2, 0, 1]].ravel(), g[[0, 1]] - g[2]])
    assert relabelled(model, turned) == pytest.approx(model.estimates_.values, rel=1e-10)
    assert relabelled(model, model.estimates_.values) == pytest.approx(model.estimates_.values, rel=1e-12)


def test_constants_moved_to_known_shares_are_refused() -> None:
    labelled = read(TABLE, alternative="mode", features=["x"])
    shares = {label: 1 / len(set(TABLE["mode"])) for label in sorted(set(TABLE["mode"]))}
    moved = calibrate_constants(MNL(formula="x").fit(labelled), labelled, shares)
    with pytest.raises(InputError, match="the bootstrap needs estimates, and the constants of this MNL were moved"):
        bootstrap_errors(moved, labelled, draws=2, progress=False)


def test_a_summary_says_where_bootstrap_errors_are_shown(data: ChoiceData) -> None:
    model = MNL().fit(data)
    boot = bootstrap_errors(model, data, draws=2, progress=False)
    for ask in (model.summary, model.estimates, model.standard_errors):
        with pytest.raises(InputError, match=r"got an object of type BootstrapErrors\. .* by pcmcnet\.table\(model"):
            ask(boot)  # type: ignore[operator]
