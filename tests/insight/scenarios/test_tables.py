"""Tables of scenarios: columns beside the model's, and tables that somebody else has changed."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from choice_tables import read
from pcmcnet import MNL, ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.scenarios.offers import Extent, Offer
from pcmcnet.insight.scenarios.tables import changed_by, read_sets

TABLE: dict[str, Any] = {
    "trip": [1, 1, 2, 2],
    "took": [1, 0, 0, 1],
    "mode": ["car", "bus", "car", "bus"],
    "price": [2.0, 4.0, 3.0, 5.0],
    "income": [10.0, 10.0, 20.0, 20.0],
}
ROLES: dict[str, Any] = {"alternative": "mode", "features": ["price"], "individual": ["income"]}


def test_a_table_is_read_with_the_columns_that_are_named() -> None:
    model = MNL(formula="price | 0").fit(read(TABLE, **ROLES))
    rows = pa.table({**TABLE, "region": ["n", "n", "s", "s"], "margin": [1, 2, 3, 4]}).drop_columns(["took"])
    found = read_sets(model, rows, ["region", "margin", "price", "nothing"])
    assert found.chosen is None
    assert found.features["region"].plain().tolist() == ["n", "n", "s", "s"]
    assert found.features["margin"].plain().tolist() == [1, 2, 3, 4]
    assert list(found.features) == ["price", "region", "margin"]


def test_new_gone_and_changed_alternatives_are_found_by_label() -> None:
    """The second set comes first, has a dearer bus, a tram and no car."""
    before = read(TABLE, **ROLES)
    after = read(
        {
            "trip": [2, 2, 1, 1],
            "took": [1, 0, 0, 1],
            "mode": ["bus", "tram", "bus", "car"],
            "price": [6.0, 1.0, 4.0, 2.0],
            "income": [20.0, 20.0, 10.0, 10.0],
        },
        **ROLES,
    )
    offer, extent = changed_by(Offer.of(before), after)
    assert offer.data.set_ids.tolist() == [1, 2]
    assert offer.names is not None
    assert offer.names.tolist() == ["bus", "car", "bus", "tram"]
    assert offer.origin.tolist() == [1, 0, 3, -1]
    assert offer.touched.tolist() == [False, False, True, True]
    assert offer.lost.tolist() == [False, False, True, False]
    assert extent == Extent(2, 1)


def test_without_labels_places_count_and_individuals_may_change() -> None:
    roles = {**ROLES, "alternative": None}
    before = read(TABLE, **roles)
    after = read({**TABLE, "income": [10.0, 10.0, 25.0, 25.0]}, **roles)
    offer, _ = changed_by(Offer.of(before), after)
    assert offer.touched.tolist() == [False, False, True, True]
    offer, _ = changed_by(Offer.of(before), {"income": [10.0, 25.0]})
    assert offer.touched.tolist() == [False, False, True, True]


def test_another_tables_sets_or_columns_are_refused() -> None:
    before = read(TABLE, **ROLES)
    with pytest.raises(InputError, match="has the 2 choice sets of the first one, got the choice set 9"):
        changed_by(Offer.of(before), read({**TABLE, "trip": [1, 1, 9, 9]}, **ROLES))
    with pytest.raises(InputError, match="has the 2 choice sets of the first one, got 1 choice sets"):
        changed_by(Offer.of(before), before.subset([0]))
    with pytest.raises(InputError, match="has the same columns as the first one"):
        changed_by(Offer.of(before), read({**TABLE, "x": [1, 2, 3, 4]}, **{**ROLES, "features": ["price", "x"]}))
    with pytest.raises(InputError, match="this one returned list"):
        changed_by(Offer.of(before), [1])


def test_categories_of_other_lists_are_compared_by_name() -> None:
    roles = {**ROLES, "features": ["price", "seat"]}
    before = read({**TABLE, "seat": ["a", "b", "a", "b"]}, **roles)
    after = read({**TABLE, "seat": ["b", "b", "a", "c"]}, **roles)
    offer, _ = changed_by(Offer.of(before), after)
    assert offer.touched.tolist() == [True, False, False, True]
    assert isinstance(offer.data, ChoiceData)
    assert np.array_equal(offer.origin, np.arange(4))


def test_a_model_of_a_wide_table_reads_wide_tables() -> None:
    table = {"choice": [1, 2, 1, 2], "car_p": [1.0, 4.0, 2.0, 3.0], "bus_p": [2.0, 3.0, 2.5, 4.0]}
    roles: dict[str, Any] = {"alternatives": {"car": 1, "bus": 2}, "features": {"p": "{alternative}_p"}}
    data = ChoiceData.from_wide(table, chosen="choice", **roles)
    model = MNL(formula="p | 0").fit(data)
    for rows in (table, {k: v for k, v in table.items() if k != "choice"}):
        found = read_sets(model, pa.table(rows), ["p"])
        assert found.features["p"].plain().tolist() == [1.0, 2.0, 4.0, 3.0, 2.0, 2.5, 3.0, 4.0]
