"""Choosers and a catalogue: the product, its chunks, and errors in the two tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from pcmcnet.data import CatalogueData, ChoiceData, PairTable
from pcmcnet.errors import InputError, SchemaError

SHOPS: dict[str, Any] = {
    "shop": ["a", "b", "c", "d"],
    "size": [1.0, 2.0, 4.0, 8.0],
    "kind": ["food", "toys", "food", "toys"],
    "km": [0.0, 3.0, 9.0, 5.0],
}
PEOPLE: dict[str, Any] = {
    "went_to": ["b", "d", "a"],
    "home": [1.0, 8.0, 4.0],
    "income": [2.0, 3.0, 1.0],
    "town": ["X", "Y", "X"],
    "open": [["a", "b"], ["d", "c", "a"], ["a", "d"]],
    "person": ["p", "q", "p"],
    "weight": [1.0, 0.0, 2.0],
}
ROLES: dict[str, Any] = {
    "chosen": "went_to",
    "item": "shop",
    "individual": ["income", "town"],
    "features": ["size", "kind"],
    "pair_features": {"distance": lambda people, shops: np.abs(people["home"] - shops["km"])},
}


def visits(people: dict[str, Any] | None = None, shops: dict[str, Any] | None = None, **roles: Any) -> CatalogueData:
    return ChoiceData.from_catalogue(PEOPLE | (people or {}), SHOPS | (shops or {}), **{**ROLES, **roles})


def long_table(offered: bool = False) -> dict[str, list[Any]]:
    """Write out the product by hand."""
    pairs = [(p, s) for p in range(3) for s in range(4) if not offered or SHOPS["shop"][s] in PEOPLE["open"][p]]
    return {
        "choice_set": [p for p, _ in pairs],
        "chosen": [int(SHOPS["shop"][s] == PEOPLE["went_to"][p]) for p, s in pairs],
        "shop": [SHOPS["shop"][s] for _, s in pairs],
        "size": [SHOPS["size"][s] for _, s in pairs],
        "kind": [SHOPS["kind"][s] for _, s in pairs],
        "distance": [abs(PEOPLE["home"][p] - SHOPS["km"][s]) for p, s in pairs],
        "income": [PEOPLE["income"][p] for p, _ in pairs],
        "town": [PEOPLE["town"][p] for p, _ in pairs],
    }


def written_out(offered: bool = False, labels: bool = False) -> ChoiceData:
    return ChoiceData.from_long(
        long_table(offered),
        choice_set="choice_set",
        chosen="chosen",
        alternative="shop" if labels else None,
        individual=["income", "town"],
        features=["size", "kind", "distance"],
    )


def test_the_data_frame_has_a_row_for_each_pair_with_the_item() -> None:
    """The first chooser is offered a and b, the second a, c and d, the third a and d."""
    frame = visits(offered="open").to_frame()
    assert frame["item"].tolist() == ["a", "b", "a", "c", "d", "a", "d"]
    assert frame["choice_set"].tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert frame["distance"].tolist() == [1.0, 2.0, 8.0, 1.0, 3.0, 4.0, 1.0]
    assert visits(offered="open", labels=True).to_frame()["shop"].tolist() == frame["item"].tolist()


def test_a_data_frame_of_a_large_product_is_refused() -> None:
    large = replace(visits(), max_bytes=100)
    with pytest.raises(InputError, match=r"3 choosers and 4 items would have 12 rows: write data.subset\(") as error:
        large.to_frame()
    assert "data.sample_alternatives(20).to_frame()" in str(error.value)
    assert len(large.subset([0]).read().to_frame()) == 4


# -- The product -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("offered", [False, True])
def test_the_product_is_the_long_table_of_all_pairs(offered: bool, labels: bool) -> None:
    data = visits(offered="open" if offered else None, labels=labels)
    product, expected = data.read(), written_out(offered, labels)
    assert product.schema == expected.schema
    assert product.fingerprint() == expected.fingerprint()
    assert product.to_frame().equals(expected.to_frame())
    assert (len(data), data.n_items) == (3, 4)
    assert data.sizes.tolist() == expected.sizes.tolist() == ([2, 3, 2] if offered else [4, 4, 4])
    assert (data.n_alternatives, data.n_rows, data.largest) == (
        expected.n_alternatives,
        expected.n_rows,
        expected.largest,
    )


@pytest.mark.parametrize("offered", [None, "open"])
def test_chunks_are_the_product_in_order(offered: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcmcnet.data.catalogue_data.CHUNK_ALTERNATIVES", 5)
    data = visits(offered=offered)
    whole = data.read()
    chunks = list(data.chunks())
    assert len(chunks) > 1
    joined = chunks[0].data
    for chunk in chunks[1:]:
        joined = joined.concat(chunk.data)
    assert joined.fingerprint() == whole.fingerprint()
    assert np.concatenate([chunk.first for chunk in chunks]).tolist() == whole.offsets[:-1].tolist()
    assert np.concatenate([chunk.table_rows for chunk in chunks]).tolist() == list(range(whole.n_rows))
    assert [len(part) for part in data.parts()] == list(data.each(len)) == [len(chunk.data) for chunk in chunks]
    assert data.by_row((chunk.table_rows, chunk.data.features["distance"].plain()) for chunk in chunks).tolist() == (
        whole.features["distance"].plain().tolist()
    )


@pytest.mark.parametrize("offered", [None, "open"])
def test_rows_name_their_items(offered: str | None) -> None:
    data = visits(offered=offered, labels=True)
    labels = data.read().labels
    assert labels is not None
    assert data.ids_of_rows(np.arange(data.n_rows)).tolist() == labels.plain().tolist()


def test_subsets_select_choosers() -> None:
    data = visits(offered="open", person="person", weight="weight")
    assert data.subset([2, 0]).read().fingerprint() == data.read().subset([2, 0]).fingerprint()
    assert data[1:].read().fingerprint() == data.read()[1:].fingerprint()
    assert len(data.with_positive_weight()) == 2
    assert data.groups().tolist() == [0, 1, 0]
    assert data.groups("town").tolist() == [0, 1, 0]
    assert data.groups([5, 5, 7]).tolist() == [0, 0, 1]
    train, test = data.split((0.5, 0.5), seed=0)
    assert sorted([len(train), len(test)]) == [1, 2]
    assert sum(len(held_out) for _, held_out in data.folds(2)) == 3


def test_the_repr_says_what_is_offered() -> None:
    assert repr(visits()) == (
        "CatalogueData(3 choosers, 4 items; 3 features, 2 individual-level columns; choices known)"
    )
    assert "offered up to 3" in repr(visits(offered="open"))


def test_the_fingerprint_depends_on_every_part() -> None:
    prints = [
        visits().fingerprint(),
        visits({"went_to": ["b", "d", "c"]}).fingerprint(),
        visits({"income": [2.0, 3.0, 9.0]}).fingerprint(),
        visits({}, {"size": [1.0, 2.0, 4.0, 9.0]}).fingerprint(),
        visits({"home": [1.0, 7.0, 4.0]}).fingerprint(),
        visits(offered="open").fingerprint(),
    ]
    assert len(set(prints)) == len(prints)
    assert visits().fingerprint() == prints[0]


def test_choices_may_be_unknown() -> None:
    data = visits(chosen=None)
    assert data.read().chosen is None
    assert "choices unknown" in repr(data)
    with pytest.raises(InputError, match="chosen=<column>"):
        data.sample_alternatives(2)


def test_ids_are_matched_as_text() -> None:
    """Integers in one table and floats or text in the other name the same items."""
    shops = {"shop": [1, 2, 3, 4]}
    for choice in ([2, 4, 1], [2.0, 4.0, 1.0], ["2", "4", "1"]):
        assert visits({"went_to": choice}, shops).read().fingerprint() == visits().read().fingerprint()


def test_files_are_read(tmp_path: Path) -> None:
    people = {name: values for name, values in PEOPLE.items() if name != "open"}
    pyarrow.csv.write_csv(pa.table(people), tmp_path / "people.csv")
    pyarrow.csv.write_csv(pa.table(SHOPS), tmp_path / "shops.csv")
    data = ChoiceData.from_catalogue(tmp_path / "people.csv", tmp_path / "shops.csv", **ROLES)
    assert data.read().fingerprint() == written_out().fingerprint()


def test_columns_in_both_tables_are_kept_apart() -> None:
    """A column name that occurs in both tables has the role that is declared for its table."""
    data = visits({"size": [7.0, 8.0, 9.0]}, {"income": [1.0, 1.0, 1.0, 1.0]})
    assert data.read().fingerprint() == written_out().fingerprint()


def test_missing_values_may_be_marked() -> None:
    data = visits({"income": [2.0, None, 1.0]}, {"size": [1.0, None, 4.0, 8.0]}, missing="indicator")
    product = data.read()
    assert np.isnan(product.features["size"].plain()).sum() == 3
    assert np.isnan(product.individual["income"].plain()).sum() == 1


def test_a_large_product_is_not_read() -> None:
    data = replace(visits(), max_bytes=100)
    assert not data.fits
    with pytest.raises(InputError, match=r"3 choosers and 4 items have 12 alternatives.*sample_alternatives"):
        data.read_if_fits()


# -- Samples -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offered", [None, "open"])
@pytest.mark.parametrize("by", ["uniform", "popularity", "kind"])
def test_a_sample_has_the_rows_of_the_product(offered: str | None, by: str) -> None:
    """The sample of a catalogue is the sample of the written product with the same seed."""
    data = visits(offered=offered, labels=True)
    sample, expected = data.sample_alternatives(2, by=by, seed=3), data.read().sample_alternatives(2, by=by, seed=3)
    assert sample.fingerprint() == expected.fingerprint()
    assert sample.expansion is not None


def test_samples_of_large_catalogues_take_little_memory() -> None:
    """A product of 10**10 pairs is never formed."""
    n = 100_000
    people = {"went_to": np.arange(n), "x": np.zeros(n)}
    shops = {"shop": np.arange(n), "size": np.arange(n) / n}
    data = ChoiceData.from_catalogue(people, shops, chosen="went_to", item="shop", individual=["x"], features=["size"])
    assert data.n_rows == 10**10
    sample = data.subset(np.arange(100)).sample_alternatives(5)
    assert sample.sizes.tolist() == [5] * 100
    assert sample.expansion is not None
    assert sample.expansion[0] == n / 5


# -- Pair features -----------------------------------------------------------------------------------------------------


def test_pair_features_are_looked_up_in_a_table() -> None:
    km = {"town": ["X", "X", "Y", "Y"], "kind": ["food", "toys", "food", "toys"], "km": [1.0, 2.0, 3.0, 4.0]}
    data = visits(pair_features={"km": PairTable(km, chooser="town", item="kind", value="km")})
    assert data.read().features["km"].plain().tolist() == [1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2]


def test_pairs_that_are_not_in_the_table_have_the_default() -> None:
    km = {"town": ["X"], "shop": ["a"], "km": [1.0]}
    with pytest.raises(SchemaError, match=r"no row for town='X' and shop='b'.*default="):
        visits(pair_features={"km": PairTable(km, chooser="town", item="shop", value="km")}).read()
    table = PairTable(km, chooser="town", item="shop", value="km", default=9)
    assert visits(pair_features={"km": table}).read().features["km"].plain().tolist() == [1, *[9] * 7, 1, 9, 9, 9]


def test_a_pair_has_one_value() -> None:
    km = {"town": ["X", "X"], "shop": ["a", "a"], "km": [1.0, 2.0]}
    with pytest.raises(SchemaError, match="row 1: the pair town='X', shop='a' has an earlier row"):
        PairTable(km, chooser="town", item="shop", value="km")
    with pytest.raises(SchemaError, match="expected numbers"):
        PairTable(km | {"km": ["near", "far"]}, chooser="town", item="shop", value="km")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda people, shops: people["home"][0], r"expected one number per pair, shape \(12,\), got shape \(\)"),
        (lambda people, shops: people["home"] * np.nan, "row 0 of the choosers and row 0 of the catalogue"),
        (lambda people, shops: people["hom"], "table of the choosers has no such column. Did you mean 'home'"),
        (lambda people, shops: people["town"], "the function raised ValueError"),
        (lambda people, shops: people.home, r"the function raised AttributeError.*choosers\['x'\]"),
        (lambda people, shops: 1 // 0, "the function raised ZeroDivisionError"),
    ],
)
def test_wrong_pair_features_raise(function: Any, message: str) -> None:
    with pytest.raises((InputError, SchemaError), match=message):
        visits(pair_features={"distance": function}).read()


# -- Bad tables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("people", "shops", "roles", "message"),
    [
        ({"went_to": ["b", "z", "a"]}, {}, {}, "choosers: column 'went_to', row 1: the chosen item 'z' is not in the"),
        ({"went_to": ["b", None, None]}, {}, {}, "row 1: expected the id of the chosen item, got nothing; 2 such rows"),
        ({}, {"shop": ["a", "b", "c", "b"]}, {}, "catalogue: column 'shop', row 3: the id 'b' also occurs in row 1"),
        ({}, {"shop": ["a", "b", "c", None]}, {}, "catalogue: column 'shop', row 3: expected the id of an item"),
        (
            {"open": [["b"], ["c"], ["a"]]},
            {},
            {"offered": "open"},
            "row 1: the chosen item 'd' is not among the items in",
        ),
        ({"open": [["b"], [], ["a"]]}, {}, {"offered": "open"}, "row 1: expected a list of item ids, got no item"),
        ({"open": [["b"], None, ["a"]]}, {}, {"offered": "open"}, "row 1: expected a list of item ids, got no item"),
        ({"open": [["b"], ["d", "d"], ["a"]]}, {}, {"offered": "open"}, "row 1: item 'd' is listed twice"),
        ({"open": [["b"], ["d", "x"], ["a"]]}, {}, {"offered": "open"}, "row 1: the item 'x' is not in the catalogue"),
        ({"open": ["b", "d", "a"]}, {}, {"offered": "open"}, "expected lists of item ids, got string"),
        ({}, {}, {"features": ["size", "colour"]}, "catalogue: .*'colour'"),
        ({}, {}, {"individual": ["age"]}, "choosers: .*'age'"),
        ({}, {}, {"item": None}, "item must be the name of a column"),
        ({}, {}, {"features": ["size", "income"], "individual": ["income"]}, "'income' is listed twice"),
        ({}, {}, {"individual": ["income", "kind"], "features": ["size"]}, "'kind' .* declare it in features"),
        ({}, {}, {"features": ["size", "town"], "individual": []}, "'town' .* choosers: declare it in individual"),
        ({}, {"size": [1.0, None, 3.0, 4.0]}, {}, "catalogue: column 'size', row 1: expected a finite number"),
        ({}, {}, {"individual": ["went_to"]}, "'went_to' is declared as chosen and also as a model input"),
        (
            {},
            {},
            {"individual": ["open"], "offered": "open"},
            "'open' is declared as offered and also as a model input",
        ),
        ({}, {}, {"pair_features": {"size": abs}}, "'size' is listed twice"),
        ({}, {}, {"pair_features": {"far": 3}}, "pair_features must map names to functions"),
        ({}, {}, {"pair_features": ["far"]}, "pair_features must map names to functions"),
        ({}, {}, {"categorical": ["distance"]}, "pair features are numbers"),
        ({"chosen": [1, 2, 3]}, {}, {"individual": ["chosen"]}, "chosen"),
        ({}, {}, {"choice_set": "town"}, "column 'town': ids are repeated"),
        ({"income": [1.0, None, 2.0]}, {}, {}, "choosers: column 'income'"),
    ],
)
def test_bad_tables_raise(people: dict[str, Any], shops: dict[str, Any], roles: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        visits(people, shops, **roles)


def test_an_empty_catalogue_raises() -> None:
    empty = {name: values[:0] for name, values in SHOPS.items()}
    with pytest.raises(SchemaError, match="catalogue: the table has no rows"):
        ChoiceData.from_catalogue(PEOPLE, empty, **ROLES)


def test_no_chooser_raises() -> None:
    empty = pa.table(PEOPLE).slice(0, 0)
    with pytest.raises(SchemaError, match="choosers: the table has no rows"):
        ChoiceData.from_catalogue(empty, SHOPS, **ROLES)


def test_unknown_groups_raise() -> None:
    with pytest.raises(SchemaError, match="keep="):
        visits().groups("person")
    with pytest.raises(InputError, match="one value per chooser"):
        visits().groups([1, 2])
