"""Properties of all logit models, tested on the multinomial logit."""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from choice_tables import logit_choices, read
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical
from pcmcnet.data.kinds.category import UnseenCounts
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError
from pcmcnet.evaluation.model_table import table as table_of_models
from pcmcnet.models import MNL, Calibrated, Ensemble, LatentClassMNL, MixedMNL, NestedMNL, PCMCNet, Stacking, load
from pcmcnet.models.interface.parse_options import parse_option
from pcmcnet.models.logit.factor_coding import LevelCode
from pcmcnet.models.logit.logit_model import LogitConfig, LogitModel, read_estimates
from pcmcnet.storage import json_bytes

MakeTrips = Callable[..., pa.Table]


@pytest.fixture(scope="module")
def roles(roles: dict[str, Any]) -> dict[str, Any]:
    return {**roles, "keep": ["block"]}


@pytest.fixture(scope="module")
def table(make_trips: MakeTrips) -> pa.Table:
    """Return 200 trips in blocks of ten. The cheapest is not always chosen."""
    result = make_trips(200)
    rng = np.random.default_rng(3)
    trip = result["trip"].to_numpy()
    took = np.zeros(len(trip), np.int8)
    is_open = result["open"].to_numpy() == 1
    value = np.where(is_open, -0.1 * result["price"].to_numpy() + rng.gumbel(size=len(trip)), -np.inf)
    for s in range(200):
        rows = np.flatnonzero(trip == s)
        took[rows[np.argmax(value[rows])]] = 1
    result = result.set_column(result.column_names.index("took"), "took", pa.array(took))
    return result.append_column("block", pa.array(trip // 10))


@pytest.fixture(scope="module")
def data(table: pa.Table, roles: dict[str, Any]) -> ChoiceData:
    return ChoiceData.from_long(table, **roles)


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> MNL:
    fitted: MNL = MNL(formula="price + minutes/60", cluster="block").fit(data)
    return fitted


# -- options -------------------------------------------------------------------------------------------------------


def test_options_survive_json() -> None:
    control: dict[str, Any] = {"fixed": {"cost": -1}, "bounds": {"time": (None, 0)}, "start": {"time": -0.1}}
    config = LogitConfig(formula="log(cost) | 0", reference="car", errors="robust", cluster="ID", **control)
    assert LogitConfig(**json.loads(json.dumps(asdict(config)))) == config


def test_options_are_read_from_text() -> None:
    assert parse_option(LogitConfig, "formula=log(price) + time | 0") == ("formula", "log(price) + time | 0")
    assert parse_option(LogitConfig, "reference=none") == ("reference", None)
    assert parse_option(LogitConfig, "min_chosen=3") == ("min_chosen", 3)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"formula": "log(cost"}, r"expected '\)'"),
        ({"formula": 3}, "formula must be a string"),
        ({"reference": 3.5}, "reference must be a string, got 3.5"),
        ({"offset": 3}, "offset must be a string, got 3"),
        ({"base": "low"}, "base must map columns to levels, got 'low'"),
        (
            {"offset": "x", "fixed": {"x": 2}},
            "the offset 'x' has a coefficient of 1: remove it",
        ),
        ({"cluster": ["ID"]}, "cluster must be a string"),
        ({"errors": "robus"}, "unknown errors 'robus'"),
        ({"min_chosen": -1}, "min_chosen"),
        ({"max_iter": 0}, "max_iter"),
        ({"bounds": {"x": (None, 0)}, "start": {"x": 1}}, r"start\['x'\] = 1 is outside its bounds, -inf to 0"),
    ],
)
def test_options_are_checked_before_a_fit(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        MNL(**options)


# -- fit -----------------------------------------------------------------------------------------------------------


def test_sets_of_one_alternative_are_refused(table: pa.Table, roles: dict[str, Any]) -> None:
    alone = ChoiceData.from_long(table, **roles)
    with pytest.raises(InputError, match="every choice set has a single alternative"):
        MNL().fit(alone.subset(alone.sizes == 1))


def test_an_unknown_cluster_column_is_named(data: ChoiceData) -> None:
    with pytest.raises(SchemaError, match="column 'blok' is neither an individual-level nor a kept"):
        MNL(formula="price", cluster="blok").fit(data)


@pytest.fixture(scope="module")
def persons(table: pa.Table, roles: dict[str, Any]) -> ChoiceData:
    """The same trips. Each block belongs to one person."""
    return ChoiceData.from_long(table, **{**roles, "keep": [], "person": "block"})


def test_errors_are_clustered_by_declared_persons(persons: ChoiceData, model: MNL) -> None:
    result = MNL(formula="price + minutes/60").fit(persons)
    assert result.summary().facts["standard errors"] == "clustered, 20 clusters by block"
    assert result.standard_errors() == model.standard_errors("clustered")
    assert str(result.willingness_to_pay("minutes/60", "price")) == str(
        model.willingness_to_pay("minutes/60", "price", "clustered")
    )
    assert (
        MNL(formula="price + minutes/60", errors="clustered").fit(persons).standard_errors() == result.standard_errors()
    )


def test_other_errors_and_other_clusters_can_be_chosen(persons: ChoiceData, data: ChoiceData) -> None:
    plain = MNL(formula="price", errors="classical").fit(persons)
    assert plain.summary().facts["standard errors"] == "classical"
    assert plain.standard_errors() == MNL(formula="price").fit(data).standard_errors("classical")
    other = MNL(formula="price", cluster="purpose").fit(persons)
    assert other.summary().facts["standard errors"] == "clustered, 2 clusters by purpose"


def test_weights_make_the_default_errors_robust_so_that_their_scale_does_not_matter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Three of four take the car: H = 4 w 3/16 and the meat is 4 w^2 3/16, so the variance is 4/3 for every w."""
    table = {
        "trip": np.repeat(np.arange(4), 2),
        "mode": ["car", "bus"] * 4,
        "took": [1, 0, 1, 0, 1, 0, 0, 1],
    }
    plain = MNL(formula="|").fit(read(table, alternative="mode", features=[]))
    assert plain.default_errors == "classical"
    for weight in (1.0, 100.0):
        caplog.clear()
        with caplog.at_level("INFO", logger="pcmcnet"):
            data = read({**table, "w": np.full(8, weight)}, alternative="mode", features=[], weight="w")
            model = MNL(formula="|").fit(data)
        ((name, error),) = model.standard_errors().items()
        assert error == pytest.approx(np.sqrt(4 / 3), rel=1e-9)
        assert model.standard_errors("classical")[name] == pytest.approx(np.sqrt(4 / 3 / weight), rel=1e-9)
        messages = [record.getMessage() for record in caplog.records if "weights" in record.getMessage()]
        assert [m.partition(":")[0] for m in messages] == (
            ["the weights in column 'w' sum to 400 for 4 choice sets"] if weight == 100 else []
        )
    summary = model.summary()
    assert (summary.facts["standard errors"], summary.facts["weights"]) == ("robust", "w, sum 400")
    (caveat,) = summary.caveats
    assert caveat.startswith("AIC and BIC use a weighted likelihood, and are not valid for expansion weights")
    assert "Caveat: classical standard errors are not valid for expansion weights" in str(model.summary("classical"))
    assert "AIC and BIC use a weighted likelihood" in str(table_of_models(model))
    other = replace(data, weights=np.array([1.0, 2, 1, 1]))
    assert "AIC" not in "".join(n for n in table_of_models(model, data=other).notes if not n.startswith("Left out"))
    assert "weighted" not in str(plain.summary()) + str(table_of_models(plain))


@pytest.mark.parametrize(
    "make",
    [
        lambda: MNL(formula="x + y"),
        lambda: NestedMNL(formula="x + y", nests={"A": "one", "B": "one", "C": "two", "D": "two"}, bounds=None),
        lambda: MixedMNL(formula="x + y | 0", random={"x": "normal"}, draws=20, prior=0),
        lambda: LatentClassMNL(formula="x + y | 0", classes=2, starts=2, membership="1", prior=0),
    ],
)
def test_weights_times_100_do_not_change_the_default_errors(make: Callable[[], Any]) -> None:
    table = logit_choices(150, {"x": 1.5, "y": 0.5}, seed=4, sizes=(3, 4), constants=[0.0, 0.5, -0.5, 0.2])
    w = np.random.default_rng(1).gamma(2.0, 0.5, 150)[table["trip"]]
    roles: dict[str, Any] = {"alternative": "mode", "features": ["x", "y"], "weight": "w"}
    one, hundred = (make().fit(read({**table, "w": factor * w}, **roles)) for factor in (1, 100))
    assert one.default_errors == "robust"
    # The search ends when a step gains almost nothing, so estimates agree to about five digits.
    assert hundred.coefficients == pytest.approx(one.coefficients, rel=1e-4, abs=1e-4)
    assert hundred.standard_errors() == pytest.approx(one.standard_errors(), rel=1e-3)


def test_estimates_saved_without_a_note_on_weights_are_weighted_if_the_table_is(model: MNL) -> None:
    files = {**model._files(), "schema.json": json_bytes(model.schema.to_dict())}
    entries = json.loads(files["estimates.json"])
    del entries["weighted"]
    assert read_estimates({**files, "estimates.json": json_bytes(entries)}).weighted


def test_a_single_person_gives_no_clustered_errors(persons: ChoiceData) -> None:
    single = persons.subset(persons.groups() == 0)
    result = MNL(formula="price | 0").fit(single)
    assert result.summary().facts["standard errors"] == "robust: the table has one person"
    assert result.summary("classical").facts["standard errors"] == "classical"
    assert result.summary("robust").facts["standard errors"] == "robust"
    for method in (result.standard_errors, result.covariance, result.estimates, result.summary):
        with pytest.raises(InputError, match="clustered errors need at least two persons, but column 'block' has one"):
            method("clustered")
    with pytest.raises(InputError, match="errors='clustered' needs at least two persons, but column 'block' has one"):
        MNL(formula="price | 0", errors="clustered").fit(single)


def test_too_few_clusters_are_reported(
    table: pa.Table, roles: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The meat of G clusters has rank G - 1: with 3 clusters, the errors of 3 coefficients are those of 2 numbers."""
    trip = table["trip"].to_numpy()

    def fitted(clusters: int, formula: str, **options: Any) -> MNL:
        caplog.clear()
        columns = {name: table[name] for name in table.column_names} | {"block": trip % clusters}
        model: MNL = MNL(formula=formula, cluster="block", **options).fit(ChoiceData.from_long(columns, **roles))
        return model

    model = fitted(3, "price + minutes + comfort | 0")
    K = len(model.coefficients)
    assert K >= 3
    assert np.linalg.matrix_rank(model.covariance(), tol=1e-9 * np.abs(model.covariance()).max()) == 2
    problem = f"clustered standard errors of {K} coefficients need more than {K} clusters, got 3"
    assert problem in caplog.text
    assert f"Caveat: {problem}" in str(model.summary())
    assert problem[1:] in str(table_of_models(model))
    assert problem not in str(model.summary("robust"))
    fitted(3, "price + minutes + comfort | 0", errors="robust")
    assert caplog.text == ""
    some = fitted(12, "price | 0")
    assert caplog.text == ""
    assert "fewer than about 30 clusters; this model has 12" in str(some.summary())
    assert "clusters;" not in str(fitted(30, "price | 0").summary())


def test_clustered_errors_need_clusters(data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match="errors='clustered' needs clusters: set cluster=<column>"):
        MNL(formula="price", errors="clustered").fit(data)


def test_the_summary_shows_the_chosen_errors(model: MNL) -> None:
    text = str(model.summary("clustered"))
    assert "standard errors                clustered, 20 clusters by block" in text
    assert "weights                        weight" in text
    assert "reference                      " in text
    for kind in ("classical", "robust", "clustered"):
        table = {row[0]: row for row in model.summary(kind).rows}
        for name, error in model.standard_errors(kind).items():
            assert table[name][1:3] == (f"{model.coefficients[name]:.4g}", f"{error:.3g}")
            assert error == pytest.approx(np.sqrt(np.diag(model.covariance(kind))[list(table).index(name)]))
    assert model.num_parameters == len(model.coefficients) == len(table)


# -- the saved form ------------------------------------------------------------------------------------------------


def test_saved_estimates_keep_their_errors(model: MNL, data: ChoiceData, tmp_path: Path) -> None:
    back = load(model.save(tmp_path / "model"))
    assert isinstance(back, MNL)
    assert back.design_ == model.design_
    for kind in ("classical", "robust", "clustered"):
        np.testing.assert_array_equal(back.covariance(kind), model.covariance(kind))
        assert str(back.summary(kind)) == str(model.summary(kind))
    assert back.willingness_to_pay("minutes/60", "price") == model.willingness_to_pay("minutes/60", "price")
    assert str(back.elasticities(data, "price")) == str(model.elasticities(data, "price"))


def test_saved_estimates_keep_fixed_and_bounded_coefficients(data: ChoiceData, tmp_path: Path) -> None:
    model = MNL(formula="price + minutes/60", fixed={"minutes/60": 0.0}, bounds={"price": (0, None)}).fit(data)
    back = load(model.save(tmp_path / "model"))
    assert isinstance(back, MNL)
    assert (back.estimates_.fixed, back.estimates_.at_bound) == (("minutes/60",), ("price",))
    assert str(back.summary()) == str(model.summary())


def test_unsupported_exponents_and_wtp_space_are_refused(data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=r"'lambda\[price\]' is not supported by .*MNL: fix .* boxcox\(time, 0.5\)"):
        LatentClassMNL(formula="boxcox(price)").fit(data)
    with pytest.raises(ConfigError, match=r"wtp_space is not supported by .*MNL: use willingness_to_pay"):
        LatentClassMNL(formula="price + minutes", wtp_space="price").fit(data)


def test_a_fit_changes_only_the_fitted_record(data: ChoiceData) -> None:
    model = MNL(formula="price")
    options = dict(vars(model))
    model.fit(data)
    assert {name for name, value in vars(model).items() if value is not options.get(name)} == {"fitted_"}
    assert set(vars(model)) == {"config", "fitted_"}


def test_a_refit_keeps_the_columns_and_does_not_change_the_model(model: MNL, data: ChoiceData) -> None:
    """The refit has other sets but the same columns: levels and scales are not learnt again."""
    part, fitted = data.subset(range(100)), model.fitted_
    refit = model.refit(part, model.design_, seed=0)
    assert (refit.names, refit.n_sets) == (model.design_.names, 100)
    assert model.fitted_ is fitted
    np.testing.assert_array_equal(model.refit(data, model.design_, seed=0).values, model.estimates_.values)


def test_other_coefficients_give_another_model(model: MNL, data: ChoiceData) -> None:
    other = model.with_values(np.zeros(len(model.coefficients)))
    np.testing.assert_allclose(data.from_rows(other.predict_proba(data)), np.repeat(1 / data.sizes, data.sizes))
    assert other.config == model.config
    assert (other.estimates_.values != model.estimates_.values).all()


@pytest.mark.parametrize("file", ["design.json", "estimates.json", "estimates.safetensors"])
def test_an_altered_file_is_refused(file: str, model: MNL, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    with pytest.raises(ArtifactError, match=f"file {file} was truncated or altered"):
        load(folder)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda arrays, entries: arrays["values"].__setitem__(0, np.nan),
        lambda arrays, entries: arrays["covariance/robust"].__setitem__((0, 0), np.inf),
        lambda arrays, entries: arrays.update(values=arrays["values"][:-1]),
        lambda arrays, entries: arrays.update({"covariance/robust": np.eye(1)}),
        lambda arrays, entries: entries["names"].pop(),
    ],
    ids=["nan", "infinite variance", "short", "small covariance", "fewer names"],
)
def test_invalid_estimates_are_refused(spoil: Callable[[Any, Any], Any], model: MNL) -> None:
    files = model._files()
    arrays = {k: v.copy() for k, v in load_arrays(files["estimates.safetensors"]).items()}
    entries = json.loads(files["estimates.json"])
    spoil(arrays, entries)
    files["estimates.safetensors"] = save_arrays(arrays)
    files["estimates.json"] = json.dumps(entries).encode()
    with pytest.raises(ArtifactError, match="the saved estimates are not finite"):
        read_estimates(files)


# -- levels, offsets, weights ----------------------------------------------------------------------------------------


def test_pooled_levels_are_reported_and_the_base_can_be_chosen(table: pa.Table, roles: dict[str, Any]) -> None:
    comfort = np.array(["low", "middle", "high"])[np.arange(len(table)) % 3]
    comfort[[0, 40]] = "royal"
    data = ChoiceData.from_long(
        table.set_column(table.column_names.index("comfort"), "comfort", pa.array(comfort)), **roles
    )
    model = MNL(formula="comfort | 0").fit(data)
    base = model.design_.codes["comfort"].reference  # type: ignore[union-attr]
    assert model.summary().facts["pooled levels"] == f"comfort: royal with {base} (chosen fewer than 10 times)"
    assert "pooled levels" not in MNL(formula="comfort | 0", min_chosen=0).fit(data).summary().facts
    other = MNL(formula="comfort | 0", base={"comfort": "low"}, min_chosen=0).fit(data)
    assert [*other.coefficients] == ["comfort[high]", "comfort[middle]", "comfort[royal]"]
    same = MNL(formula="comfort | 0", min_chosen=0).fit(data)
    np.testing.assert_allclose(other.predict_proba(data), same.predict_proba(data), atol=1e-6)
    with pytest.raises(
        ConfigError,
        match=r"base: 'comfrt' is not a categorical column of the table. Did you mean 'comfort'\?",
    ):
        MNL(base={"comfrt": "low"}).fit(data)
    with pytest.raises(ConfigError, match=r"base level 'lo' of 'comfort' is not in the table. Did you mean 'low'\?"):
        MNL(base={"comfort": "lo"}).fit(data)


NESTS = {"car": "road", "bus": "road", "bike": "other", "train": "other", "walk": "other", "tram": "road"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: MNL(formula="price + comfort | purpose"),
        lambda: NestedMNL(formula="price + comfort | purpose", nests=NESTS),
        lambda: MixedMNL(
            formula="price + comfort | 0", random={"price": "normal"}, means={"price": "purpose"}, draws=10
        ),
        lambda: LatentClassMNL(formula="price + comfort | 0", classes=2, starts=1, membership="purpose"),
        lambda: Calibrated(MNL(formula="price + comfort | purpose")),
        lambda: Ensemble(MNL(formula="price + comfort | purpose"), 2),
        lambda: Stacking([MNL(formula="price + comfort | 0"), MNL(formula="price + comfort | purpose")]),
        lambda: Stacking([MNL(formula="price + comfort | purpose"), PCMCNet(hidden=(2,), epochs=1, weight_decay=0.1)]),
    ],
)
def test_unseen_categories_are_reported_once_for_each_prediction(
    make: Callable[[], Any], table: pa.Table, roles: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The first 30 trips have an unknown purpose, which affects 30 of 200 trips; all rows have an unknown comfort."""
    data, model = ChoiceData.from_long(table, **roles), make()
    model.fit(data, data if isinstance(model, Calibrated) else None)
    purpose = np.where(table["trip"].to_numpy() < 30, "typo", table["purpose"].to_numpy(zero_copy_only=False))
    columns = {name: table[name] for name in table.column_names}
    columns |= {"purpose": pa.array(purpose.astype(str)), "comfort": pa.array(np.full(len(purpose), "soft"))}
    new = ChoiceData.from_long(columns, **roles)
    all_rows = f"{len(new.rows)} of {len(new.rows)} rows"
    with caplog.at_level("INFO", logger="pcmcnet"):
        caplog.clear()
        p = model.predict_proba(new)
        messages = [(r.levelname, r.getMessage()) for r in caplog.records if "categories" in r.getMessage()]
        assert sorted(messages) == [
            ("INFO", "column 'purpose': 30 of 200 rows hold categories never seen in training (first: 'typo')"),
            ("WARNING", f"column 'comfort': {all_rows} hold categories never seen in training (first: 'soft')"),
        ]
        if isinstance(model, LogitModel):
            caplog.clear()
            model.elasticities(new, "price")
            assert sum("categories" in record.getMessage() for record in caplog.records) == 2
        caplog.clear()
        model.predict_proba(data)
        assert caplog.text == ""
    assert np.isfinite(p).all()


def test_pooled_levels_are_not_unseen(caplog: pytest.LogCaptureFixture) -> None:
    """Twelve pooled levels are known, although the summary names only eight of them."""
    trip, level = np.repeat(np.arange(60), 2), np.full(120, "often", dtype="U8")
    level[:24:2] = [f"level {k}" for k in range(12)]
    took = np.tile([1, 0], 60)
    data = read({"trip": trip, "took": took, "x": np.sin(np.arange(120.0)), "level": level}, features=["x", "level"])
    model = MNL(formula="x + level").fit(data)
    code = model.design_.codes["level"]
    assert isinstance(code, LevelCode)
    assert len(code.rare) == code.n_rare == 12
    assert "level 5 and 4 more with" in code.pooling
    caplog.clear()
    with caplog.at_level("INFO", logger="pcmcnet"):
        model.predict_proba(data)
    assert caplog.text == ""
    counts = UnseenCounts()
    old = replace(code, rare=code.rare[:8])  # as saved by earlier versions, which listed eight levels
    old.count_unseen("level", Categorical(np.zeros(3, np.int32), ("new",)), counts)
    assert not counts


def test_numeric_labels_can_be_the_reference() -> None:
    table = {"trip": [0, 0, 1, 1, 2, 2], "took": [1, 0, 0, 1, 1, 0], "mode": [1, 2] * 3, "x": [3, 1, 2, 5, 1, 2]}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["x"])
    assert [*MNL(formula="|", reference=2).fit(data).coefficients] == ["constant[1]"]  # type: ignore[arg-type]


def test_an_offset_has_a_fixed_coefficient_of_1(data: ChoiceData) -> None:
    free = MNL(formula="price + minutes | 0").fit(data)
    model = MNL(formula="price | 0", offset="minutes").fit(data)
    assert model.coefficients["minutes"] == 1.0
    assert (model.num_parameters, model.estimates_.fixed) == (1, ("minutes",))
    again = MNL(formula="price + minutes | 0", fixed={"minutes": 1.0}).fit(data)
    assert model.coefficients == again.coefficients
    assert free.coefficients["minutes"] != 1.0


def test_the_dot_omits_the_offset_and_reports_it(data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pcmcnet"):
        model = MNL(formula=". | 0", offset="minutes").fit(data)
    assert (model.coefficients["minutes"], model.estimates_.fixed) == (1.0, ("minutes",))
    assert "'.' does not include 'minutes', which is the offset: its coefficient is 1" in caplog.text


@pytest.mark.parametrize("formula", ["price + minutes", ". + minutes"])
def test_an_offset_in_the_formula_is_refused(formula: str, data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=r"'minutes' is in the formula and is also the offset, .* remove offset='min"):
        MNL(formula=formula, offset="minutes").fit(data)


def test_other_terms_of_the_offset_column_are_estimated(data: ChoiceData) -> None:
    """b/60 + 1 is the coefficient without an offset, at the same likelihood."""
    free = MNL(formula="price + minutes | 0").fit(data)
    model = MNL(formula="price + minutes/60 | 0", offset="minutes").fit(data)
    assert model.estimates_.log_likelihood == pytest.approx(free.estimates_.log_likelihood, rel=1e-10)
    assert model.coefficients["minutes/60"] / 60 + 1 == pytest.approx(free.coefficients["minutes"], abs=1e-6)


@pytest.mark.parametrize(
    ("offset", "problem"),
    [
        ("minuts", r"offset 'minuts' is not a feature of the table. Did you mean 'minutes'\?"),
        ("income", "offset 'income' is not a feature of the table"),
        ("comfort", "offset: expected a numeric column, but 'comfort' is categorical"),
    ],
)
def test_an_invalid_offset_is_refused(offset: str, problem: str, data: ChoiceData) -> None:
    with pytest.raises(SchemaError, match=problem):
        MNL(formula="price", offset=offset).fit(data)


def test_an_offset_with_missing_values_is_refused(table: pa.Table, roles: dict[str, Any], data: ChoiceData) -> None:
    minutes, row = table["minutes"].to_pylist(), int(data.rows[7])
    minutes[row] = None
    incomplete = table.set_column(table.column_names.index("minutes"), "minutes", pa.array(minutes))
    with pytest.raises(SchemaError, match=f"column 'minutes' has 1 missing values, the first in table row {row}:"):
        MNL(formula="price", offset="minutes").fit(ChoiceData.from_long(incomplete, **roles, missing="indicator"))


# -- separation ----------------------------------------------------------------------------------------------------


@pytest.fixture
def separated() -> ChoiceData:
    """'never' is chosen in no set, 'b' in every set with it, and 'perfect' is largest for the chosen alternative."""
    rng = np.random.default_rng(0)
    n = 120
    x = rng.normal(size=(n, 3))
    took = np.zeros((n, 3), np.int8)
    took[np.arange(n), (-x + rng.gumbel(size=(n, 3))).argmax(1)] = 1
    level = np.where(took == 1, "a", rng.choice(["a", "never"], (n, 3)))
    level[: n // 3] = np.where(took[: n // 3] == 1, "b", "a")
    perfect = np.where(took == 1, rng.uniform(5, 9, (n, 3)), rng.uniform(0, 4, (n, 3)))
    table = {
        "s": np.repeat(np.arange(n), 3),
        "took": took.ravel(),
        "x": x.ravel(),
        "level": level.ravel(),
        "perfect": perfect.ravel(),
    }
    return ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x", "level", "perfect"])


@pytest.mark.parametrize(
    ("formula", "unbounded"),
    [
        ("x + level", ("level[b]", "level[never]")),
        ("perfect", ("perfect",)),
        ("perfect/1000000", ("perfect/1000000",)),
        ("x + perfect", ("perfect",)),
    ],
)
def test_coefficients_that_diverge_are_reported(
    formula: str, unbounded: tuple[str, ...], separated: ChoiceData, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        model = MNL(formula=formula, min_chosen=0).fit(separated)
    result = model.estimates_.unbounded
    assert result == unbounded or (formula == "x + perfect" and unbounded[0] in result)
    assert f"no finite estimate for {', '.join(map(repr, result))}: the likelihood has no maximum" in caplog.text
    assert all(model.standard_errors()[name] == np.inf for name in result)
    text = str(model.summary())
    assert model.summary().facts["no finite estimate"] == ", ".join(map(repr, result))
    assert "nan" not in text
    p = model.predict_proba(separated)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.reshape(-1, 3).sum(1), 1, rtol=1e-12)
    for kind in ("classical", "robust"):
        assert np.isfinite(model.covariance(kind)).all()
    ratio = model.willingness_to_pay(model.design_.names[-1], model.design_.names[0])
    assert ratio.error == np.inf or len(model.design_.names) == 1
    assert np.isfinite(ratio.value)
    back = load(model.save(tmp_path / "model"))
    assert str(back.summary()) == text
    assert "nan" not in (tmp_path / "model" / "estimates.json").read_text().lower()


def test_a_diverging_coefficient_does_not_change_other_errors(separated: ChoiceData) -> None:
    """Without the alternatives of a level that is never chosen, the other estimates are the same."""
    model = MNL(formula="x + level", min_chosen=0).fit(separated)
    never = separated.features["level"].plain() == "never"  # type: ignore[union-attr]
    table = {
        "s": separated.set_of_alternative[~never],
        "took": np.isin(np.arange(360), separated.offsets[:-1] + separated.chosen)[~never],
        "x": separated.features["x"].values[~never],  # type: ignore[union-attr]
        "level": separated.features["level"].plain()[~never],
    }
    without = ChoiceData.from_long(table, choice_set="s", chosen="took", features=["x", "level"])
    refit = MNL(formula="x + level", min_chosen=0).fit(without)
    for kind in ("classical", "robust"):
        expected = refit.standard_errors(kind)
        assert {k: v for k, v in model.standard_errors(kind).items() if k in expected} == pytest.approx(
            expected, rel=1e-6
        )


def test_an_ordinary_fit_gives_no_warning(data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        MNL(formula="price").fit(data)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (MixedMNL(formula="x", random={"x": "normal"}, draws=40), ["constant[A]"]),
        (LatentClassMNL(formula="x", classes=2, starts=3), ["class 1: constant[A]", "class 2: constant[A]"]),
    ],
)
def test_a_prior_does_not_hide_that_an_alternative_is_never_chosen(model: Any, names: list[str]) -> None:
    """The prior keeps the constant at about -10. Its error from the scores is small, and z would be about -50."""
    table = logit_choices(200, {"x": -1.0}, sizes=(3, 3), constants=[-50.0, 0.0, 0.5])
    data = read(table, alternative="mode", features=["x"])
    model.fit(data)
    rows = model.estimates().loc[names]
    assert set(model.estimates_.unbounded) >= set(names)  # a second class of equal persons may diverge altogether
    assert (rows["estimate"] < -5).all()
    assert np.isposinf(rows["std_error"]).all()
    assert (rows["p"] == 1).all()
    facts = model.summary().facts
    assert all(repr(name) in facts["no finite estimate"] for name in names)
    assert facts["prior"].startswith("normal, precision 0.001 per")
    assert np.isfinite(model.standard_errors("classical")[names[0].replace("constant[A]", "x")])


def test_an_estimate_with_a_large_error_is_not_infinite() -> None:
    """An alternative that is chosen once has a finite constant."""
    table = logit_choices(200, {"x": -1.0}, sizes=(3, 3), constants=[-50.0, 0.0, 0.5])
    first = np.flatnonzero(table["trip"] == table["trip"][0])
    table["took"][first] = np.asarray(table["mode"])[first] == "A"
    data = read(table, alternative="mode", features=["x"])
    for model in (MNL(formula="x", min_chosen=0), MixedMNL(formula="x", min_chosen=0, draws=40)):
        assert np.isfinite(model.fit(data).standard_errors("classical")["constant[A]"])
        assert not model.estimates_.unbounded
