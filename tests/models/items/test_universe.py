"""Items of the training part, and distinct sets with their counts."""

from typing import Any

import numpy as np
import pytest

from choice_tables import item_choices
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, InputError, SchemaError
from pcmcnet.models.items.universe import (
    DistinctSets,
    Grid,
    Universe,
    first_item_names,
    padded_batches,
    require_informative_sets,
    require_labels,
)


def test_the_universe_is_the_sorted_labels_of_the_training_part() -> None:
    data = item_choices([("cb", "c"), ("ad", "a")]).subset([0])
    assert data.labels is not None
    assert set(data.labels.categories) == {"a", "b", "c", "d"}  # of the whole table
    universe = Universe.learn(data)
    assert universe.items == ("b", "c")
    assert universe.index(data).tolist() == [1, 0]
    assert Universe.from_dict(universe.to_dict()) == universe


def test_an_unseen_item_is_named_with_its_set_and_a_count() -> None:
    universe = Universe.learn(item_choices([("ab", "a")]))
    message = (
        r"item 'z' \(choice set 1\) is not among the 2 items .* 3 such alternatives in 2 choice sets, "
        r"2 distinct items\. .* PCMC-Net \(pcmcnet\)"
    )
    with pytest.raises(InputError, match=message):
        universe.index(item_choices([("ab", "a"), ("azy", "a"), ("bz", "b")]))


def test_a_table_without_labels_is_refused_with_a_remedy() -> None:
    data = ChoiceData.from_long({"set": [0, 0], "chosen": [1, 0]}, choice_set="set", chosen="chosen")
    with pytest.raises(InputError, match=r"alternative=<column> \(--alternative\).*PCMC-Net"):
        require_labels(data)


@pytest.mark.parametrize("items", [[], ["a", "a"], ["a", 1]])
def test_damaged_items_are_refused(items: list[Any]) -> None:
    with pytest.raises(ArtifactError, match="not distinct names"):
        Universe.from_dict({"items": items})


def test_equal_sets_are_merged_with_summed_weights() -> None:
    data = item_choices([("ab", "a"), ("ba", "a"), ("cab", "c"), ("ab", "b"), ("b", "b")], [1, 2, 4, 8, 16])
    sets = DistinctSets.of(data, Universe.learn(data).index(data))
    result = {
        tuple(sets.items[a:b].tolist()): sets.counts[a:b].tolist()
        for a, b in zip(sets.offsets[:-1], sets.offsets[1:], strict=True)
    }
    assert result == {(1,): [16], (0, 1): [3, 8], (0, 1, 2): [0, 0, 4]}
    assert sets.smoothed(0.5).counts.sum() == 31 + 0.5 * 6
    # Values of items in distinct sets are mapped back to alternatives in table order.
    assert sets.items[sets.entry].tolist() == [0, 1, 1, 0, 2, 0, 1, 0, 1, 1]
    assert sets.copies.tolist() == [1] * 10


def test_copies_of_an_item_share_its_probability() -> None:
    data = item_choices([("abc", "b"), ("ab", "a")])
    sets = DistinctSets.of(data, np.array([5, 5, 7, 5, 7]))  # a and b of the first set are one item
    assert len(sets.sizes) == 1
    assert sets.items.tolist() == [5, 7]
    assert sets.counts.tolist() == [2, 0]
    np.testing.assert_allclose(
        sets.to_alternatives(np.log([0.6, 0.4])), np.log([0.3, 0.3, 0.4, 0.6, 0.4]), rtol=0, atol=1e-15
    )


def test_pairs_are_different_items_of_one_set() -> None:
    data = item_choices([("ab", "a"), ("abc", "a"), ("c", "c")])
    sets = DistinctSets.of(data, Universe.learn(data).index(data))
    left, right = sets.pairs()
    expected = [
        (a, b)
        for begin, end in zip(sets.offsets[:-1], sets.offsets[1:], strict=True)
        for a in range(begin, end)
        for b in range(begin, end)
        if a != b
    ]
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == expected
    assert len(expected) == 2 + 6


def test_padded_batches_hold_every_entry_once() -> None:
    data = item_choices([("ab", "a"), ("abcd", "d"), ("c", "c")])
    sets = DistinctSets.of(data, Universe.learn(data).index(data))
    entries, total = [], 0.0
    for batch in sets.batches():
        entries += batch.flat[batch.mask.numpy()].tolist()
        total += float(batch.counts.sum())
        assert float(batch.counts[~batch.mask].sum()) == 0
    assert sorted(entries) == list(range(7))
    assert total == 3
    assert [mask.shape for _, mask in padded_batches(sets.offsets, pair_budget=4)] == [(1, 1), (1, 2), (1, 4)]


def test_an_empty_table_has_no_distinct_sets() -> None:
    data = item_choices([("ab", "a")]).subset([])
    sets = DistinctSets.of(data, np.empty(0, np.int64))
    assert len(sets.sizes) == 0
    assert list(sets.batches()) == []
    assert sets.to_alternatives(np.empty(0)).shape == (0,)


def test_sets_of_weight_0_are_skipped_and_choices_are_required() -> None:
    assert len(require_informative_sets(item_choices([("ab", "a"), ("cd", "c")], [1, 0]))) == 1
    with pytest.raises(InputError, match="nothing to learn"):
        require_informative_sets(item_choices([("a", "a"), ("cd", "c")], [1, 0]))


def test_long_lists_of_names_are_truncated() -> None:
    assert first_item_names("abcdefg", np.arange(7)) == "'a', 'b', 'c', 'd', 'e' and 2 more"
    assert first_item_names("ab", np.arange(2)) == "'a', 'b'"


# -- Bins --------------------------------------------------------------------------------------------------------------
# Cells of a grid as items.


def read(x: list[float], y: list[float], labels: list[str] | None = None, **roles: Any) -> ChoiceData:
    """Return sets of two alternatives. The first is chosen."""
    n = len(x)
    table: dict[str, Any] = {"set": np.arange(n) // 2, "chosen": (np.arange(n) + 1) % 2, "x": x, "y": y}
    if labels is not None:
        table["label"], roles["alternative"] = labels, "label"
    return ChoiceData.from_long(table, choice_set="set", chosen="chosen", features=["x", "y"], **roles)


def test_bins_have_equal_width_and_the_last_feature_varies_fastest() -> None:
    train = read([0, 1, 2, 4], [0, 10, 20, 30])
    grid = Grid.learn(train, {"x": 2, "y": 3})
    assert grid.edges == {"x": (2.0,), "y": (10.0, 20.0)}
    assert grid.index(train).tolist() == [0, 1, 3 + 2, 3 + 2]
    assert len(grid.items) == 6
    assert grid.items[1] == "x (-inf, 2), y [10, 20)"
    assert grid.items[-1] == "x [2, inf), y [20, inf)"


def test_values_beyond_the_training_range_are_in_the_outermost_bins() -> None:
    grid = Grid.learn(read([0, 1, 2, 4], [0, 1, 2, 3]), {"x": 4})
    assert grid.index(read([-100, 100], [0, 0])).tolist() == [0, 3]


def test_identified_labels_keep_their_items_and_do_not_set_the_range() -> None:
    train = read([-50, 0, 99, 8], [0, 1, 2, 3], ["a", "c", "b", "c"])
    grid = Grid.learn(train, {"x": 2}, ("b", "a"))
    assert grid.edges == {"x": (4.0,)}
    assert grid.items == ("b", "a", "x (-inf, 4)", "x [4, inf)")
    assert grid.index(train).tolist() == [1, 2, 0, 3]
    assert Grid.from_dict(grid.to_dict()) == grid


@pytest.mark.parametrize(
    ("bins", "identified", "message"),
    [
        ({"z": 2}, (), r"no feature 'z'"),
        ({"x": 2}, ("bb",), r"labelled 'bb'"),
        ({"x": 2}, ("a", "b"), r"none is left to bin"),
        ({"y": 2}, (), r"feature 'y' has the single value 7"),
    ],
)
def test_columns_that_cannot_be_binned_are_refused(
    bins: dict[str, int], identified: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Grid.learn(read([1, 2, 3, 4], [7, 7, 7, 7], ["a", "b", "a", "b"]), bins, identified)


def test_categories_and_missing_values_are_refused() -> None:
    with pytest.raises(SchemaError, match="numeric feature, got 'x'"):
        Grid.learn(read([1, 2], [1, 2], categorical=["x"]), {"x": 2})
    with pytest.raises(SchemaError, match=r"'y' has 1 missing values \(first in choice set 1\)"):
        Grid.learn(read([1, 2, 3, 4], [1, 2, np.nan, 4], missing="indicator"), {"y": 2})


def test_labels_are_needed_only_if_some_are_identified() -> None:
    with pytest.raises(InputError, match="alternative=<column>"):
        Grid.learn(read([1, 2], [1, 2]), {"x": 2}, ("a",))


@pytest.mark.parametrize("edges", [[2.0, 1.0], [float("nan")]])
def test_damaged_edges_are_refused(edges: list[float]) -> None:
    with pytest.raises(ArtifactError, match="not ascending numbers"):
        Grid.from_dict({"edges": {"x": edges}, "identified": []})
