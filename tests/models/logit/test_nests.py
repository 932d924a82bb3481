"""Forms, paths and trees of nests, and invalid nests."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.errors import ConfigError
from pcmcnet.models.logit.nests import NestLeaves, NestTree, checked_tree, paths_by_label, read_nests

TREE = {"land": {"road": ["car", "bus"], "rail": ["train"]}, "air": ["plane"]}


def test_each_label_has_its_path() -> None:
    assert paths_by_label(checked_tree(TREE)) == {
        "car": ("land", "road"),
        "bus": ("land", "road"),
        "train": ("land", "rail"),
        "plane": ("air",),
    }
    assert paths_by_label(checked_tree({"car": "road", 2: "rail"})) == {"car": ("road",), "2": ("rail",)}


def test_parents_precede_children_and_empty_nests_are_omitted() -> None:
    paths = [("land", "road"), ("air",), ("land", "rail"), ("sea",)]
    tree = NestTree.of(NestLeaves(np.arange(4), np.array([0, 1, 0, 2]), paths))
    assert tree.names == ("air", "land", "rail", "road")
    assert tree.parents == (-1, -1, 1, 1)
    # Relative log-sums of land, road and rail: those of the children multiply that of land.
    expected = [[0, 0, 0], [1, 0, 0], [1, 0, 1], [1, 1, 0]]
    assert tree.counts([-1, 0, 2, 1], 3).tolist() == expected


@pytest.mark.parametrize(
    ("nests", "problem"),
    [
        ([], r"nests must be the name of a feature, or a mapping from labels to nests; got \[\]"),
        (
            {"land": ["car"], "air": "plane"},
            r"nests\['air'\]: expected labels, such as \['car', 'bus'\], .* got 'plane'",
        ),
        ({"land": {"road": []}}, r"nests\['land'\]\['road'\]: expected labels"),
        ({"land": {}}, r"nests\['land'\]: expected labels"),
        ({"land": [["car"]]}, r"nests\['land'\]: expected labels"),
        (
            {"a": ["car", "bus"], "b": {"c": ["car"]}},
            "'car' is in two nests, 'a' and 'c': .* cross-nested-mnl",
        ),
        ({"a": {"b": ["car", "bus", "car"]}}, r"nests\['a'\]\['b'\] contains 'car' twice: remove one"),
        ({"a": {"b": ["car"]}, "b": ["bus"]}, "two nests are called 'b': rename one of them"),
    ],
)
def test_invalid_trees_are_refused(nests: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        checked_tree(nests)


def test_nests_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "nests.toml"
    file.write_text('air = ["plane"]\n[land]\nroad = ["car", "bus"]\nrail = ["train"]\n')
    assert read_nests(file) == TREE
    file.write_text("air = plane")
    with pytest.raises(ConfigError, match=r"nests: .*nests.toml is not a valid TOML file"):
        read_nests(file)
    with pytest.raises(ConfigError, match=r"nests: cannot read .*lost.toml: No such file"):
        read_nests(tmp_path / "lost.toml")
