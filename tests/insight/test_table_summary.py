"""A table in a few numbers, worked out by hand."""

import numpy as np
import pytest

from pcmcnet import ChoiceData
from pcmcnet.insight.table_summary import TableSummary, summarise


@pytest.fixture(scope="module")
def found() -> TableSummary:
    """Weights 1 and 3; prices 2, 4 | 1, 3, 8, the first and the last of them chosen."""
    table = {
        "trip": [1, 1, 2, 2, 2],
        "mode": ["car", "bus", "car", "bus", "bike"],
        "took": [1, 0, 0, 0, 1],
        "price": [2.0, 4.0, 1.0, 3.0, 8.0],
        "gap": [np.nan, 4.0, 1.0, 3.0, np.nan],
        "who": ["a", "a", "b", "b", "b"],
        "w": [1, 1, 3, 3, 3],
    }
    data = ChoiceData.from_long(
        table,
        choice_set="trip",
        chosen="took",
        alternative="mode",
        features=["price", "gap"],
        individual=["who"],
        weight="w",
        missing="indicator",
    )
    return summarise(data)


def test_sets_and_sizes_are_counted(found: TableSummary) -> None:
    assert (found.choice_sets, found.alternatives, found.unweighted, found.has_choices) == (2, 5, False, True)
    assert (found.sizes.tolist(), found.counts.tolist()) == ([2, 3], [1, 1])


def test_a_table_without_labels_says_what_alternatives_are_called(found: TableSummary) -> None:
    assert found.unlabelled is None
    data = ChoiceData.from_long({"trip": [1, 1], "price": [2.0, 4.0]}, choice_set="trip", features=["price"])
    assert summarise(data).unlabelled == "#1 (price 2)"


def test_numbers_have_ranges_and_means_of_what_is_offered_and_chosen(found: TableSummary) -> None:
    """Offered: (1 * 3 + 3 * 4) / 4 = 3.75; chosen: (1 * 2 + 3 * 8) / 4 = 6.5."""
    price = next(column for column in found.columns if column.name == "price")
    assert (price.low, price.median, price.high, price.missing) == (1.0, 3.0, 8.0, 0)
    assert (price.offered, price.chosen) == (3.75, 6.5)


def test_missing_values_take_no_part(found: TableSummary) -> None:
    """Weights of 4 | 1, 3 are 1/2 | 1, 1: offered (2 + 1 + 3) / 2.5; both choices lack the value."""
    gap = next(column for column in found.columns if column.name == "gap")
    assert (gap.low, gap.high, gap.missing) == (1.0, 4.0, 2)
    assert gap.offered == pytest.approx(2.4, rel=1e-12)
    assert gap.chosen is None


def test_categories_come_with_their_shares_and_labels_with_those_of_the_choices(found: TableSummary) -> None:
    first, *_, who = found.columns
    assert (first.name, first.role, first.distinct, first.categories[0]) == ("mode", "label", 3, ("car", 0.4))
    assert (who.role, who.categories) == ("individual", (("a", 0.5), ("b", 0.5)))
    shares = {label.label: (label.offered, label.chosen) for label in found.labels}
    assert shares == {"bike": (0.75, 0.75), "car": (1.0, 0.25), "bus": (1.0, 0.0)}
