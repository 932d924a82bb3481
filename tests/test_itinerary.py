"""The raw itinerary table of larch: an error, then a fit with results in table order."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pcmcnet as pn
from pcmcnet.datasets import packaged
from pcmcnet.errors import DatasetError, SchemaError

ROLES: dict[str, Any] = packaged.TABLES["itinerary"].roles
VARYING = ("dtd", "depWeekDay", "staySaturday")


@pytest.fixture(scope="module")
def table() -> pa.Table:
    try:
        return packaged.load("itinerary")
    except DatasetError as error:
        pytest.skip(str(error))


def fit(table: pa.Table, roles: dict[str, Any]) -> pn.PCMCNet:
    data = pn.ChoiceData.from_long(table, **roles)
    return pn.PCMCNet(hidden=(8,), epochs=2, weight_decay=0.0).fit(data, progress=False)


def test_a_varying_column_is_refused_with_a_remedy(table: pa.Table) -> None:
    message = r"'dtd' varies within 396 choice sets \(first: 7, 9, 11, 13, 14\).*conflict='first'"
    with pytest.raises(SchemaError, match=message):
        pn.ChoiceData.from_long(table, **{**ROLES, "conflict": "error"})


def test_conflict_first_fits_and_single_itineraries_are_certain(table: pa.Table) -> None:
    model = fit(table, ROLES)
    p = model.predict_proba(table)
    owner = table["individual"].to_numpy()
    totals = np.bincount(np.unique(owner, return_inverse=True)[1], weights=p)
    np.testing.assert_allclose(totals, 1, rtol=0, atol=1e-5)  # sums of up to 50 float32 numbers
    ids, counts = np.unique(owner, return_counts=True)
    alone = np.isin(owner, ids[counts == 1])
    assert alone.sum() == 3
    assert (p[alone] == 1).all()


def test_probabilities_follow_the_rows_in_any_order(table: pa.Table) -> None:
    """Without the columns that vary, the order of rows does not matter."""
    constant = [name for name in ROLES["individual"] if name not in VARYING]
    model = fit(table, {**ROLES, "individual": constant, "conflict": "error"})
    order = np.random.default_rng(0).permutation(table.num_rows)
    np.testing.assert_allclose(
        model.predict_proba(table.take(order)), model.predict_proba(table)[order], rtol=0, atol=1e-6
    )
