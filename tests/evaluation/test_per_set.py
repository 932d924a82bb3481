"""A scanned table is evaluated shard by shard, to the same report as in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pcmcnet as pn
from choice_tables import trips
from pcmcnet.errors import InputError
from pcmcnet.evaluation.in_sample import seen_by

ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "features": ["price", "minutes"],
    "available": "open",
    "weight": "weight",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 sets of 2 to 6 alternatives, of which some are not available; some sets have no weight."""
    rows = trips(300, sizes=(2, 6), slope=-0.1, mixed=True)
    rows["weight"] = (rows["trip"] % 4).astype(float)
    path = tmp_path_factory.mktemp("table") / "trips.parquet"
    pq.write_table(pa.table(rows), path)
    return path


@pytest.fixture(scope="module")
def in_memory(table: Path) -> pn.ChoiceData:
    return pn.ChoiceData.from_long(table, **ROLES)


@pytest.fixture(scope="module")
def scanned(table: Path) -> pn.ScannedData:
    found = pn.ChoiceData.scan(table, memory="1 MiB", **ROLES)
    assert len(found.manifest.shards) > 2
    return found


@pytest.mark.parametrize("model", [pn.MNL(), pn.RankBy(column="price")], ids=["mnl", "ranking"])
def test_the_report_is_that_of_the_table_in_memory(
    model: Any, scanned: pn.ScannedData, in_memory: pn.ChoiceData
) -> None:
    model.fit(in_memory)
    found, expected = (pn.evaluate(model, data, (1, 2), resamples=50) for data in (scanned, in_memory))
    assert found.to_dict() == expected.to_dict()
    assert found.n_sets == 300


def test_a_part_of_a_split_is_evaluated_alone(scanned: pn.ScannedData, in_memory: pn.ChoiceData) -> None:
    model = pn.MNL().fit(in_memory)
    part, _ = scanned.split((0.5, 0.5))
    assert pn.evaluate(model, part, resamples=20) == pn.evaluate(model, part.read(), resamples=20)


def test_known_probabilities_are_for_tables_in_memory(scanned: pn.ScannedData, in_memory: pn.ChoiceData) -> None:
    with pytest.raises(InputError, match=r"truth is for choice sets in memory: evaluate data.sample"):
        pn.evaluate(pn.MNL().fit(in_memory), scanned, truth=np.ones(scanned.n_rows))


def test_what_a_model_was_trained_on_is_known_of_a_scanned_table_too(
    scanned: pn.ScannedData, in_memory: pn.ChoiceData
) -> None:
    model = pn.MNL().fit(in_memory)
    assert seen_by(model, scanned) == "some"  # by a set that both hold: the fingerprints are of different kinds
    model.note_table(fingerprint=scanned.fingerprint())
    assert seen_by(model, scanned) == "all"
