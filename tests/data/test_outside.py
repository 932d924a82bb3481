"""The outside option: tables with all, some or none of its rows, models, and errors."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData, Schema
from pcmcnet.decisions.catalogue import Catalogue
from pcmcnet.errors import ConfigError, InputError, SchemaError
from pcmcnet.models import MNL, MODELS, LatentClassMNL, Uniform, load
from pcmcnet.serving.request_sets import input_columns

# Three visits to a shop: A is bought, nothing is bought, B is bought.
TABLE: dict[str, Any] = {
    "visit": [1, 1, 2, 2, 3, 3, 3],
    "brand": ["A", "B", "A", "B", "A", "B", "C"],
    "bought": [1, 0, 0, 0, 0, 1, 0],
    "price": [2.0, 3.0, 2.5, 1.5, 3.0, 1.0, 2.0],
    "colour": ["red", "blue", "red", "red", "blue", "red", "blue"],
    "income": [10.0, 10.0, 20.0, 20.0, 30.0, 30.0, 30.0],
}
ROLES: dict[str, Any] = {
    "choice_set": "visit",
    "chosen": "bought",
    "alternative": "brand",
    "features": ["price", "colour"],
    "individual": ["income"],
    "outside": "none",
}


def read(table: dict[str, Any] = TABLE, **roles: Any) -> ChoiceData:
    return ChoiceData.from_long(table, **{**ROLES, **roles})


def test_every_set_gets_the_option_and_no_choice_means_it() -> None:
    data = read()
    assert data.labels is not None
    assert data.labels.plain().tolist() == ["A", "B", "none", "A", "B", "none", "A", "B", "C", "none"]
    assert data.require_chosen("test").tolist() == [0, 2, 1]
    assert data.individual["income"].plain().tolist() == [10, 20, 30]
    assert data.outside is not None
    assert data.outside.tolist() == [False, False, True] * 2 + [False, False, False, True]
    np.testing.assert_array_equal(data.features["price"].plain()[data.outside], np.nan)
    assert set(data.features["colour"].plain()[data.outside]) == {"<missing>"}
    assert read(outside=None, chosen=None).outside is None


def test_an_outside_option_without_a_row_has_a_chosen_probability() -> None:
    """Of 3, 3 and 4 alternatives with equal probabilities; in the second visit, nothing is bought."""
    for table in (read(), TABLE):
        model = Uniform().fit(read())
        assert model.chosen_probabilities(table) == pytest.approx([1 / 3, 1 / 3, 1 / 4])


def test_added_options_follow_the_rows_of_the_table() -> None:
    data = read()
    assert data.rows.tolist() == [0, 1, 7, 2, 3, 8, 4, 5, 6, 9]
    assert (data.n_rows, data.added) == (10, 3)
    last = data.subset([2, 1])
    assert (last.rows.tolist(), last.added) == ([2, 3, 4, 6, 0, 1, 5], 2)
    both = data.subset([0]).concat(data.subset([2]))
    assert (both.rows.tolist(), both.added) == ([0, 1, 5, 2, 3, 4, 6], 2)


def test_the_option_may_have_rows_with_any_values() -> None:
    """The first visit has a row of the option, without features and income. Results keep the order of rows."""
    first = {"visit": 1, "brand": "none", "bought": 0, "price": None, "colour": None, "income": None}
    data = read({name: [first[name], *values] for name, values in TABLE.items()})
    assert data.labels is not None
    assert data.labels.plain().tolist()[:3] == ["none", "A", "B"]
    assert data.require_chosen("test").tolist() == [1, 2, 1]
    assert data.individual["income"].plain().tolist() == [10, 20, 30]
    assert np.isnan(data.features["price"].plain()[0])
    assert data.added == 2
    full = {
        name: [*values, *{"brand": ["none"] * 3, "visit": [1, 2, 3], "bought": [0, 1, 0]}.get(name, [None] * 3)]
        for name, values in TABLE.items()
    }
    assert read(full).added == 0
    assert read(full).fingerprint() == read().fingerprint()


def test_dropped_features_of_the_option_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """If the label of real rows is declared by mistake, their features are dropped and the log says so once."""
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        data = read(outside="A")
        read(outside="A", chosen=None)  # a table for prediction
        empty = {"price": [None, 3, np.nan, 1, None, 1, 2], "colour": [None, "b", "", "b", None, "b", "b"]}
        read({**TABLE, **empty}, outside="A")
        read()
    assert data.outside is not None
    assert data.outside.sum() == 3
    assert [record.getMessage() for record in caplog.records] == [
        (
            "features of 3 rows labelled 'A' are ignored: the outside option 'A' has no features, but column 'price' "
            "has values"
        )
    ]


def test_an_unavailable_option_is_left_out() -> None:
    table = {
        name: [*values, *{"visit": [1], "brand": ["none"], "bought": [0]}.get(name, [None])]
        for name, values in TABLE.items()
    }
    data = read({**table, "offered": [1] * 7 + [0]}, available="offered")
    assert data.sizes.tolist() == [2, 3, 4]


def test_without_labels_an_indicator_marks_the_option() -> None:
    data = read(alternative=None)
    assert data.schema.features == ("price", "colour", "none")
    assert data.features["none"].plain().tolist() == [0, 0, 1, 0, 0, 1, 0, 0, 0, 1]
    assert Schema.from_dict(data.schema.to_dict()) == data.schema
    assert "none" not in data.schema.columns


def test_an_unranked_option_is_below_ranked_alternatives() -> None:
    table = {**TABLE, "place": [1, None, 1, 2, None, 1, None]}
    data = read(table, chosen=None, rank="place")
    assert data.set_ids.tolist() == ["1/1", "2/1", "2/2", "3/1"]
    assert data.sizes.tolist() == [3, 3, 2, 4]


def test_a_wide_table_needs_no_columns_for_the_option() -> None:
    table = {"took": [1, None, 2], "car_time": [1.0, 2.0, 3.0], "bus_time": [2.0, 1.0, 1.0], "has_car": [1, 0, 1]}
    roles: dict[str, Any] = {"chosen": "took", "features": {"time": "{alternative}_time"}, "outside": "stay"}
    available = {"car": "has_car", "bus": 1}
    data = ChoiceData.from_wide(table, alternatives={"car": 1, "bus": 2}, available=available, **roles)
    assert data.labels is not None
    assert data.labels.plain().tolist() == ["car", "bus", "stay", "bus", "stay", "car", "bus", "stay"]
    assert data.require_chosen("test").tolist() == [0, 1, 1]
    coded = {**table, "took": [1, 9, 2]}
    codes = {"car": 1, "bus": 2, "stay": 9}
    assert (
        ChoiceData.from_wide(coded, alternatives=codes, available=available, **roles).fingerprint()
        == data.fingerprint()
    )
    with pytest.raises(SchemaError, match="column 'took', row 1: expected one of 1, 2, stay, got 9"):
        ChoiceData.from_wide(coded, alternatives={"car": 1, "bus": 2}, **roles)


# -- models ---------------------------------------------------------------------------------------------------------


def visits(sets: int = 400, seed: int = 0) -> dict[str, Any]:
    """Utilities 1 - 2 log(price) + 0.5 [red], and 0 of buying nothing."""
    rng = np.random.default_rng(seed)
    price, red = rng.uniform(1, 3, (sets, 3)), rng.random((sets, 3)) < 0.5
    utility = np.column_stack([1 - 2 * np.log(price) + 0.5 * red, np.zeros(sets)])
    took = (utility + rng.gumbel(size=(sets, 4))).argmax(1)
    return {
        "visit": np.repeat(np.arange(sets), 3),
        "brand": np.tile(["A", "B", "C"], sets),
        "bought": (took[:, None] == np.arange(3)).ravel(),
        "price": price.ravel(),
        "colour": np.where(red, "red", "blue").ravel(),
        "income": np.repeat(rng.normal(size=sets), 3),
    }


def test_the_option_has_utility_0_and_the_remaining_probability() -> None:
    table = visits(2000)
    data = read(table)
    model = MNL(formula="log(price) + colour", base={"colour": "blue"}).fit(data)
    assert model.summary().facts["reference"] == "none"
    x = model.design_.matrix(data)
    assert data.outside is not None
    assert not x[data.outside].any()
    truth = {"log(price)": -2.0, "colour[red]": 0.5, **{f"constant[{brand}]": 1.0 for brand in "ABC"}}
    for name, value in truth.items():
        assert abs(model.coefficients[name] - value) < 3 * model.standard_errors()[name]
    v = np.exp(x @ model.estimates_.values).reshape(-1, 4)
    p = model.predict_proba(table)  # one value per table row; the option has no rows
    np.testing.assert_allclose(p.reshape(-1, 3), v[:, :3] / v.sum(1, keepdims=True), rtol=1e-10)
    whole = model.predict_proba(data)
    assert whole.shape == (8000,)
    np.testing.assert_allclose(whole[6000:], 1 - p.reshape(-1, 3).sum(1), rtol=1e-9)
    assert set(model.predict(table)) <= {"A", "B", "C", "none"}


def test_levels_and_references_are_learnt_without_the_option() -> None:
    model = MNL(formula="price + colour").fit(read(visits()))
    assert not any("missing" in name or "none" in name for name in model.coefficients)
    specific = MNL(formula="price | income").fit(read(visits()))
    assert {"income[A]", "income[B]", "income[C]"} < set(specific.coefficients)
    other = MNL(formula="price | income", reference="A").fit(read(visits()))
    assert "income[none]" in other.coefficients
    assert other.estimates_.log_likelihood == pytest.approx(specific.estimates_.log_likelihood, abs=1e-6)


def test_without_labels_the_option_has_its_own_coefficient() -> None:
    table = visits(2000)
    model = MNL(formula="log(price) + colour + none").fit(read(table, alternative=None))
    assert abs(model.coefficients["none"] + 1.5) < 0.3  # the base colour is red
    free = model.predict(table)
    rows = free[free >= 0]
    assert (rows // 3 == np.flatnonzero(free >= 0)).all()
    assert (free == -1).any()


FAST = {"mnl", "lc-mnl", "rf", "uniform", "bradley-terry", "pcmc", "dpn", "pcmcnet"}
OPTIONS: dict[str, dict[str, Any]] = {
    "lc-mnl": {"classes": 2},
    "rf": {"trees": 10},
    "dpn": {"epochs": 1, "weight_decay": 0.0},
    "pcmcnet": {"epochs": 1, "weight_decay": 0.0},
}


@pytest.mark.parametrize("name", sorted(FAST & set(MODELS)))
def test_models_support_the_option(name: str, tmp_path: Path) -> None:
    table = visits(120)
    data = read(table)
    model = MODELS[name](**OPTIONS.get(name, {})).fit(data, progress=False)
    p = model.predict_proba(table)
    assert p.shape == (360,)
    total = p.reshape(120, 3).sum(1)
    assert (total < 1).all()
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(table), p)
    assert loaded.score(table) == pytest.approx(model.score(data), rel=1e-6)


def test_latent_classes_include_the_option() -> None:
    data = read(visits(200))
    model = LatentClassMNL(classes=2).fit(data)
    np.testing.assert_allclose(model.predict_proba(data)[data.rows].reshape(200, 4).sum(1), 1)


# -- errors ---------------------------------------------------------------------------------------------------------


def test_two_chosen_rows_are_still_refused() -> None:
    with pytest.raises(SchemaError, match="expected exactly one chosen alternative, got up to 2"):
        read({**TABLE, "bought": [1, 1, 0, 0, 0, 1, 0]})
    with pytest.raises(SchemaError, match="expected 0 or 1, got 2"):
        read({**TABLE, "bought": [1, 2, 0, 0, 0, 1, 0]})


def test_a_set_of_the_option_alone_is_refused() -> None:
    table = {name: [*values, values[0]] for name, values in TABLE.items()} | {"visit": [1, 1, 2, 2, 3, 3, 3, 4]}
    table["brand"] = [*TABLE["brand"], "none"]
    with pytest.raises(SchemaError, match="choice set 4: no alternative is available except the outside option 'none'"):
        read(table)


def test_missing_values_of_other_alternatives_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"column 'price', row 1 \(choice set 1\): expected a finite number"):
        read({**TABLE, "price": [2.0, None, 2.5, 1.5, 3.0, 1.0, 2.0]})


@pytest.mark.parametrize("name", ["", " ", 3])
def test_the_option_has_a_name(name: Any) -> None:
    with pytest.raises(SchemaError, match="outside must be the name of an alternative"):
        read(outside=name)


def test_unsupported_uses_of_the_option_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="scan does not support an outside option: add rows for 'none'"):
        ChoiceData.scan(tmp_path / "table.csv", **ROLES)
    with pytest.raises(ConfigError, match="the service does not support the model's outside option 'none'"):
        input_columns(Schema.from_dict(ROLES))
    catalogue = {"brand": ["A", "B"], "price": [1.0, 2.0], "colour": ["red", "blue"]}
    schema = read().schema
    with pytest.raises(InputError, match="the outside option 'none', which is not in the catalogue: add its row"):
        Catalogue.read(schema, catalogue, {"income": 1.0}, None)
    full = {"brand": ["A", "none"], "price": [1.0, None], "colour": ["red", None]}
    assert Catalogue.read(schema, full, {"income": 1.0}, "none").outside == 1
