"""Offers by workers: the file that one process writes, byte for byte."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pcmcnet as pn
from pcmcnet import cluster
from pcmcnet.errors import InputError


@pytest.mark.usefixtures("local_ray")
def test_workers_write_the_file_that_one_process_writes(table: pa.Table, tmp_path: Path) -> None:
    roles = {"choice_set": "individual", "chosen": "choice", "individual": ["dtd"], "features": ["totalPrice"]}
    model = pn.MNL(formula="totalPrice + totalPrice:dtd | 0").fit(pn.ChoiceData.from_long(table, **roles))
    shelf = {"totalPrice": [100.0, 150.0, 200.0, 300.0], "margin": [0.0, 10.0, 20.0, 40.0]}
    people, by_workers, alone = (tmp_path / f"{name}.parquet" for name in ("people", "workers", "alone"))
    pq.write_table(pa.table({"dtd": [float(k % 50) for k in range(3_500)]}), people)
    found = cluster.write_offers(model, shelf, people, by_workers, "margin", outside="0", workers=2)
    expected = pn.write_offers(model, shelf, people, alone, "margin", outside="0")
    assert by_workers.read_bytes() == alone.read_bytes()
    assert found._replace(path=alone) == expected
    with pytest.raises(InputError, match="no column 'margins'"):
        cluster.write_offers(model, shelf, people, by_workers, "margins", outside="0", workers=2)
