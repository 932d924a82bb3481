from typing import Any

import torch

from choice_tables import ROLES, trips
from pcmcnet.data import ChoiceData, Encoder
from pcmcnet.models.context_logits.plain_columns import Indicators, entry_names, plain_columns


def test_a_category_is_a_1_in_its_place_and_one_never_seen_is_nowhere() -> None:
    assert Indicators(3)(torch.tensor([0, 2, 3])).tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_columns_have_no_weights_and_their_entries_have_names() -> None:
    side = Encoder.learn(ChoiceData.from_long(trips(), **ROLES), labels=True).features
    columns = plain_columns(side)
    assert not list(columns.parameters())
    names = entry_names(side, columns)
    assert len(names) == columns.width == columns(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.int64)).shape[-1]
    assert names[-2:] == ["price", "minutes"]
    assert names[0] == f"{side.categorical[0].name}={side.categorical[0].categories[0]}"


def test_contents_curves_and_many_categories_have_numbered_entries() -> None:
    table: dict[str, Any] = trips(200)
    rows = len(table["trip"])
    table["seat"] = [f"seat {k % 60}" for k in range(rows)]
    table["spot"] = [[float(k % 7), float(k % 5)] for k in range(rows)]
    kinds = {"spot": "vector", "price": "spline"}
    roles = ROLES | {"features": ["price", "seat", "spot"], "kinds": kinds}
    side = Encoder.learn(ChoiceData.from_long(table, **roles)).features
    columns = plain_columns(side)
    names = entry_names(side, columns)
    assert len(names) == columns.width
    assert {"seat[1]", "seat[30]", "spot[1]", "price[1]", "price"} <= set(names)
    assert any(parameter.requires_grad for parameter in columns.parameters())
