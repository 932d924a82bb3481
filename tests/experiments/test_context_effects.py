from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet.data.write_files import write_table
from pcmcnet.datasets import mlba
from pcmcnet.errors import SchemaError
from pcmcnet.experiments.context_effects import (
    Fresh,
    networks,
    paper_networks,
    simple_models,
    source,
    training_part,
)
from pcmcnet.models import PCMCNet


def test_the_floor_is_the_likelihood_of_the_choices_under_the_truth() -> None:
    """Two sets; the true probabilities of the choices are .5 and .2, the first is the likeliest of its set."""
    rows = {"choice_set": [1, 1, 1, 2, 2, 2], "alternative": list("abcabc"), "chosen": [1, 0, 0, 0, 0, 1]}
    columns = {"attr1": [4.0, 6, 2] * 2, "attr2": [6.0, 4, 2] * 2, "true_prob": [0.5, 0.3, 0.2, 0.5, 0.3, 0.2]}
    nll, top = Fresh.of(pa.table({**rows, **columns})).floor()
    assert nll == pytest.approx(-(np.log(0.5) + np.log(0.2)) / 2)
    assert top == 0.5


def test_the_networks_are_those_of_the_table_with_their_settings() -> None:
    made = [who.make() for who in networks()]
    assert [model.config.hidden for model in made] == [(16,), (16, 16), (16, 16, 16)]
    papers = {"lr": 0.02, "labels": False, "utility": "none", "weight_decay": 0.01}
    assert all(model.config == PCMCNet(hidden=model.config.hidden, **papers).config for model in made)
    assert [who.label for who in networks(depths=[3])] == ["PCMC-Net 3x16"]
    published = [who.make().config for who in paper_networks(epochs=7)]
    assert {(config.rate, config.batch_size, config.epochs) for config in published} == {("relu", 1, 7)}
    assert paper_networks()[0].label == "PCMC-Net 1x16, the paper's settings"


def test_the_binned_chain_is_that_of_the_paper() -> None:
    config = simple_models()[1].make().config
    assert dict(config.bins) == {"attr1": 8, "attr2": 8}
    assert tuple(config.identified) == ("a", "b")
    assert config.smoothing == 0.1


def test_the_alternatives_are_known_whatever_the_table_calls_them() -> None:
    table = mlba.simulate(10, seed=4)
    for names in (["0", "1", "2"], ["x", "b", "a"]):
        found = training_part(table.set_column(1, "alternative", pa.array(names * 10)), 99, seed=0)  # type: ignore[arg-type]
        assert found.labels is not None
        assert found.labels.plain().tolist() == ["a", "b", "c"] * 10


def test_a_table_of_another_form_is_refused() -> None:
    table = mlba.simulate(10, seed=4)
    moved = table.set_column(2, "attr1", pa.array(np.arange(30.0)))
    with pytest.raises(SchemaError, match=r"expected three alternatives, of which one always has the attributes"):
        training_part(moved, 99, seed=0)  # type: ignore[arg-type]


def test_the_training_part_is_simulated_or_read(tmp_path: Path) -> None:
    made = training_part(None, 10, seed=3)
    write_table(mlba.simulate(10, seed=4), tmp_path / "table.parquet")
    read = training_part(tmp_path / "table.parquet", 99, seed=0)
    assert made.fingerprint() == read.fingerprint()
    assert source(None, made, 3) == "10 (simulated, seed 4)"
    assert source("a/table.parquet", read, 0).startswith("10 (table.parquet, SHA-256 ")


def test_a_table_without_the_columns_is_refused(tmp_path: Path) -> None:
    write_table(pa.table({"choice_set": [1], "chosen": [1]}), tmp_path / "table.csv")
    with pytest.raises(SchemaError, match="no column 'alternative'"):
        training_part(tmp_path / "table.csv", 1, seed=0)
