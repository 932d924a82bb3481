"""One contract for all registered models.

The table has sets of different sizes (one of them a singleton), numbers and categories, individual columns, labels
that recur, a weight, unavailable rows, and shuffled rows.
"""

import inspect
import json
import pickle
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import pcmcnet
from choice_tables import ROLES, trips
from pcmcnet import MODELS, ChoiceData
from pcmcnet.errors import ConfigError, InputError, NotFittedError
from pcmcnet.insight.axioms import audit
from pcmcnet.models import KINDS, ChoiceModel, load, model_class
from pcmcnet.models.interface.fitted import FittedModel, TrainingTable, record_from_dict, record_to_dict
from quick_models import QUICK

# Options that make a model quick to fit, or that it requires.
OPTIONS: dict[str, dict[str, Any]] = {
    **QUICK,
    "dpn": {**QUICK["dpn"], "epochs": 3, "weight_decay": 0.0},  # after three epochs the order of rows matters
    "ensemble": {"model": "pcmcnet", "n": 2, "options": QUICK["pcmcnet"]},
    "lc-mnl": {"classes": 2, "membership": "income", "starts": 2},
    "cross-nested-mnl": {"nests": {"road": ["car", "bus"], "shared": ["bus", "train"], "light": ["bike"]}},
    "nested-mnl": {"nests": {"car": "road", "bus": "road", "bike": "light", "train": "rail"}},
    "pcmcnet": {"hidden": (8,), "epochs": 3, "batch_size": 8},  # learns its decay and averages six networks
    "rank-by": {"column": "price"},
}
WITHOUT_PARAMETERS = {"uniform", "rank-by"}
LOGITS = {"mnl", "bradley-terry", "uniform"}  # one utility per alternative, independent of the others
BESIDE_OPTIONS = {"encoders", "_inner_extras"}  # modules for columns, of the model or of the one inside it
SAFE_TO_READ = {".json", ".md", ".safetensors", ".skops"}  # reading these formats executes nothing


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table(trips(sizes=(2, 4), single=True, slope=-0.2, mixed=True))


@pytest.fixture(scope="module")
def toy(table: pa.Table) -> ChoiceData:
    data = ChoiceData.from_long(table, **ROLES)
    assert data.sizes.min() == 1
    assert len(set(data.sizes.tolist())) > 2
    assert len(data.hidden_rows) > 3
    return data


@pytest.fixture(scope="module", params=[*MODELS, "ensemble"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str, toy: ChoiceData) -> ChoiceModel:
    """Return a fitted model that tests only read."""
    fitted: ChoiceModel = fresh(name).fit(toy, seed=1, progress=False)
    return fitted


def fresh(name: str) -> ChoiceModel:
    return KINDS[name](**OPTIONS.get(name, {}))


# -- registration --------------------------------------------------------------------------------------------------


def test_a_model_is_registered_and_public(name: str) -> None:
    kind = KINDS[name]
    assert kind.name == name
    if name in MODELS:  # a model around another cannot be named on a command line
        assert model_class(name) is kind
    assert getattr(pcmcnet, kind.__name__) is kind
    assert kind.__name__ in pcmcnet.__all__


def test_an_unknown_model_is_refused_with_the_closest_match() -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'pcmc-nett'. Did you mean 'pcmcnet'\?"):
        model_class("pcmc-nett")


def test_options_are_keyword_only_shown_and_checked(name: str) -> None:
    shown = inspect.signature(KINDS[name]).parameters
    without_name = {option for option, p in shown.items() if p.kind is not inspect.Parameter.KEYWORD_ONLY}
    assert without_name == ({"column"} if name == "rank-by" else set())
    with pytest.raises(ConfigError, match="unknown option 'no_such_option'"):
        KINDS[name](no_such_option=1)


def test_options_and_public_class_are_documented(name: str) -> None:
    assert (KINDS[name].__doc__ or "").strip()
    assert (KINDS[name].config_class.__doc__ or "").strip()


# -- pickle --------------------------------------------------------------------------------------------------------


def test_a_pickled_model_gives_the_same_predictions(model: ChoiceModel, toy: ChoiceData) -> None:
    """Processes of joblib, multiprocessing and Ray exchange models as pickles."""
    copy = pickle.loads(pickle.dumps(model))
    assert type(copy) is type(model)
    np.testing.assert_array_equal(copy.predict_proba(toy), model.predict_proba(toy))


# -- fit -----------------------------------------------------------------------------------------------------------


def test_fit_does_not_change_data_or_global_random_state(name: str, toy: ChoiceData) -> None:
    model, fingerprint = fresh(name), toy.fingerprint()
    before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    assert model.fit(toy, seed=1, progress=False) is model
    assert toy.fingerprint() == fingerprint
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], before_numpy)  # type: ignore[index]  # noqa: NPY002


def test_a_fitted_model_has_its_options_and_one_record(name: str, model: ChoiceModel) -> None:
    """The constructor sets the options, objects that no option can hold, and ``fitted_``; a fit adds nothing."""
    unfitted = fresh(name)
    assert set(vars(model)) == set(vars(unfitted))
    assert set(vars(unfitted)) - {"config", "fitted_"} <= BESIDE_OPTIONS
    assert unfitted.fitted_ is None
    assert isinstance(model.fitted_, FittedModel)
    assert model.config == unfitted.config


def test_a_fit_assigns_only_the_record(name: str, toy: ChoiceData) -> None:
    model = fresh(name)
    before = dict(vars(model))
    model.fit(toy, seed=1, progress=False)
    del before["fitted_"]
    assert all(vars(model)[attribute] is value for attribute, value in before.items())


def test_the_record_and_its_parts_are_frozen(model: ChoiceModel) -> None:
    fitted = model.require_fitted()
    assert isinstance(model.record_, model.record_class)
    for part in (fitted, fitted.table, fitted.state, model.record_, *dataclasses_in(model.record_)):
        with pytest.raises(FrozenInstanceError):
            setattr(part, fields(part)[0].name, None)


def dataclasses_in(value: Any) -> Iterator[Any]:
    """Yield the dataclasses inside a record, at any depth."""
    inner: Any = ()
    if is_dataclass(value):
        inner = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, tuple):
        inner = value
    for part in inner:
        if is_dataclass(part):
            yield part
        yield from dataclasses_in(part)


def test_the_record_survives_a_json_round_trip(model: ChoiceModel) -> None:
    """Its types define the saved format: JSON is read back as an equal record."""
    for kind, record in ((model.record_class, model.record_), (TrainingTable, model.table_)):
        text = json.dumps(record_to_dict(record), allow_nan=False)
        assert record_from_dict(kind, json.loads(text)) == record


@pytest.mark.parametrize("fitted_before", [False, True], ids=["fresh", "fitted"])
def test_a_failed_fit_does_not_change_the_model(
    name: str, toy: ChoiceData, fitted_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error occurs at the end, when the facts of the table are recorded."""
    model = fresh(name)
    if fitted_before:
        model.fit(toy, seed=1, progress=False)
    state, other = dict(vars(model)), toy.subset(np.arange(len(toy))[::-1][:20])
    before = model.predict_log_proba(toy) if fitted_before else None

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(model), "_training_table", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.fit(other, seed=2, progress=False)
    assert vars(model).keys() == state.keys()
    assert all(vars(model)[attribute] is value for attribute, value in state.items())
    if before is not None:
        np.testing.assert_array_equal(model.predict_log_proba(toy), before)


def test_a_callback_that_raises_does_not_change_the_model(name: str, model: ChoiceModel, toy: ChoiceData) -> None:
    unfitted = fresh(name)
    state = dict(vars(unfitted))

    def fail(entry: dict[str, Any]) -> None:
        raise RuntimeError("enough")

    if model.history:  # the model trains in epochs
        with pytest.raises(RuntimeError, match="enough"):
            unfitted.fit(toy, seed=1, progress=False, on_epoch=fail)
        assert vars(unfitted) == state


def test_fitting_again_gives_the_same_bits(name: str, model: ChoiceModel, toy: ChoiceData) -> None:
    """The fits run twice in a row, and after a fit with another seed to fewer sets."""
    again = fresh(name).fit(toy.subset(np.arange(20)), seed=2, progress=False)
    for _ in range(2):
        require_same_bits(again.fit(toy, seed=1, progress=False), model, toy)


def test_fits_in_four_threads_give_the_same_bits(name: str, model: ChoiceModel, toy: ChoiceData) -> None:
    with ThreadPoolExecutor(4) as pool:
        fits = list(pool.map(lambda _: fresh(name).fit(toy, seed=1, progress=False), range(4)))
    for fit in fits:
        require_same_bits(fit, model, toy)


def require_same_bits(one: ChoiceModel, other: ChoiceModel, toy: ChoiceData) -> None:
    np.testing.assert_array_equal(one.predict_log_proba(toy), other.predict_log_proba(toy))
    assert record_to_dict(one.record_) == record_to_dict(other.record_)
    assert one.table_ == other.table_


def test_one_seed_gives_one_model(name: str, model: ChoiceModel, toy: ChoiceData) -> None:
    again = fresh(name).fit(toy, seed=1, progress=False)
    np.testing.assert_array_equal(again.predict_log_proba(toy), model.predict_log_proba(toy))


def test_a_set_of_weight_0_has_no_effect_on_a_fit(
    name: str, model: ChoiceModel, table: pa.Table, toy: ChoiceData
) -> None:
    """Its choice, items, categories and scales have no effect."""
    corrupt = {
        "trip": [99, 99, 99],
        "mode": ["rocket", "car", "bus"],
        "took": [1, 0, 0],
        "price": [1e6, -1e6, 0.0],
        "minutes": [10**6, -(10**6), 0],
        "comfort": ["none", "low", "high"],
        "income": [1e6] * 3,
        "purpose": ["none"] * 3,
        "open": [1, 1, 1],
        "weight": [0, 0, 0],
    }
    longer = ChoiceData.from_long(pa.concat_tables([table, pa.table(corrupt, schema=table.schema)]), **ROLES)
    assert len(longer) == len(toy) + 1
    again = fresh(name).fit(longer, seed=1, progress=False)
    # One more zero in the sums may change rounding, and so when an optimiser stops.
    np.testing.assert_allclose(again.predict_proba(toy), model.predict_proba(toy), rtol=1e-5)


def test_a_validation_part_is_accepted(name: str, toy: ChoiceData) -> None:
    train, valid = toy.split((0.7, 0.3), seed=0)
    assert np.isfinite(fresh(name).fit(train, valid, progress=False).predict_proba(valid)).all()


def test_fit_needs_choices(name: str, table: pa.Table) -> None:
    with pytest.raises(InputError, match="fitting needs the choices"):
        fresh(name).fit(ChoiceData.from_long(table, **{**ROLES, "chosen": None}), progress=False)


def test_a_model_that_is_not_fitted_is_refused(name: str, toy: ChoiceData, tmp_path: Path) -> None:
    model = fresh(name)
    for ask in (
        lambda: model.predict_proba(toy),
        lambda: model.predict(toy),
        lambda: model.score(toy),
        lambda: model.summary(),
        lambda: model.num_parameters,
        lambda: model.save(tmp_path / "model"),
    ):
        with pytest.raises(NotFittedError, match=f"this {type(model).__name__} is not fitted"):
            ask()


# -- probabilities -------------------------------------------------------------------------------------------------


def test_every_model_gives_a_distribution_over_each_set(model: ChoiceModel, table: pa.Table, toy: ChoiceData) -> None:
    p = model.predict_proba(toy)
    is_open = table["open"].to_numpy() == 1
    assert p.shape == (table.num_rows,)
    assert p.dtype == np.float64
    assert (p[~is_open] == 0).all()
    require_distributions(model, table["trip"].to_numpy(), p, is_open)


def test_a_set_of_one_has_probability_1(model: ChoiceModel, toy: ChoiceData) -> None:
    alone = toy.rows[toy.offsets[:-1][toy.sizes == 1]]
    assert alone.size
    assert (model.predict_proba(toy)[alone] == 1).all()


def test_log_probabilities_are_the_logs_of_the_probabilities(model: ChoiceModel, toy: ChoiceData) -> None:
    np.testing.assert_allclose(np.exp(model.predict_log_proba(toy)), model.predict_proba(toy), rtol=1e-12)
    assert (model.predict_log_proba(toy)[toy.hidden_rows] == -np.inf).all()


def test_probabilities_follow_the_rows_of_the_table(model: ChoiceModel, table: pa.Table, toy: ChoiceData) -> None:
    """The sets are in another order; the rows of a set keep theirs."""
    trip = table["trip"].to_numpy()
    order = np.argsort(np.random.default_rng(1).permutation(30)[trip], kind="stable")
    shuffled = model.predict_proba(ChoiceData.from_long(table.take(order), **ROLES))
    # Matrix products in float32 round differently for other batches.
    np.testing.assert_allclose(shuffled, model.predict_proba(toy)[order], rtol=1e-5)


def test_row_order_matters_only_to_models_that_declare_it(model: ChoiceModel, table: pa.Table, toy: ChoiceData) -> None:
    order = np.random.default_rng(1).permutation(table.num_rows)
    shuffled = model.predict_proba(ChoiceData.from_long(table.take(order), **ROLES))
    expected = model.predict_proba(toy)[order]
    if model.order_matters:
        assert not np.allclose(shuffled, expected, rtol=1e-3)
    else:
        # Sums over a set in another order, in float32.
        np.testing.assert_allclose(shuffled, expected, rtol=1e-5)


@pytest.mark.parametrize("column", ["comfort", "purpose"])
@pytest.mark.parametrize("share", ["some", "all"])
def test_unseen_categories_give_distributions(column: str, share: str, model: ChoiceModel, table: pa.Table) -> None:
    trip = table["trip"].to_numpy()
    original = table[column].to_numpy(zero_copy_only=False)
    values = np.where((trip % 3 == 0) | (share == "all"), "never seen", original)
    changed = table.set_column(table.column_names.index(column), column, pa.array(values))
    require_distributions(model, trip, model.predict_proba(changed), table["open"].to_numpy() == 1)


def test_a_missing_feature_at_prediction_is_named(model: ChoiceModel, table: pa.Table) -> None:
    with pytest.raises(InputError, match="'price'"):
        model.predict_proba(table.drop_columns(["price"]))


def require_distributions(model: ChoiceModel, trip: Any, p: Any, is_open: Any) -> None:
    """Check that probabilities of available rows are positive and sum to 1; a ranking may give 0 and 1."""
    assert np.isfinite(p).all()
    assert (p[is_open] >= 0).all() if model.gives == "ranking" else (p[is_open] > 0).all()
    # Networks compute in float32.
    np.testing.assert_allclose(np.bincount(trip, weights=p), 1, rtol=1e-6)


def test_the_schema_of_the_model_reads_a_raw_table(model: ChoiceModel, table: pa.Table, toy: ChoiceData) -> None:
    np.testing.assert_array_equal(model.predict_proba(table.drop_columns(["took", "weight"])), model.predict_proba(toy))


def test_a_subset_has_the_same_probabilities(model: ChoiceModel, toy: ChoiceData) -> None:
    some = np.arange(len(toy))[::3]
    part = toy.subset(some)
    whole = toy.from_rows(model.predict_log_proba(toy))
    expected = np.concatenate([whole[toy.offsets[s] : toy.offsets[s + 1]] for s in some])
    # Matrix products in float32 round differently for other shapes.
    np.testing.assert_allclose(part.from_rows(model.predict_log_proba(part)), expected, rtol=1e-5, atol=1e-6)


def test_an_empty_subset_has_no_predictions(model: ChoiceModel, toy: ChoiceData) -> None:
    assert model.predict_proba(toy.subset([])).shape == (0,)
    assert model.predict(toy.subset([])).shape == (0,)


def test_predictions_are_most_probable_labels(model: ChoiceModel, toy: ChoiceData) -> None:
    labels, predictions = toy.labels, model.predict(toy)
    assert labels is not None
    assert len(predictions) == len(toy)
    p = toy.from_rows(model.predict_proba(toy))
    for s, label in enumerate(predictions):
        inside = slice(toy.offsets[s], toy.offsets[s + 1])
        (place,) = np.flatnonzero(labels.plain()[inside] == label)
        assert p[inside][place] == p[inside].max()


def test_the_score_is_the_weighted_mean_log_likelihood(model: ChoiceModel, table: pa.Table, toy: ChoiceData) -> None:
    took = table["took"].to_numpy() == 1
    expected = np.average(model.predict_log_proba(toy)[took], weights=table["weight"].to_numpy()[took])
    assert model.score(toy) == pytest.approx(expected, rel=1e-12)
    assert model.score(table) == pytest.approx(expected, rel=1e-12)


# -- axioms --------------------------------------------------------------------------------------------------------


def test_every_model_can_be_audited(name: str, model: ChoiceModel, toy: ChoiceData) -> None:
    """Logits satisfy IIA; models without probabilities, or that depend on the order of rows, are marked."""
    result = audit(model, toy, sets=10, triples=20)
    json.dumps(result.to_dict(), allow_nan=False)
    assert result.to_markdown().startswith(f"# Axioms of choice: {type(model).__name__}")
    assert all(0 <= finding.violations <= finding.cases for finding in result.findings)
    assert all(finding.cases for finding in result.findings[1:])
    assert bool(result.notes) == (model.order_matters or model.gives != "probabilities")
    if name in LOGITS:
        assert result["independence"].largest <= 1e-9
        assert {"regularity", "strong stochastic transitivity", "uniform expansion"} <= set(result.obeyed)


# -- saved form and summary ----------------------------------------------------------------------------------------


def test_a_saved_model_loads_to_the_same_model(model: ChoiceModel, toy: ChoiceData, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    loaded = load(folder)
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    assert loaded.history == model.history
    np.testing.assert_array_equal(loaded.predict_log_proba(toy), model.predict_log_proba(toy))
    assert str(loaded.summary()) == str(model.summary())
    assert {p.suffix for p in folder.iterdir()} <= SAFE_TO_READ


def test_the_summary_prints_a_title_and_a_table(model: ChoiceModel) -> None:
    lines = str(model.summary()).splitlines()
    assert lines[0]
    assert lines[1] == "=" * len(lines[0])
    assert any(line and set(line) == {"-"} for line in lines)


def test_the_number_of_parameters_is_a_count(name: str, model: ChoiceModel) -> None:
    assert type(model.num_parameters) is int
    assert (model.num_parameters == 0) == (name in WITHOUT_PARAMETERS)


def test_the_repr_shows_the_options_that_differ_from_the_defaults(name: str, model: ChoiceModel) -> None:
    """Without extras such as nests, the repr is the call that builds the model."""
    assert repr(model) == repr(fresh(name))
    if not model.extras:
        assert eval(repr(model), {type(model).__name__: type(model)}).config == model.config


def test_the_html_shows_the_state_of_the_model(name: str, model: ChoiceModel) -> None:
    assert "not fitted" in fresh(name)._repr_html_()
    assert "fitted to" in model._repr_html_()
    assert f"{model.num_parameters:,} parameters" in model._repr_html_()


def test_a_summary_becomes_a_data_frame(model: ChoiceModel) -> None:
    pytest.importorskip("pandas")
    summary = model.summary()
    assert summary.to_frame().shape == (len(summary.rows), len(summary.header) if summary.rows else 0)
