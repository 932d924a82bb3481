"""A table in a few numbers, worked out by hand."""

from collections.abc import Callable

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData, PCMCNet, RankBy
from pcmcnet.errors import InputError
from pcmcnet.insight.chain import chain
from pcmcnet.insight.removals import attribution
from pcmcnet.insight.table_summary import ExampleSet, TableSummary, example_sets, summarise_table
from pcmcnet.models.interface.choice_model import ChoiceModel


@pytest.fixture(scope="module")
def summary() -> TableSummary:
    """Return the summary of two sets with weights 1 and 3 and prices 2, 4 | 1, 3, 8; first and last are chosen."""
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
    return summarise_table(data)


def test_sets_and_sizes_are_counted(summary: TableSummary) -> None:
    assert (summary.choice_sets, summary.alternatives, summary.unweighted, summary.has_choices) == (2, 5, False, True)
    assert (summary.sizes.tolist(), summary.counts.tolist()) == ([2, 3], [1, 1])


def test_an_unlabelled_table_shows_an_example_name(summary: TableSummary) -> None:
    assert summary.unlabelled is None
    data = ChoiceData.from_long({"trip": [1, 1], "price": [2.0, 4.0]}, choice_set="trip", features=["price"])
    assert summarise_table(data).unlabelled == "#1 (price 2)"


def test_numbers_have_ranges_and_means(summary: TableSummary) -> None:
    """Offered: (1 * 3 + 3 * 4) / 4 = 3.75; chosen: (1 * 2 + 3 * 8) / 4 = 6.5."""
    price = next(column for column in summary.columns if column.name == "price")
    assert (price.low, price.median, price.high, price.missing) == (1.0, 3.0, 8.0, 0)
    assert (price.offered, price.chosen) == (3.75, 6.5)


def test_missing_values_are_ignored(summary: TableSummary) -> None:
    """Weights of 4 | 1, 3 are 1/2 | 1, 1: offered (2 + 1 + 3) / 2.5; both choices lack the value."""
    gap = next(column for column in summary.columns if column.name == "gap")
    assert (gap.low, gap.high, gap.missing) == (1.0, 4.0, 2)
    assert gap.offered == pytest.approx(2.4, rel=1e-12)
    assert gap.chosen is None


def test_categories_and_labels_have_shares(summary: TableSummary) -> None:
    first, *_, who = summary.columns
    assert (first.name, first.role, first.distinct, first.categories[0]) == ("mode", "label", 3, ("car", 0.4))
    assert (who.role, who.categories) == ("individual", (("a", 0.5), ("b", 0.5)))
    shares = {label.label: (label.offered, label.chosen) for label in summary.labels}
    assert shares == {"bike": (0.75, 0.75), "car": (1.0, 0.25), "bus": (1.0, 0.0)}


# -- Example sets ------------------------------------------------------------------------------------------------------
# Three example sets: how they are selected, and what they contain.


Make = Callable[..., ChoiceData]


def by_kind(model: ChoiceModel, data: ChoiceData) -> dict[str, ExampleSet]:
    return {example.kind: example for example in example_sets(model, data)}


def test_examples_include_the_least_probable_choice(driven: ChoiceData) -> None:
    model = MNL().fit(driven)
    summary = by_kind(model, driven)
    p = model.predict_proba(driven)
    fit = np.flatnonzero((driven.sizes > 1) & (driven.weights > 0))
    assert driven.chosen is not None
    chosen = driven.from_rows(p)[driven.offsets[:-1] + driven.chosen]
    least = fit[np.argmin(chosen[fit])]
    assert summary["surprising"].choice_set == driven.set_ids[least]
    assert summary["surprising"].nll == pytest.approx(-np.log(chosen[least]), rel=1e-12)
    assert len(summary["large"].p) == driven.sizes.max()
    assert len({example.choice_set for example in summary.values()}) == 3
    typical = summary["typical"].nll
    assert typical is not None
    assert abs(typical - np.median(-np.log(chosen[fit]))) < 0.2


@pytest.mark.parametrize("labels", [True, False])
def test_examples_contain_attribution_and_chain(make_driven: Make, labels: bool) -> None:
    data = make_driven(labels=labels)
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    example = by_kind(model, data)["surprising"]
    assert example.attribution is not None
    assert example.attribution.to_dict() == attribution(model, data, example.choice_set).to_dict()
    assert example.chosen is not None
    assert example.attribution.alternative == example.names[example.chosen]
    assert example.chain is not None
    assert example.chain.to_dict() == chain(model, data, example.choice_set).to_dict()
    assert example.chain.labels == example.names
    assert example.p.sum() == pytest.approx(1, abs=1e-6)  # a network computes in float32
    assert {len(values) for values in example.columns.values()} == {len(example.p)}
    assert set(example.individual) == {"income", "purpose"}


def test_without_choices_the_most_uncertain_set_is_shown(make_driven: Make) -> None:
    data = make_driven(chosen=None)
    model = MNL().fit(make_driven())
    summary = by_kind(model, data)
    assert list(summary) == ["typical", "uncertain", "large"]
    assert summary["uncertain"].nll is None
    p = summary["uncertain"].p
    entropy = -(p * np.log(p)).sum() / np.log(len(p))
    assert entropy > 0.9
    assert summary["uncertain"].attribution is not None


def test_no_set_is_large_if_all_have_the_same_size(driven: ChoiceData) -> None:
    alike = driven.subset(driven.sizes == 3)
    assert list(by_kind(MNL().fit(driven), alike)) == ["typical", "surprising"]


def test_a_ranking_has_examples_without_attribution(driven: ChoiceData) -> None:
    summary = by_kind(RankBy(column="price").fit(driven), driven)
    surprising = summary["surprising"]
    assert surprising.attribution is None
    assert surprising.chain is None
    assert surprising.chosen is not None
    prices = surprising.columns["price"]
    assert sorted(prices).index(prices[surprising.chosen]) >= 1


def test_sets_of_one_alternative_give_no_example(driven: ChoiceData) -> None:
    with pytest.raises(InputError, match="two alternatives and a positive weight, found none"):
        example_sets(MNL().fit(driven), driven.subset(driven.sizes == 1))


def test_a_table_of_one_set_has_one_example(driven: ChoiceData) -> None:
    assert [e.kind for e in example_sets(MNL().fit(driven), driven.subset([2]))] == ["typical"]
