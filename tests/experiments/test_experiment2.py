from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from pcmcnet.errors import DatasetError, InputError, SchemaError
from pcmcnet.experiments import experiment2
from pcmcnet.experiments.experiment2 import FILES, read_folder, simulate, with_airline


@pytest.fixture
def folder(tmp_path: Path, bookings: Callable[..., pa.Table]) -> Path:
    for k, name in enumerate(FILES.values()):
        pyarrow.csv.write_csv(bookings(8 - k, seed=k), tmp_path / name)
    return tmp_path


def test_the_airline_is_that_of_the_first_flight() -> None:
    table = pa.table({"airlines": ["AF/KL/AF", "BA", "['U2', 'AF']", "4U,LH"]})
    assert with_airline(table)["airline"].to_pylist() == ["AF", "BA", "U2", "4U"]


def test_rows_without_an_airline_are_named() -> None:
    with pytest.raises(SchemaError, match=r"column 'airlines', row 1: expected airlines .* got '/'; 2 such rows"):
        with_airline(pa.table({"airlines": ["AF", "/", ""]}))
    with pytest.raises(SchemaError, match=r"expected a column 'airlines', got \['carrier'\]"):
        with_airline(pa.table({"carrier": ["AF"]}))


def test_the_papers_files_become_three_parts(folder: Path) -> None:
    train, dev, test = read_folder(folder)
    assert dev is not None
    assert [len(part) for part in (train, dev, test)] == [8, 7, 6]
    assert list(train.features) == experiment2.ROLES["features"]
    assert list(train.individual) == experiment2.ROLES["individual"]
    assert train.labels is None
    first = pyarrow.csv.read_csv(folder / FILES["train"])["dtd"].to_numpy()[::4]
    np.testing.assert_array_equal(train.individual["dtd"].plain(), first)  # the first row of each search


def test_a_missing_file_or_folder_is_named(folder: Path) -> None:
    (folder / FILES["dev"]).rename(folder / "data_dev.csv")
    with pytest.raises(InputError, match=r"data_dev_50alternatives-EUR-TopOD_filter\.csv is missing"):
        read_folder(folder)
    with pytest.raises(InputError, match="expected a folder with data_train_50alternatives"):
        read_folder(folder / "nowhere")


def test_larchs_table_has_the_papers_features() -> None:
    try:
        data = experiment2.larch_table()
    except DatasetError as error:
        pytest.skip(str(error))
    assert len(data) == 615
    airlines = data.features["airline"].plain()
    assert {len(name) for name in airlines.tolist()} <= {2, 3}
    assert not any("/" in name for name in airlines.tolist())
    assert list(data.features) == experiment2.ROLES["features"]
    assert {"origin", "destination", "pointOfSale"} < data.individual.keys()


def test_a_simulated_table_is_split_into_disjoint_parts() -> None:
    simulated = simulate(60, seed=1)
    train, dev, test = simulated.parts
    assert dev is not None
    assert [len(part) for part in (train, dev, test)] == [48, 6, 6]
    ids = np.concatenate([part.set_ids for part in (train, dev, test)])
    assert len(np.unique(ids)) == 60
    uniform = float(np.log(test.sizes).mean())
    assert 0 < simulated.best_nll < uniform
