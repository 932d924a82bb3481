"""London Passenger Mode Choice is read with its roles, split by survey year, and refused if it is another table."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from choice_tables import LONDON_TRIPS
from pcmcnet.datasets import lpmc
from pcmcnet.errors import DatasetError

TABLE = Path(__file__).parents[3] / "shared" / "data" / "ltds.csv.gz"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "trips.csv"
    pa.csv.write_csv(pa.table(LONDON_TRIPS), file)
    return file


def test_trips_are_choice_sets_of_four_modes(path: Path) -> None:
    data = lpmc.read(path)
    assert data.sizes.tolist() == [4, 4, 4]
    assert data.labels is not None
    assert data.labels.plain()[:4].tolist() == ["walk", "cycle", "pt", "drive"]
    assert data.require_chosen("a test").tolist() == [3, 2, 0]
    np.testing.assert_array_equal(data.features["cost"].values[:4], np.float32([0, 0, 1.5, 1.5]))  # type: ignore[union-attr]
    assert data.schema.person == "household_id"


def test_the_published_split_is_by_survey_year(path: Path) -> None:
    train, test = lpmc.published_split(path)
    assert train.set_ids.tolist() == [0, 1]
    assert test.set_ids.tolist() == [2]


def test_another_table_is_refused(tmp_path: Path, path: Path) -> None:
    with pytest.raises(DatasetError, match="no trip with survey_year in \\[4\\]"):
        lpmc.read(path, years=[4])
    for column in ("survey_year", "dur_pt_rail"):
        other = tmp_path / f"{column}.csv"
        pa.csv.write_csv(pa.table({name: values for name, values in LONDON_TRIPS.items() if name != column}), other)
        with pytest.raises(DatasetError, match=f"not the table of London Passenger Mode Choice: .*{column}"):
            lpmc.read(other)
    words = tmp_path / "words.csv"
    pa.csv.write_csv(pa.table({**LONDON_TRIPS, "survey_year": ["first", "second", "third"]}), words)
    with pytest.raises(DatasetError, match="not the table of London Passenger Mode Choice"):
        lpmc.read(words)
    with pytest.raises(DatasetError, match="expected survey years"):
        lpmc.read(path, years=3)  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match="missing"):
        lpmc.read(tmp_path / "missing.csv")


@pytest.mark.slow
@pytest.mark.skipif(not TABLE.exists(), reason="needs ../shared/data/ltds.csv.gz")
def test_the_published_split_has_its_published_sizes() -> None:
    train, test = lpmc.published_split(TABLE)
    assert (len(train), len(test)) == (54_766, 26_320)
    households = [set(np.asarray(part.keep["household_id"].plain()).tolist()) for part in (train, test)]
    assert not households[0] & households[1]
