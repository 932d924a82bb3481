"""Schemas: their roles, saving, and errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.columns.arrays import CURVES
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.schema import Schema
from pcmcnet.errors import SchemaError


def test_columns_are_listed_once_in_a_stable_order() -> None:
    schema = Schema(
        choice_set="id", chosen="y", individual=["who"], features=["x", "label"], alternative="label", keep=["who", "g"]
    )
    assert schema.columns == ("id", "y", "label", "who", "x", "g")


def test_text_columns_are_labels_categories_and_kept_columns() -> None:
    schema = Schema(
        choice_set="id",
        alternative="label",
        individual=["who"],
        features=["x", "c"],
        categorical=["c"],
        keep=["who", "g"],
    )
    assert schema.text_columns == {"label", "c", "g"}


def test_a_person_column_is_listed_once_and_read_as_text() -> None:
    schema = Schema(choice_set="id", person="who", keep=["who", "g"], features=["x"])
    assert schema.kept_columns == ("who", "g")
    assert schema.columns == ("id", "who", "x", "g")
    alone = Schema(choice_set="id", person="who", keep=["g"], features=["x"])
    assert alone.kept_columns == ("g", "who")
    assert alone.text_columns == {"g", "who"}


def test_a_prediction_needs_only_the_inputs() -> None:
    schema = Schema(choice_set="id", chosen="y", weight="w", person="p", keep=["g"], features=["x"], available="a")
    assert schema.for_prediction() == Schema(choice_set="id", features=["x"], available="a")


def test_a_schema_is_read_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_text('choice_set = "id"\nchosen = "y"\nfeatures = ["prix (€)", "x"]\nmissing = "indicator"\n', "utf-8")
    expected = Schema(choice_set="id", chosen="y", features=("prix (€)", "x"), missing="indicator")
    assert Schema.from_toml(file) == expected


def test_names_and_units_do_not_change_roles(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(
        'choice_set = "id"\nchosen = "y"\nfeatures = ["x.1", "z"]\n[columns."x.1"]\nname = "Price"\nunit = "EUR"\n'
        '[columns.y]\nname = "Booked"\n',
        "utf-8",
    )
    schema, plain = Schema.from_toml(file), Schema(choice_set="id", chosen="y", features=["x.1", "z"])
    assert (schema.names.label("x.1"), schema.names.label("z"), schema.names["y"]) == ("Price (EUR)", "z", "Booked")
    assert schema == plain
    assert "columns" not in plain.to_dict()
    assert schema.to_dict()["columns"] == {"x.1": {"name": "Price", "unit": "EUR"}, "y": {"name": "Booked"}}
    again = tmp_path / "again.toml"
    again.write_text(schema.to_toml(), "utf-8")
    for read in (Schema.from_toml(again), Schema.from_dict(schema.to_dict())):
        assert read.named == schema.named
    assert set(schema.for_prediction().named) == {"x.1"}


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(st.text(), min_size=10, max_size=10, unique=True))
    optional = st.sampled_from([True, False])
    single = {
        role: name
        for role, name in zip(("chosen", "alternative", "available", "weight"), names, strict=False)
        if draw(optional)
    }
    categorical = draw(st.one_of(st.none(), st.lists(st.sampled_from(names[5:8]))))
    kept_columns = [name for name in names[5:8] if name not in (categorical or ())]
    kinds = (
        draw(st.dictionaries(st.sampled_from(kept_columns), st.sampled_from((*KINDS, *CURVES)))) if kept_columns else {}
    )
    return Schema(
        choice_set=names[4],
        individual=names[5:6],
        features=names[6:8],
        categorical=categorical,
        kinds=kinds,
        person=names[9] if draw(optional) else None,
        keep=names[8 : draw(st.integers(8, 10))],
        conflict=draw(st.sampled_from(["error", "first"])),
        missing=draw(st.sampled_from(["error", "indicator"])),
        **single,
    )


@given(schema=schemas())
def test_a_schema_survives_a_json_round_trip(schema: Schema) -> None:
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


@given(schema=schemas())
def test_a_schema_survives_a_toml_round_trip(schema: Schema, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("schema") / "schema.toml"
    file.write_bytes(schema.to_toml().encode())
    assert Schema.from_toml(file) == schema


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"choice_set": None}, "choice_set must be the name of a column, got None"),
        ({"chosen": 3}, "chosen must be the name of a column, got 3"),
        ({"features": "price"}, r"features must be a list of column names, got the string 'price': write \['price'\]"),
        ({"features": [1]}, r"features must be a list of column names, got \[1\]"),
        ({"features": 1}, "features must be a list of column names, got 1"),
        ({"features": {"b", "a"}}, "features must be a list of column names, got {"),
        ({"features": ["x", "x"]}, "column 'x' is listed twice among individual and features"),
        ({"features": ["x"], "individual": ["x"]}, "column 'x' is listed twice among individual and features"),
        ({"features": ["y"], "chosen": "y"}, "'y' is declared as chosen and also as a model input"),
        ({"individual": ["y"], "available": "y"}, "'y' is declared as available and also as a model input"),
        ({"features": ["y"], "weight": "y"}, "'y' is declared as weight and also as a model input"),
        ({"chosen": "id"}, "'id' is declared as choice_set and also as chosen: each needs its own"),
        ({"chosen": "y", "available": "y"}, "'y' is declared as chosen and also as available"),
        ({"person": ["p"]}, r"person must be the name of a column, got \['p'\]"),
        ({"person": "id"}, "'id' is declared as choice_set and also as person: each needs its own"),
        ({"person": "y", "alternative": "y"}, "'y' is declared as alternative and also as person"),
        ({"person": "p", "individual": ["p"]}, "'p' is declared as person and also as a model input: .* memorise"),
        ({"person": "p", "features": ["p"]}, "'p' is declared as person and also as a model input: .* memorise"),
        ({"features": ["price"], "categorical": ["prise"]}, "'prise', which is in neither .* Did you mean 'price'?"),
        ({"conflict": "last"}, "conflict must be one of 'error', 'first', got 'last'"),
        ({"missing": "mean"}, "missing must be one of 'error', 'indicator', got 'mean'"),
        ({"feature": ["x"]}, "unknown schema entry 'feature'. Did you mean 'features'?"),
    ],
)
def test_a_contradiction_is_refused(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema.from_dict({"choice_set": "id", **entries})


def test_a_schema_without_choice_set_is_refused() -> None:
    with pytest.raises(SchemaError, match="choice_set is missing: name the column"):
        Schema.from_dict({"chosen": "y"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no.toml: No such file"),
        (b"choice_set = id", "is not valid TOML"),
        (b'choice_set = "\xff"', "is not valid TOML"),
    ],
)
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "no.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SchemaError, match=message):
        Schema.from_toml(file)


def test_kinds_have_their_own_table_in_toml(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(
        'choice_set = "id"\nfeatures = ["e"]\nindividual = ["at"]\n[kinds]\ne = "vector"\nat = "datetime"\n'
    )
    assert Schema.from_toml(file).kinds == {"e": "vector", "at": "datetime"}


def test_a_schema_without_kinds_keeps_its_earlier_form() -> None:
    assert {"kinds", "person"}.isdisjoint(Schema(choice_set="id", features=["x"]).to_dict())
    assert hash(Schema(choice_set="id", features=["x"], kinds={"x": "vector"})) is not None


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"kinds": {"y": "vector"}}, "kinds includes 'y', which is in neither individual nor features"),
        ({"kinds": {"x": "vektor"}}, r"'x': the kind must be one of 'vector', .* got 'vektor'\. .* mean 'vector'"),
        ({"kinds": {"x": ["vector"]}}, "the kind must be one of"),
        ({"kinds": ["x"]}, "kinds must map columns to kinds"),
        ({"kinds": {3: "vector"}}, "kinds must map columns to kinds"),
        ({"kinds": {"x": "vector"}, "categorical": ["x"]}, "'x' is declared as categorical and as vector: keep one"),
        ({"kinds": {"x": "vector"}, "alternative": "x"}, "'x' is declared as vector: it cannot also be"),
    ],
)
def test_invalid_kinds_are_refused(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema(choice_set="id", features=["x"], **entries)


# -- signs ---------------------------------------------------------------------------------------------------------


def test_signs_have_their_own_table_in_toml(tmp_path: Path) -> None:
    schema = Schema(choice_set="id", features=["price", "comfort"], signs={"price": "-", "comfort": "+"})
    file = tmp_path / "roles.toml"
    file.write_text(schema.to_toml())
    assert "[signs]" in file.read_text()
    assert Schema.from_toml(file) == schema


def test_a_schema_without_signs_keeps_its_earlier_form() -> None:
    assert "signs" not in Schema(choice_set="id", features=["x"]).to_dict()
    assert Schema(choice_set="id", features=["x"]) != Schema(choice_set="id", features=["x"], signs={"x": "-"})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"signs": ["x"]}, r"signs must map columns to '\+' or '-', as in"),
        ({"signs": {"x": "minus"}}, r"signs: expected '\+' or '-' for column 'x', got 'minus'"),
        ({"signs": {"prize": "-"}}, "signs includes 'prize', which is not in features. Did you mean 'price'"),
        ({"signs": {"age": "-"}}, "signs includes 'age', which is an individual-level column"),
        ({"signs": {"x": "-"}, "categorical": ["x"]}, "signs includes 'x', which is categorical"),
        ({"signs": {"x": "-"}, "kinds": {"x": "spline"}}, "signs includes 'x', which has kind spline"),
    ],
)
def test_invalid_signs_are_refused(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema(choice_set="id", features=["x", "price"], individual=["age"], **entries)
