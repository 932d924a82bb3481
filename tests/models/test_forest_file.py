import importlib
import io
import json
import operator
import sys
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import skops.io
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError
from pcmcnet.models import RandomForest, load
from pcmcnet.models.random_forest import FOREST_FILE


@pytest.fixture(scope="module")
def forest(trips: ChoiceData) -> RandomForest:
    """A fitted model that tests must not change."""
    model: RandomForest = RandomForest(trees=20, min_samples_leaf=2).fit(trips)
    return model


def restore(forest: RandomForest, content: bytes) -> None:
    files = {**forest._files(), FOREST_FILE: content}
    RandomForest(**asdict(forest.config))._restore(files, forest.record_, forest.table_)


def test_a_file_with_other_types_is_not_read(forest: RandomForest) -> None:
    strange = skops.io.dumps(operator.methodcaller("lower"))
    with pytest.raises(ArtifactError, match=r"forest.skops holds a methodcaller, expected a RandomForestClassifier"):
        restore(forest, strange)


def test_names_in_the_file_are_not_imported(forest: RandomForest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *_: Any) -> NoReturn:
        raise AssertionError(f"{name} was imported")

    content = forest._files()[FOREST_FILE]
    monkeypatch.setattr(importlib, "import_module", refuse)
    monkeypatch.setitem(sys.modules, "skops", None)
    restore(forest, content)


def other_forests() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.integers(0, 2, 50)
    return {
        "holds a ExtraTreesClassifier, expected": ExtraTreesClassifier(2).fit(X, y),
        "holds a dict, expected a RandomForestClassifier": {"trees": 3},
        "holds 2 trees, expected 20": RandomForestClassifier(2).fit(X, y),
        "does not match the saved inputs": RandomForestClassifier(20).fit(X, y),
    }


@pytest.mark.parametrize("message", list(other_forests()))
def test_a_file_of_another_object_is_refused(message: str, forest: RandomForest) -> None:
    with pytest.raises(ArtifactError, match=message):
        restore(forest, skops.io.dumps(other_forests()[message]))


@pytest.mark.parametrize("content", [b"", b"no forest", "half"])
def test_a_damaged_file_is_refused(content: bytes | str, forest: RandomForest) -> None:
    whole = forest._files()[FOREST_FILE]
    with pytest.raises(ArtifactError, match=r"forest\.skops cannot be read"):
        restore(forest, whole[: len(whole) // 2] if isinstance(content, str) else content)


def unpacked(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(parts: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return whole.getvalue()


def rewritten(content: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return the file with other plain values in its fourth tree, or with other arrays."""
    parts = unpacked(content)
    schema = json.loads(parts["schema.json"])
    node = schema["content"]["content"]["estimators_"]["content"][3]["content"]["content"]["tree_"]
    arguments, state = node["__reduce__"]["args"]["content"], node["content"]["content"]
    plain = {"inputs": arguments[0], "outputs": arguments[2], "depth": state["max_depth"], "count": state["node_count"]}
    files = {"classes": arguments[1], "nodes": state["nodes"], "values": state["values"]}
    tree: dict[str, Any] = {name: json.loads(entry["content"]) for name, entry in plain.items()}
    tree |= {name: np.load(io.BytesIO(parts[entry["file"]])) for name, entry in files.items()}
    change(tree)
    for name, entry in plain.items():
        entry["content"] = json.dumps(tree[name])
    for name, entry in files.items():
        file = io.BytesIO()
        np.save(file, tree[name])
        parts[entry["file"]] = file.getvalue()
    return packed({**parts, "schema.json": json.dumps(schema).encode()})


def node(field: str, value: float, at: int = 0) -> Callable[[dict[str, Any]], None]:
    def change(tree: dict[str, Any]) -> None:
        tree["nodes"][field][at] = value

    return change


def twice(tree: dict[str, Any]) -> None:
    """The first two nodes share a child."""
    tree["nodes"]["right_child"][0] = tree["nodes"]["left_child"][0]


DAMAGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "a child beyond the last node": node("left_child", 10**6),
    "a child below none": node("left_child", -7),
    "a path in a circle": node("right_child", 0),
    "one child of two": node("right_child", -1),
    "a node with two parents": twice,
    "an input beyond the last": node("feature", 99),
    "an input below the first": node("feature", -1),
    "no number to compare with": node("threshold", np.nan),
    "no weight": node("weighted_n_node_samples", 0.0),
    "more weight than the whole tree": node("weighted_n_node_samples", 1e9, at=-1),
    "an infinite impurity": node("impurity", np.inf),
    "a share that is no number": lambda tree: tree["values"].__setitem__(0, np.nan),
    "a share below 0": lambda tree: tree["values"].__setitem__(0, [[-1.0, 2.0]]),
    "shares that are counts": lambda tree: tree.update(values=tree["values"] * 7),
    "shares of three classes": lambda tree: tree.update(values=np.repeat(tree["values"], 2, axis=2)),
    "fewer shares than nodes": lambda tree: tree.update(values=tree["values"][:-1]),
    "another number of nodes": lambda tree: tree.update(count=tree["count"] - 1),
    "another depth": lambda tree: tree.update(depth=1),
    "no node": lambda tree: tree.update(nodes=tree["nodes"][:0], values=tree["values"][:0], count=0, depth=0),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_malformed_trees_are_refused(damage: str, forest: RandomForest) -> None:
    with pytest.raises(ArtifactError, match="holds a damaged tree"):
        restore(forest, rewritten(forest._files()[FOREST_FILE], DAMAGES[damage]))


@pytest.mark.parametrize("claim", [{"inputs": 1}, {"inputs": 10**9}, {"outputs": 2}, {"inputs": "7"}])
def test_a_tree_with_a_wrong_number_of_inputs_is_refused(claim: dict[str, Any], forest: RandomForest) -> None:
    """scikit-learn would write the importances of all inputs into an array of one."""
    with pytest.raises(ArtifactError, match="does not match the saved inputs"):
        restore(forest, rewritten(forest._files()[FOREST_FILE], lambda tree: tree.update(claim)))


def test_a_file_that_would_exhaust_memory_is_not_read(forest: RandomForest) -> None:
    parts = unpacked(forest._files()[FOREST_FILE])
    with pytest.raises(ArtifactError, match=r"forest.skops has [\d,]+ bytes, and 50,\d\d\d,\d\d\d when unpacked"):
        restore(forest, packed({**parts, "zeros": bytes(50_000_000)}))


def test_an_array_belongs_to_one_tree(forest: RandomForest) -> None:
    """A small archive that reuses one large array for many trees would exhaust memory."""
    parts = unpacked(forest._files()[FOREST_FILE])
    schema = json.loads(parts["schema.json"])
    trees = schema["content"]["content"]["estimators_"]["content"]
    trees[:] = trees[:1] * len(trees)
    with pytest.raises(ArtifactError, match=r"forest\.skops cannot be read"):
        restore(forest, packed({**parts, "schema.json": json.dumps(schema).encode()}))


def test_a_loaded_forest_can_be_saved_and_loaded(forest: RandomForest, trips: ChoiceData, tmp_path: Path) -> None:
    again = load(load(forest.save(tmp_path / "one")).save(tmp_path / "two"))
    np.testing.assert_array_equal(again.predict_log_proba(trips), forest.predict_log_proba(trips))
    assert str(again.summary()) == str(forest.summary())


def test_saving_without_skops_names_the_package(
    forest: RandomForest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = forest.save(tmp_path / "saved")
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.delitem(sys.modules, "skops.io", raising=False)
    with pytest.raises(ArtifactError, match="run `pip install skops`"):
        forest.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert load(folder).num_parameters == forest.num_parameters  # reading does not need skops
