"""Encoding: what is learnt, only from the training part, and the treatment of unseen values."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.encoder import MIN_SETS_OF_LABEL, Encoder, label_column, learn_encoder
from pcmcnet.data.kinds.category import UNSEEN_INDEX
from pcmcnet.errors import ArtifactError, SchemaError

NAN = float("nan")


def read(table: dict[str, Any], **roles: Any) -> ChoiceData:
    return ChoiceData.from_long(table, choice_set="id", **roles)


# -- values worked out by hand ---------------------------------------------------------------------------


def test_numbers_are_standardised_and_categories_numbered_from_one(trips: Any, roles: Any) -> None:
    """seats 4, 50, 4, 50, 1: mean 21.8, variance (2*17.8^2 + 2*28.2^2 + 20.8^2) / 5 = 531.36.

    income per set, not per row: 2.5 and 1 have mean 1.75 and standard deviation 0.75.
    """
    data = ChoiceData.from_long(trips, **{**roles, "features": ["seats", "shade"]})
    encoder = Encoder.learn(data)
    sets = encoder.encode(data)
    expected = (np.array([4, 50, 4, 50, 1]) - 21.8) / np.sqrt(531.36)
    np.testing.assert_allclose(sets.numeric[:, 0], expected, rtol=1e-6)
    assert sets.individual_numeric.tolist() == [[1.0], [-1.0]]
    assert encoder.features.categorical[0].categories == ("blue", "red")
    assert sets.categorical[:, 0].tolist() == [2, 1, 1, 2, 2]
    assert sets.individual_categorical[:, 0].tolist() == [1, 2]
    assert sets.chosen.tolist() == [0, 2]
    assert sets.sizes.tolist() == sets.counts.tolist() == [2, 3]
    assert sets.starts.tolist() == [0, 2]
    assert (encoder.features.n_numeric, encoder.features.cardinalities) == (1, (2,))


def test_a_missing_value_becomes_the_mean_with_indicator_1() -> None:
    """Known values 1 and 3 have mean 2 and standard deviation 1; 5 and 7 have mean 6 and 1. Indicators come last."""
    table = {"id": [1, 1, 1], "x": [1.0, NAN, 3.0], "z": [5.0, 7.0, NAN], "c": ["u", None, "u"]}
    data = read(table, features=["x", "z", "c"], missing="indicator")
    encoder = Encoder.learn(data)
    numeric = encoder.encode(data).numeric
    assert encoder.features.n_numeric == 4
    assert numeric.T.tolist() == [[-1, 0, 1], [-1, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert encoder.features.categorical[0].categories == ("<missing>", "u")


def test_only_long_right_tails_are_transformed_on_request() -> None:
    """price 1, ..., 19, 1000: median 10.5, so it bends at 2.625; seats (few values) and steps (no tail) do not."""
    price = [*range(1, 20), 1000]
    table = {"id": np.repeat([0, 1], 10), "price": price, "steps": range(20), "seats": [0] * 19 + [50]}
    data = read(table, features=["price", "steps", "seats"])
    straight, bent = Encoder.learn(data), Encoder.learn(data, bend=True)
    assert [code.bend for code in straight.features.numeric] == [0, 0, 0]
    assert [code.bend for code in bent.features.numeric] == [2.625, 0, 0]
    curve = np.arcsinh(np.array(price) / 2.625)
    numbers = bent.encode(data).numeric
    np.testing.assert_allclose(numbers[:, 0], (curve - curve.mean()) / curve.std(), rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(numbers[:, 1:], straight.encode(data).numeric[:, 1:])
    assert Encoder.from_dict(json.loads(json.dumps(bent.to_dict()))) == bent


def test_a_transformed_column_accepts_unseen_numbers() -> None:
    table = {"id": np.repeat([0, 1], 10), "price": [*range(1, 20), 1000]}
    encoder = Encoder.learn(read(table, features=["price"]), bend=True)
    new = read({"id": [0, 0, 0], "price": [-5.0, 0.0, 1e30]}, features=["price"])
    numbers = encoder.encode(new).numeric[:, 0].numpy()
    assert np.isfinite(numbers).all()
    assert (np.diff(numbers) > 0).all()


def test_unknown_choices_are_encoded_as_the_first_alternative() -> None:
    data = read({"id": [1, 1]})
    sets = Encoder.learn(data).encode(data)
    assert sets.chosen.tolist() == [0]
    assert sets.numeric.shape == (2, 0)
    assert sets.individual_categorical.shape == (1, 0)


# -- the training part alone -----------------------------------------------------------------------------


def test_the_encoder_learns_nothing_from_the_test_part() -> None:
    """Only the test part has category "v", values near 1000, a missing value and an office. None may leave a trace."""
    train = {"id": [1, 1, 2, 2], "x": [1.0, 2.0, 3.0, 4.0], "c": ["u", "w", "u", "w"], "who": [0.0, 0.0, 2.0, 2.0]}
    test = {"id": [3, 3], "x": [1000.0, NAN], "c": ["v", None], "who": [50.0, 50.0]}
    both = {name: train[name] + test[name] for name in train}
    roles: Any = {"features": ["x", "c"], "individual": ["who"], "missing": "indicator"}
    alone, together = read(train, **roles), read(both, **roles)
    learnt = Encoder.learn(together.subset([0, 1]))
    assert learnt.to_dict() == Encoder.learn(alone).to_dict()
    text = json.dumps(learnt.to_dict())
    assert '"v"' not in text
    assert "<missing>" not in text
    assert learnt.features.numeric[0].mean == 2.5
    assert not learnt.features.numeric[0].indicator
    assert Encoder.learn(together).to_dict() != learnt.to_dict()


@given(seed=st.integers(0, 2**16))
def test_training_columns_have_mean_zero_and_variance_one_or_are_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=20) * 10.0 ** rng.integers(-20, 20)
    x += rng.normal() * 10.0 ** rng.integers(-3, 3) * np.ptp(x)  # an offset within the precision of float32
    data = read({"id": np.arange(20) // 4, "x": x, "one": np.full(20, 0.1)}, features=["x", "one"])
    numeric = Encoder.learn(data).encode(data).numeric.double().numpy()
    if len(np.unique(x.astype(np.float32))) > 1:
        # float32 leaves a relative error of 6e-8 in each of 20 values
        np.testing.assert_allclose([numeric[:, 0].mean(), numeric[:, 0].std()], [0, 1], rtol=0, atol=1e-6)
    assert (numeric[:, 1] == 0).all()


@given(
    train=st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    test=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8),
)
def test_unseen_categories_share_the_reserved_index(train: list[str], test: list[str]) -> None:
    encoder = Encoder.learn(read({"id": [1] * len(train), "c": train}, features=["c"]))
    categories = sorted(set(train))
    sets = encoder.encode(read({"id": [1] * len(test), "c": test}, features=["c"]))
    assert sets.categorical[:, 0].tolist() == [categories.index(c) + 1 if c in categories else 0 for c in test]


def test_a_constant_training_column_stays_zero_for_new_values() -> None:
    encoder = Encoder.learn(read({"id": [1, 1], "x": [5.0, 5.0]}, features=["x"]))
    sets = encoder.encode(read({"id": [1, 1], "x": [5.0, 1e30]}, features=["x"]))
    assert sets.numeric.tolist() == [[0.0], [0.0]]


def test_columns_are_found_by_name_in_any_order() -> None:
    table = {"id": [1, 1], "x": [1.0, 3.0], "z": [5.0, 7.0], "more": [0, 1]}
    encoder = Encoder.learn(read(table, features=["x", "z"]))
    turned = encoder.encode(read(table, features=["more", "z", "x"]))
    assert turned.numeric.tolist() == encoder.encode(read(table, features=["x", "z"])).numeric.tolist()


# -- saved and read back ---------------------------------------------------------------------------------


def test_an_encoder_survives_a_json_round_trip(trips: Any, roles: Any) -> None:
    trips["time"][2] = NAN
    data = ChoiceData.from_long(trips, **roles, missing="indicator")
    encoder = Encoder.learn(data)
    restored = Encoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert restored == encoder
    assert restored.encode(data).numeric.tolist() == encoder.encode(data).numeric.tolist()


@pytest.mark.parametrize("damage", [{}, {"features": None}, {"features": {"numeric": [{"name": "x"}]}}, {"schema": 3}])
def test_a_damaged_encoder_is_refused(damage: dict[str, Any], trips: Any, roles: Any) -> None:
    entries = Encoder.learn(ChoiceData.from_long(trips, **roles)).to_dict()
    with pytest.raises(ArtifactError, match=r"the saved encoder is incomplete .*: save the model again"):
        Encoder.from_dict({**entries, **damage} if damage else {})


# -- errors ----------------------------------------------------------------------------------------------


def test_missing_values_unknown_in_training_are_refused() -> None:
    encoder = Encoder.learn(read({"id": [1, 1], "x": [1.0, 2.0]}, features=["x"], missing="indicator"))
    gaps = read({"id": [1, 1], "x": [NAN, 2.0]}, features=["x"], missing="indicator")
    with pytest.raises(SchemaError, match="column 'x' has 1 missing values, but had none when the model was trained"):
        encoder.encode(gaps)


def test_a_column_without_any_value_is_refused() -> None:
    empty = read({"id": [1, 1], "x": [NAN, NAN]}, features=["x"], missing="indicator")
    with pytest.raises(SchemaError, match="column 'x' has no values in the training data: leave it out"):
        Encoder.learn(empty)


def test_a_value_far_beyond_training_is_refused() -> None:
    encoder = Encoder.learn(read({"id": [1, 1], "x": [0.0, 1e-30]}, features=["x"]))
    with pytest.raises(SchemaError, match=r"column 'x': 1 values are more than 3.4e38 training standard deviations"):
        encoder.encode(read({"id": [1, 1], "x": [0.0, 1e30]}, features=["x"]))


def test_a_missing_column_is_named_with_the_closest_match() -> None:
    encoder = Encoder.learn(read({"id": [1, 1], "price": [1, 2]}, features=["price"]))
    with pytest.raises(
        SchemaError, match=r"trained with column 'price', which is not in this table. Did you mean 'prise'\?"
    ):
        encoder.encode(read({"id": [1], "prise": [1]}, features=["prise"]))


def test_a_column_of_another_kind_is_refused() -> None:
    encoder = Encoder.learn(read({"id": [1, 1], "x": [1, 2]}, features=["x"]))
    with pytest.raises(SchemaError, match="column 'x': expected numeric as in training, got categorical"):
        encoder.encode(read({"id": [1], "x": ["u"]}, features=["x"]))


# -- categories never seen -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("b", "level"), [("uuuu", None), ("uuxu", logging.INFO), ("uxyu", logging.WARNING), ("xxyz", logging.WARNING)]
)
def test_unseen_categories_are_reported(b: str, level: int | None, caplog: pytest.LogCaptureFixture) -> None:
    train = read({"id": [1, 1], "b": ["u", "v"]}, features=["b"])
    test = read({"id": [1, 1, 2, 2], "b": list(b)}, features=["b"])
    with caplog.at_level(logging.INFO, logger="pcmcnet"):
        Encoder.learn(train).encode(test)
    n = sum(c not in "uv" for c in b)
    message = f"column 'b': {n} of 4 rows hold categories never seen in training (first: 'x')"
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == ([] if level is None else [(level, message)])


# -- labels ----------------------------------------------------------------------------------------------


def labelled(modes: list[str], **roles: Any) -> ChoiceData:
    """Make sets of two with these labels, and a number x of 0, 1, 2, ..."""
    n = len(modes)
    table = {"id": np.arange(n) // 2, "mode": modes, "x": np.arange(n, dtype=float), "took": [1, 0] * (n // 2)}
    return read(table, chosen="took", alternative="mode", **{"features": ["x"], **roles})


def test_labels_are_the_last_categorical_column() -> None:
    data = labelled(["car", "bus"] * MIN_SETS_OF_LABEL, features=["x"], individual=[])
    encoder = Encoder.learn(data, labels=True)
    assert encoder.labels
    assert [code.name for code in encoder.features.categorical] == ["mode"]
    assert encoder.features.categorical[0].categories == ("bus", "car")
    sets = encoder.encode(data)
    assert sets.categorical.tolist() == [[2], [1]] * MIN_SETS_OF_LABEL
    np.testing.assert_array_equal(sets.numeric, Encoder.learn(data).encode(data).numeric)


def test_rare_and_unseen_labels_have_the_reserved_index() -> None:
    """car is in as many sets as a known label needs; bike is in one set fewer."""
    modes = ["car", "bike"] * (MIN_SETS_OF_LABEL - 1) + ["car", "walk"]
    encoder = Encoder.learn(labelled(modes), labels=True)
    assert encoder.features.categorical[0].categories == ("car",)
    indices = encoder.encode(labelled(["car", "bike", "walk", "plane"])).categorical
    assert indices.flatten().tolist() == [1, UNSEEN_INDEX, UNSEEN_INDEX, UNSEEN_INDEX]


def test_rare_categories_of_other_columns_are_known() -> None:
    modes = ["car", "bus"] * MIN_SETS_OF_LABEL
    table = {"id": np.arange(len(modes)) // 2, "mode": modes, "c": ["u"] * (len(modes) - 1) + ["v"]}
    encoder = Encoder.learn(read(table, alternative="mode", features=["c"]), labels=True)
    assert [code.categories for code in encoder.features.categorical] == [("u", "v"), ("bus", "car")]


def test_labels_are_encoded_only_on_request(trips: Any, roles: Any) -> None:
    data, bare = (ChoiceData.from_long(trips, **{**roles, "alternative": name}) for name in ("mode", None))
    with_labels, without = Encoder.learn(data), Encoder.learn(bare, labels=True)
    assert not with_labels.labels
    assert not without.labels  # the table has no labels
    assert with_labels.features == without.features
    assert with_labels.individual == without.individual


def test_a_label_that_is_a_feature_is_encoded_once() -> None:
    """It is a feature like others: rare categories are known, too."""
    modes = ["car", "bus"] * MIN_SETS_OF_LABEL + ["car", "bike"]
    data = labelled(modes, features=["x", "mode"])
    encoder = Encoder.learn(data, labels=True)
    assert not encoder.labels
    assert [code.name for code in encoder.features.categorical] == ["mode"]
    assert encoder.features.categorical[0].categories == ("bike", "bus", "car")
    assert encoder.encode(data).categorical.shape == (len(modes), 1)
    assert label_column(data.schema) is None
    assert label_column(labelled(modes).schema) == "mode"


def test_an_encoder_of_labels_refuses_a_table_without_them() -> None:
    encoder = Encoder.learn(labelled(["car", "bus"] * MIN_SETS_OF_LABEL), labels=True)
    other = read({"id": [1, 1], "x": [0.0, 1.0], "mode": ["car", "bus"]}, features=["x"])
    expected = r"column 'mode', but this table declares no labels: read it with alternative='mode', or .*labels=False"
    with pytest.raises(SchemaError, match=expected):
        encoder.encode(other)


def test_an_encoder_of_labels_survives_a_json_round_trip() -> None:
    data = labelled(["car", "bus"] * MIN_SETS_OF_LABEL)
    encoder = Encoder.learn(data, labels=True)
    entries = json.loads(json.dumps(encoder.to_dict()))
    restored = Encoder.from_dict(entries)
    assert restored == encoder
    assert restored.encode(data).categorical.tolist() == encoder.encode(data).categorical.tolist()
    del entries["labels"]  # older versions did not write it
    assert not Encoder.from_dict(entries).labels


def test_an_encoder_without_columns_is_false() -> None:
    data = labelled(["car", "bus"] * MIN_SETS_OF_LABEL, features=[])
    assert not Encoder.learn(data).features
    assert Encoder.learn(data, labels=True).features
    assert not Encoder.learn(data, labels=True).individual


def test_only_encoders_of_scanned_tables_are_stored(
    trips: dict[str, list[Any]], roles: dict[str, Any], tmp_path: Path
) -> None:
    pyarrow.parquet.write_table(pa.table(trips), tmp_path / "trips.parquet")
    scanned = ChoiceData.scan(tmp_path / "trips.parquet", cache=tmp_path / "cache", memory="1 MiB", **roles)
    expected = Encoder.learn(ChoiceData.from_long(trips, **roles), bend=True, labels=True)
    assert learn_encoder(ChoiceData.from_long(trips, **roles), bend=True, labels=True) == expected
    assert not list(scanned.folder.glob("encoder-*"))
    assert learn_encoder(scanned, bend=True, labels=True) == expected
    assert len(list(scanned.folder.glob("encoder-*"))) == 1
