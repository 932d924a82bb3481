"""Cells of a grid as items."""

from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, InputError, SchemaError
from pcmcnet.models.items.binning import Grid


def read(x: list[float], y: list[float], labels: list[str] | None = None, **roles: Any) -> ChoiceData:
    """Sets of two alternatives, the first of which is chosen."""
    n = len(x)
    table: dict[str, Any] = {"set": np.arange(n) // 2, "chosen": (np.arange(n) + 1) % 2, "x": x, "y": y}
    if labels is not None:
        table["label"], roles["alternative"] = labels, "label"
    return ChoiceData.from_long(table, choice_set="set", chosen="chosen", features=["x", "y"], **roles)


def test_bins_have_equal_width_over_the_training_range_and_the_last_feature_counts_fastest() -> None:
    train = read([0, 1, 2, 4], [0, 10, 20, 30])
    grid = Grid.learn(train, {"x": 2, "y": 3})
    assert grid.edges == {"x": (2.0,), "y": (10.0, 20.0)}
    assert grid.index(train).tolist() == [0, 1, 3 + 2, 3 + 2]
    assert len(grid.items) == 6
    assert grid.items[1] == "x (-inf, 2), y [10, 20)"
    assert grid.items[-1] == "x [2, inf), y [20, inf)"


def test_values_beyond_the_training_range_go_to_the_outermost_bins() -> None:
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
        ({"x": 2}, ("a", "b"), r"none is left to be binned"),
        ({"y": 2}, (), r"feature 'y' is 7 throughout training"),
    ],
)
def test_what_cannot_be_binned_is_refused(bins: dict[str, int], identified: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Grid.learn(read([1, 2, 3, 4], [7, 7, 7, 7], ["a", "b", "a", "b"]), bins, identified)


def test_categories_and_gaps_are_refused() -> None:
    with pytest.raises(SchemaError, match="'x' is categorical"):
        Grid.learn(read([1, 2], [1, 2], categorical=["x"]), {"x": 2})
    with pytest.raises(SchemaError, match=r"'y' has 1 missing values \(first in choice set 1\)"):
        Grid.learn(read([1, 2, 3, 4], [1, 2, np.nan, 4], missing="indicator"), {"y": 2})


def test_labels_are_needed_only_where_some_are_identified() -> None:
    with pytest.raises(InputError, match="alternative=<column>"):
        Grid.learn(read([1, 2], [1, 2]), {"x": 2}, ("a",))


@pytest.mark.parametrize("edges", [[2.0, 1.0], [float("nan")]])
def test_damaged_edges_are_refused(edges: list[float]) -> None:
    with pytest.raises(ArtifactError, match="not ascending numbers"):
        Grid.from_dict({"edges": {"x": edges}, "identified": []})
