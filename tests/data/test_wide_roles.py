from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet import MNL, ChoiceData, Schema, load
from pcmcnet.data.files.write_files import write_table
from pcmcnet.data.read_wide import long_form
from pcmcnet.data.scan import ScannedData
from pcmcnet.data.schema import long_roles, wide_roles
from pcmcnet.errors import SchemaError

WIDE: dict[str, Any] = {
    "chosen": "choice",
    "alternatives": {"car": 1, "bus": 2},
    "features": {"minutes": "{alternative}_minutes", "cost": {"car": 0, "bus": "fare"}},
    "available": {"car": "has_car", "bus": 1},
}
TABLE = {
    "choice": [2, 1, 1, 2, 1, 2],
    "car_minutes": [10.0, 12.0, 8.0, 5.0, 9.0, 14.0],
    "bus_minutes": [20.0, 9.0, 15.0, 9.0, 8.0, 7.0],
    "fare": [2.0, 2.0, 3.0, 1.0, 2.5, 1.5],
    "has_car": [1, 1, 1, 0, 1, 1],
    "who": ["a", "a", "b", "b", "c", "c"],
}


def data() -> ChoiceData:
    return ChoiceData.from_wide(TABLE, person="who", **WIDE)


def test_wide_roles_give_the_roles_of_the_long_form() -> None:
    places = {"t": {1: "x", 2: np.float64(0.5)}}
    odd = {"alternatives": {1: np.int64(7), 2: np.int64(8)}, "features": places, "rank": None}
    assert wide_roles(odd) == {"alternatives": {"1": 7, "2": 8}, "features": {"t": {"1": "x", "2": 0.5}}}
    assert wide_roles({}) == {}
    assert long_roles(wide_roles(WIDE)) == {
        "choice_set": "choice_set",
        "alternative": "alternative",
        "features": ["minutes", "cost"],
        "chosen": "chosen",
        "available": "available",
    }


@pytest.mark.parametrize(
    ("wide", "message"),
    [
        ("car", "wide must map alternatives, features .*, got 'car'"),
        ({"feature": {}}, "wide: unknown entry 'feature'. Did you mean 'features'"),
        ({"chosen": "choice", "features": {}}, "wide: alternatives is missing"),
        ({"alternatives": ["a"]}, "wide: features is missing"),
        (
            {"alternatives": ["a"], "features": ["x"]},
            r"wide: features must map names to templates or col",
        ),
        ({"alternatives": "ab", "features": {}}, "alternatives must be a list of distinct labels"),
    ],
)
def test_invalid_wide_roles_are_refused(wide: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        wide_roles(wide)


def test_a_model_stores_how_to_read_wide_tables(tmp_path: Path) -> None:
    model = MNL(formula="minutes | 0").fit(data())
    expected = model.predict_proba(data())
    assert (model.predict_proba(TABLE) == expected).all()
    assert expected[6] == 0.0  # no car in the fourth row
    without = {name: column for name, column in TABLE.items() if name not in ("choice", "who")}
    model.save(tmp_path / "model")
    assert (load(tmp_path / "model").predict_proba(without) == expected).all()
    assert model.score(TABLE) == model.score(data())
    rows = long_form(TABLE, model.schema)
    assert rows is not None
    assert (model.predict_proba(rows) == expected).all()  # a table in long form
    with pytest.raises(SchemaError, match="no column 'bus_minutes'"):
        model.predict_proba({name: column for name, column in TABLE.items() if name != "bus_minutes"})


def test_a_file_describes_a_wide_table(tmp_path: Path) -> None:
    expected = data()
    (tmp_path / "roles.toml").write_text(expected.schema.to_toml())
    schema = Schema.from_toml(tmp_path / "roles.toml")
    assert schema == expected.schema
    assert schema.wide == expected.schema.wide
    assert ChoiceData.from_schema(TABLE, schema).fingerprint() == expected.fingerprint()
    (tmp_path / "short.toml").write_text(
        'person = "who"\n[wide]\nchosen = "choice"\nalternatives = {car = 1, bus = 2}\n'
        'features = {minutes = "{alternative}_minutes", cost = {car = 0, bus = "fare"}}\n'
        'available = {car = "has_car", bus = 1}\n'
    )
    short = ChoiceData.from_schema(TABLE, Schema.from_toml(tmp_path / "short.toml"))
    assert short.fingerprint() == expected.fingerprint()


def test_wide_roles_do_not_change_the_fingerprint_or_schema() -> None:
    long = long_form(TABLE, data().schema)
    plain = Schema.from_dict({**long_roles(WIDE), "person": "who"})
    assert ChoiceData.from_schema(long, plain).fingerprint() == data().fingerprint()


def test_a_wide_table_is_not_scanned(tmp_path: Path) -> None:
    write_table(pa.table(TABLE), tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match="scan does not support wide tables"):
        ScannedData.of(tmp_path / "t.parquet", data().schema, cache=None, memory="1 GiB")
